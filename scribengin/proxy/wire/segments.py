"""Questions about segments, as `ask` carries them. Each names the log, and the segment as a list: directory, number,
epoch, copy.

| op | takes | says |
|---|---|---|
| `segment_open` | | nothing: the segment is there |
| `segment_bytes` | `offset`, `length`, `ahead` | the bytes, as data: fewer at the end, or where they are too many |
| `segment_tail` | `known`, `wait_s` | `tail`: how far it may be read, as soon as its end is not `known` any more |
| `segment_size` | | `size`: the bytes there are, visible or not |
| `segment_index` | `kind` | the index as it was kept, as data |
| `segment_doubt` | | nothing: what is kept in memory of the segment is forgotten, as it does not hold |

Who writes a log from another machine (client/elsewhere.py) has all of a store. `directory` is the log's, or the one
where files are set aside below it.

| op | takes | says |
|---|---|---|
| `store_create_log`, `store_delete_log` | `directory` | nothing |
| `store_create` | `fsync`, `handle` | nothing: it is open here; the same handle again is the same segment |
| `store_append` | `handle`, `step`, `offset`; entries, as data | nothing |
| `store_sync`, `store_settle` | `handle`, `step` | nothing |
| `store_close` | `handle` | nothing, also where it is not open |
| `store_show` | `handle`, `step`, `tail` | nothing |
| `store_fence`, `store_make_durable`, `store_announce` | | nothing |
| `store_disk_size` | | `size` and `tail` of a segment, read past the cache |
| `store_disk_bytes` | `offset`, `length` | its bytes |
| `store_save_index` | `kind`; the index, as data | `kept` |
| `store_names`, `store_announced` | `directory` | `names`; `announced`: epoch and segment |
| `store_remove` | | `size`: how many bytes it had |
| `store_move` | `to`: as `segment` | nothing |

Steps count what is done to an open segment, from 1 on. One that is asked for again is not done again.

Of the bytes, `length` are wanted. Up to `ahead` more come along as far as they are visible. `tail` is null, or a list:
end, entries, last transaction id, sequence. `known` is -1 for who knows of no tail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import pyarrow as pa

from scribengin.base.model import JsonObject, from_node_name
from scribengin.errors import MessageDamaged
from scribengin.log.format.entry import Damage, EntryHeader, read_header, stored_entry
from scribengin.log.store.contract import SEGMENT_MAX, PlacedEntry, SegmentName, Tail
from scribengin.proxy.wire.requests import AskRequest

OPEN = "segment_open"
BYTES = "segment_bytes"
TAIL = "segment_tail"
SIZE = "segment_size"
INDEX = "segment_index"
DOUBT = "segment_doubt"

CREATE_LOG = "store_create_log"
DELETE_LOG = "store_delete_log"
CREATE = "store_create"
APPEND = "store_append"
SYNC = "store_sync"
SETTLE = "store_settle"
SHOW = "store_show"
CLOSE = "store_close"
FENCE = "store_fence"
MAKE_DURABLE = "store_make_durable"
ANNOUNCE = "store_announce"
DISK_SIZE = "store_disk_size"
DISK_BYTES = "store_disk_bytes"
SAVE_INDEX = "store_save_index"
NAMES = "store_names"
ANNOUNCED = "store_announced"
REMOVE = "store_remove"
MOVE = "store_move"

ANSWER_BYTES_MAX = 8 * 1024 * 1024
"""No answer holds more bytes of a segment."""
EPOCH_MAX = 2**63 - 1
"""No writer has a higher epoch: the next one, too, is to fit into the entries' headers."""
_TAIL_RANGES = ((0, 2**63 - 1), (0, 2**32 - 1), (-(2**63), 2**63 - 1), (-(2**63), 2**63 - 1))
"""What a store has room for: end, entries, last transaction id, sequence."""
_APPEND_BYTES = 4 * 1024 * 1024
_ASIDE = "/aside"
_DIRECTORY = re.compile(rf"[^./][^/]*-[0-9a-z]+({_ASIDE})?")
_COPY = re.compile(r"[0-9A-Za-z-]*")


