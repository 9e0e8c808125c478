"""Requests: what a client asks of a proxy.

`write` carries records of one sender for one log: a head, and then an entry as it would stand on disk, with both its
checksums. Little-endian:

| at | size | field |
|---|---|---|
| 0 | 8 | `prxwrt03` |
| 8 | 16 | the sender |
| 24 | 8 | number of the first record |
| 32 | 8 | up to which number the sender has had answers |
| 40 | 8 | the segment since which the records may be in the log, if they were sent before; else 0 |
| 48 | 2 | bytes of the log's name |
| 50 | 2 | bytes of the log's directory, which tells it from others that have had its name |
| 52 | 2 | bits: 1: the records have transaction ids, else the proxy gives them; 2: readers see all of them or none |
| 54 | 2 | zeros |
| 56 | | the name, the directory, zeros up to a multiple of 64 bytes, then the entry |

`ask` is JSON: `op`, `log`, and what the operation takes. `ask_with_data` is the same with bytes behind it, and with the
length of the JSON before it (4 bytes).

Who asks stands in no request: the token comes with each call, as HTTP has it: `authorization: Bearer <token>`.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field, replace

import pyarrow as pa

from scribengin.base.model import JsonObject
from scribengin.errors import MessageDamaged, MessageInvalid
from scribengin.log.format.entry import ALIGNMENT, HEADER_BYTES, Damage, encode, read_body, read_header
from scribengin.log.format.sender_marks import SENDER_BYTES

WRITE = "write"
ASK = "ask"
ASK_WITH_DATA = "ask_with_data"
TOKEN_HEADER = "authorization"
TLS_SCHEME = "grpc+tls"
"""With which the address of a proxy begins that encrypts."""
_MAGIC = b"prxwrt03"
_HEAD = struct.Struct("<8s16sQQQHHHxx")
_TXIDS = 1
_ATOMIC = 2
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """Records of one sender, numbered from `number` on. `records` is as BODY_SCHEMA, without `txid` where the proxy is
    to give the transaction ids. They are for the log of that directory, and no other that has its name since; empty:
    for whichever has it. `atomic`: readers see all of them or none. `since`: they were sent before, and may be in the
    log, in that segment or a later one; 0: they were not."""

    log: str
    directory: str
    sender: bytes
    number: int
    answered: int
    records: pa.RecordBatch
    atomic: bool = False
    since: int = 0


@dataclass(frozen=True, slots=True)
class AskRequest:
    """Anything but records of senders. `data` are bytes for a segment."""

    op: str
    log: str = ""
    fields: JsonObject = field(default_factory=dict)
    data: pa.Buffer | None = None

    @property
    def kind(self) -> str:
        """The kind of the call that carries it."""
        return ASK if self.data is None else ASK_WITH_DATA


def encode_write(
    log: str,
    sender: bytes,
    number: int,
    answered: int,
    body: pa.RecordBatch,
    *,
    txids: bool,
    directory: str = "",
    atomic: bool = False,
    since: int = 0,
) -> bytes:
    """The bytes of a request. `body` is as BODY_SCHEMA; without `txids` its transaction ids say nothing."""
    name, place = log.encode(), directory.encode()
    entry = encode(body)
    flags = _TXIDS * txids | _ATOMIC * atomic
    head = _HEAD.pack(_MAGIC, sender, number, answered, since, len(name), len(place), flags) + name + place
    header = entry.place(entry=0, group_index=0, sequence=0, epoch=0).to_bytes()
    return b"".join((head, bytes(-len(head) % ALIGNMENT), header, *entry.buffers))


def decode_write(data: pa.Buffer) -> WriteRequest:
    """Raises MessageInvalid."""
    if data.size < _HEAD.size:
        raise MessageDamaged(f"a request of {data.size} bytes is none: it was cut on its way; send it again")
    magic, sender, number, answered, since, name_bytes, directory_bytes, flags = _HEAD.unpack_from(data)
    at = _HEAD.size + name_bytes
    start = at + directory_bytes
    start += -start % ALIGNMENT
    header = read_header(data, start)
    if magic != _MAGIC:
        raise MessageInvalid(
            f"what came is no request to write: it begins with {magic!r}; use a client of this version"
        )
    if isinstance(header, Damage):
        raise MessageDamaged(f"a request to write was damaged on its way: {header.reason}; send it again")
    body = read_body(header, data.slice(start + HEADER_BYTES))
    if isinstance(body, Damage):
        raise MessageDamaged(f"a request to write was damaged on its way: {body.reason}; send it again")
    try:
        log = bytes(data.slice(_HEAD.size, name_bytes)).decode()
        directory = bytes(data.slice(at, directory_bytes)).decode()
    except UnicodeDecodeError:
        raise MessageDamaged("a request to write names a log that is no text; send it again") from None
    records = body if flags & _TXIDS else pa.RecordBatch.from_arrays(body.columns[1:], names=body.schema.names[1:])
    return WriteRequest(log, directory, sender, number, answered, records, bool(flags & _ATOMIC), since)


def encode_ask(request: AskRequest) -> bytes:
    """The bytes of a request, which goes as its `kind`."""
    said = json.dumps({"op": request.op, "log": request.log, **request.fields}, ensure_ascii=False).encode()
    return said if request.data is None else b"".join((_LENGTH.pack(len(said)), said, request.data))


def decode_ask(data: pa.Buffer) -> AskRequest:
    """Raises MessageInvalid."""
    try:
        said = json.loads(bytes(data))
        return AskRequest(str(said.pop("op")), str(said.pop("log")), said)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise MessageInvalid(f"what came is no request: {error!r}; use a client of this version") from None


def decode_ask_with_data(data: pa.Buffer) -> AskRequest:
    """Raises MessageInvalid."""
    length = _LENGTH.unpack_from(data)[0] if data.size >= _LENGTH.size else data.size
    if data.size < _LENGTH.size + length:
        raise MessageDamaged(f"a request of {data.size} bytes is none: it was cut on its way; send it again")
    request = decode_ask(data.slice(_LENGTH.size, length))
    return replace(request, data=data.slice(_LENGTH.size + length))


assert SENDER_BYTES == 16, "the head has that much room for it"
