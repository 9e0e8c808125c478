"""Bundles: requests to write several logs, which a client sends as one. Little-endian:

| at | size | field |
|---|---|---|
| 0 | 8 | `prxbnd01` |
| 8 | 8 | how many requests |
| 16 | 8 each | the bytes of each request |
| | | the requests, each from a multiple of 64 bytes on |

Each is answered by a message of its own, in the order of the requests. A log that the proxy does not write just now is
not taken in a bundle, since the others would wait for that: the answer is `S`, and the request is sent by itself.
So it is with a log that has no room. A bundle that is refused as a whole has one answer, behind a `*`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa

from scribengin.errors import MessageDamaged
from scribengin.log.format.entry import ALIGNMENT

WRITES = "writes"
SEND_ALONE = b"S"
"""The answer to a request that is to be sent by itself. Nothing of it was begun."""
OF_ALL = b"*"
"""What an answer begins with that is the only one, and that of every request of the bundle."""
_MAGIC = b"prxbnd01"
_HEAD = struct.Struct("<8sQ")
_SIZE = struct.Struct("<Q")


def encode_bundle(requests: Sequence[bytes]) -> bytes:
    """The bytes of a bundle."""
    parts = [_HEAD.pack(_MAGIC, len(requests)), *(_SIZE.pack(len(request)) for request in requests)]
    parts.append(bytes(-(_HEAD.size + len(requests) * _SIZE.size) % ALIGNMENT))
    for request in requests:
        parts += [request, bytes(-len(request) % ALIGNMENT)]
    return b"".join(parts)


def decode_bundle(data: pa.Buffer) -> list[pa.Buffer]:
    """The requests. Nothing is copied. Raises MessageDamaged."""
    try:
        magic, count = _HEAD.unpack_from(data)
        if magic != _MAGIC or not 1 <= count <= (data.size - _HEAD.size) // _SIZE.size:
            raise ValueError(f"it begins with {magic!r} and says that it has {count} requests")
        sizes = [_SIZE.unpack_from(data, _HEAD.size + n * _SIZE.size)[0] for n in range(count)]
        at = _aligned(_HEAD.size + count * _SIZE.size)
        requests = []
        for size in sizes:
            if at + size > data.size:
                raise ValueError(f"{data.size} bytes are fewer than its requests have")
            requests.append(data.slice(at, size))
            at = _aligned(at + size)
    except (ValueError, struct.error) as error:
        raise MessageDamaged(f"what came is no bundle of requests: {error}; send each by itself") from None
    return requests


def _aligned(at: int) -> int:
    return at + -at % ALIGNMENT