def about_segment(op: str, name: SegmentName, **fields: object) -> AskRequest:
    """The question."""
    return AskRequest(op, log_of(name), {"segment": list(name[:4]), **fields})


def about_directory(op: str, directory: str) -> AskRequest:
    """What is asked of all segments of a log."""
    return AskRequest(op, _log_of(directory), {"directory": directory})


def log_of(name: SegmentName) -> str:
    """Whose segment it is, by the name of the directory."""
    return _log_of(name.directory)


def log_directory(name: SegmentName) -> str:
    """The directory of its log, also where it is set aside below it."""
    return name.directory.removesuffix(_ASIDE)


def _log_of(directory: str) -> str:
    return from_node_name(directory.rpartition("-")[0])


def segment_asked(request: AskRequest, field: str = "segment") -> SegmentName:
    """Which segment a question is about. Raises KeyError, TypeError, ValueError."""
    directory, segment, epoch, copy = request.fields[field]
    return segment_named(directory, segment, epoch, copy)


def segment_named(directory: object, segment: object, epoch: object, copy: object) -> SegmentName:
    """The name that somebody says. It leads nowhere but to that directory. Raises TypeError, ValueError."""
    if not _is_within(segment, 0, SEGMENT_MAX) or not _is_within(epoch, 0, EPOCH_MAX):
        raise ValueError(f"no segment is called {segment}-{epoch}")
    if not _COPY.fullmatch(str(copy)):
        raise ValueError(f"no copy is called {copy}")
    return SegmentName(str(directory), segment, epoch, str(copy))


def _is_within(number: object, lowest: int, highest: int) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and lowest <= number <= highest


def directory_asked(request: AskRequest, directory: object = None) -> str:
    """The directory that a question is about, which is the log's that it names. Raises KeyError, ValueError."""
    said = str(request.fields["directory"] if directory is None else directory)
    if not _DIRECTORY.fullmatch(said) or _log_of(said) != request.log:
        raise ValueError(f"{said} is no directory of '{request.log}'")
    return said


def entries_sent(entries: Sequence[PlacedEntry]) -> Iterator[tuple[int, pa.Buffer]]:
    """Entries as they are to stand in a segment, in parts of about 4 MiB, each with its offset."""
    parts: list[bytes | memoryview] = []
    start = size = 0
    for entry in entries:
        if not parts:
            start, size = entry.offset, 0
        parts += (entry.header.to_bytes(), *(memoryview(buffer) for buffer in entry.encoded.buffers))
        size += entry.header.size
        if size >= _APPEND_BYTES:
            yield start, pa.py_buffer(b"".join(parts))
            parts = []
    if parts:
        yield start, pa.py_buffer(b"".join(parts))


def entries_heard(data: pa.Buffer, offset: int) -> list[PlacedEntry]:
    """The entries of a part that begins at `offset`. Raises MessageDamaged."""
    entries = []
    at = 0
    while at < data.size:
        header, entry = read_header(data, at), stored_entry(data, at)
        if not isinstance(header, EntryHeader) or isinstance(entry, Damage):
            why = entry.reason if isinstance(entry, Damage) else "no header"
            raise MessageDamaged(f"an entry was damaged on its way to a proxy: {why}; send it again")
        entries.append(PlacedEntry(offset + at, header, entry))
        at += header.size
    return entries


def told_tail(tail: Tail | None) -> JsonObject:
    """What an answer says of a tail."""
    return {"tail": None if tail is None else [tail.end, tail.entries, tail.last_txid, tail.sequence]}


def heard_tail(said: JsonObject) -> Tail | None:
    """The tail that is said, as `told_tail` says it. Raises KeyError, TypeError, ValueError."""
    if said["tail"] is None:
        return None
    numbers = list(said["tail"])
    if len(numbers) != len(_TAIL_RANGES):
        raise ValueError(f"a tail is {len(_TAIL_RANGES)} numbers")
    for number, (lowest, highest) in zip(numbers, _TAIL_RANGES, strict=True):
        if not _is_within(number, lowest, highest):
            raise ValueError(f"no tail has the number {number}")
    return Tail(*numbers)
