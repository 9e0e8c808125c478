"""Questions about segments, as `ask` carries them. Each names the log, and the segment as a list: directory, number,
epoch, copy.

| op | takes | says |
|---|---|---|
| `segment_open` | | nothing: the segment is there |
| `segment_bytes` | `offset`, `length`, `ahead` | the bytes, as data: fewer at the end, or where they are too many |
| `segment_tail` | `known`, `wait_s` | `tail`: how far it may be read, as soon as its end is not `known` any more |
| `segment_size` | | `size`: the bytes there are, visible or not |
| `segment_index` | `kind` | the index as it was kept, as data |

Of the bytes, `length` are wanted. Up to `ahead` more come along as far as they are visible. `tail` is null, or a list:
end, entries, last transaction id, sequence. `known` is -1 for who knows of no tail.
"""

from __future__ import annotations

from scribengin.base.model import JsonObject, from_node_name
from scribengin.log.store.contract import SegmentName, Tail
from scribengin.proxy.wire.requests import AskRequest

OPEN = "segment_open"
BYTES = "segment_bytes"
TAIL = "segment_tail"
SIZE = "segment_size"
INDEX = "segment_index"

ANSWER_BYTES_MAX = 8 * 1024 * 1024
"""No answer holds more bytes of a segment."""


def about_segment(op: str, name: SegmentName, **fields: object) -> AskRequest:
    """The question."""
    return AskRequest(op, log_of(name), {"segment": list(name[:4]), **fields})


def log_of(name: SegmentName) -> str:
    """Whose segment it is, by the name of the directory."""
    return from_node_name(name.directory.rpartition("-")[0])


def segment_asked(request: AskRequest) -> SegmentName:
    """Which segment a question is about. Raises KeyError, TypeError, ValueError."""
    directory, segment, epoch, copy = request.fields["segment"]
    return SegmentName(str(directory), int(segment), int(epoch), str(copy))


def told_tail(tail: Tail | None) -> JsonObject:
    """What an answer says of a tail."""
    return {"tail": None if tail is None else [tail.end, tail.entries, tail.last_txid, tail.sequence]}


def heard_tail(said: JsonObject) -> Tail | None:
    """The tail of an answer. Raises KeyError, TypeError."""
    return None if said["tail"] is None else Tail(*said["tail"])
