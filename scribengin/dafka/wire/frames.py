"""Messages between producers, consumers and stores, as Dafka's C programs write them.

The first frame is the message's id (one letter), its topic with a NUL behind it, the version octet 1, and the fields.
Records have a second frame, their content, and so have batches. Sockets subscribe to the beginning of the first frame:
that is why the topic stands there, and not among the fields. For direct messages the topic is the address of who shall
have it.

    string   u8 length, bytes            sequence  u64, big-endian
    longstr  u32 length, bytes           records   u32, big-endian
    time     u64, big-endian, ms since the epoch

| id | class         | topic         | fields                                       |
|----|---------------|---------------|----------------------------------------------|
| M  | LiveRecord    | the topic     | address, subject, sequence; content          |
| D  | DirectRecord  | who has asked | address, subject, sequence; content          |
| F  | Fetch         | the producer  | address, subject, sequence, records          |
| K  | StoreAck      | the producer  | subject, sequence                            |
| H  | Head          | the topic     | address, subject, sequence                   |
| E  | DirectHead    | who has asked | address, subject, sequence                   |
| G  | GetHeads      | the topic     | address                                      |
| W  | ConsumerHello | the store     | address, count of subjects, longstr          |
| L  | StoreHello    | the consumer  | address                                      |
| T  | Truncated     | who has asked | address, subject, sequence                   |
| Z  | HeadsTold     | who has asked | address                                      |
| N  | LiveBatch     | the topic     | address, subject, sequence, records; content |
| P  | DirectBatch   | who has asked | address, subject, sequence, records; content |
| S  | FindTime      | who is asked  | address, producer, subject, time             |
| A  | TimeFound     | who has asked | address, producer, subject, time, known (u8), sequence |

The last six are ours: C programs never subscribe to them, so they never reach these. A batch is many records in one
content (`batches`), from `sequence` on. Every string is UTF-8. A frame that is longer than its fields is refused, as is
any other version: nothing is guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeVar

from scribengin.base.text.counting import many
from scribengin.dafka.wire.batches import pack, unpack
from scribengin.errors import FrameInvalid

Frames = Sequence[bytes]
"""One message on a socket: its parts, in order."""
VERSION = 1
SEQUENCE_MAX = 2**64 - 1
COUNT_MAX = 2**32 - 1
_STRING_BYTES_MAX = 255
_LONGSTR_BYTES_MAX = 65_535
_U32 = Struct(">I")
_U64 = Struct(">Q")
pack_sequence = _U64.pack
"""The last eight bytes of a record's first frame, of a sequence that fits."""
pack_place = Struct(">QI").pack
"""The last twelve bytes of a batch's first frame: the sequence of its first record, and how many it has."""
_T = TypeVar("_T")


class LiveRecord(NamedTuple):
    """A record as its producer publishes it, to whoever has subscribed to the topic."""

    topic: str
    address: str
    subject: str
    sequence: int
    content: bytes

    @property
    def contents(self) -> Sequence[bytes]:
        """As of a batch of one."""
        return (self.content,)


class DirectRecord(NamedTuple):
    """A record that was fetched. `to` has asked for it; `address` is the producer's."""

    to: str
    address: str
    subject: str
    sequence: int
    content: bytes

    @property
    def contents(self) -> Sequence[bytes]:
        """As of a batch of one."""
        return (self.content,)


class LiveBatch(NamedTuple):
    """Records as their producer publishes them, from `sequence` on. Whoever takes them has subscribed to batches."""

    topic: str
    address: str
    subject: str
    sequence: int
    contents: Sequence[bytes]


class DirectBatch(NamedTuple):
    """Records that were fetched, from `sequence` on. `to` has asked for them, and has subscribed to batches."""

    to: str
    address: str
    subject: str
    sequence: int
    contents: Sequence[bytes]


class Fetch(NamedTuple):
    """`address` asks for `records` records of the producer `to`, from `sequence` on. A store may answer, too."""

    to: str
    address: str
    subject: str
    sequence: int
    records: int


class StoreAck(NamedTuple):
    """A store has all records of the producer `to` up to `sequence`, that one included."""

    to: str
    subject: str
    sequence: int


class Head(NamedTuple):
    """The last record that the producer `address` has published."""

    topic: str
    address: str
    subject: str
    sequence: int


class DirectHead(NamedTuple):
    """The last record of the producer `address` that a store has, for the consumer `to`."""

    to: str
    address: str
    subject: str
    sequence: int


class GetHeads(NamedTuple):
    """The consumer `address` asks for the last record of each partition of a topic."""

    topic: str
    address: str


class ConsumerHello(NamedTuple):
    """The consumer `address` tells the store `to` which topics it wants the heads of."""

    to: str
    address: str
    subjects: tuple[str, ...]


class StoreHello(NamedTuple):
    """The store `address` tells the consumer `to` that they are connected."""

    to: str
    address: str


class Truncated(NamedTuple):
    """Whoever answers keeps nothing of the producer `address` before `sequence`, though `to` has asked for it."""

    to: str
    address: str
    subject: str
    sequence: int


class HeadsTold(NamedTuple):
    """The store `address` has told `to` of every partition that it was asked about."""

    to: str
    address: str


class FindTime(NamedTuple):
    """`address` asks `to`, a store or the producer itself, which record of `producer` was the first at `at_ms` or
    later. Whoever can answer has subscribed to questions to itself, and nobody else is asked."""

    to: str
    address: str
    producer: str
    subject: str
    at_ms: int


class KnownOfTime(IntEnum):
    """What one who was asked knows of a time. NOTHING: not where it begins. BEGINS: all that is kept there is of that
    time or later, and what was before has gone. WHERE: with which record it begins, or that all there is older."""

    NOTHING = 0
    BEGINS = 1
    WHERE = 2


class TimeFound(NamedTuple):
    """What `address` knows of that time, for `to`, who has asked. `sequence`: where to begin; 0 for NOTHING."""

    to: str
    address: str
    producer: str
    subject: str
    at_ms: int
    known: KnownOfTime
    sequence: int


Message = (
    LiveRecord
    | DirectRecord
    | Fetch
    | StoreAck
    | Head
    | DirectHead
    | GetHeads
    | ConsumerHello
    | StoreHello
    | Truncated
    | HeadsTold
    | LiveBatch
    | DirectBatch
    | FindTime
    | TimeFound
)
RecordsMessage = LiveRecord | DirectRecord | LiveBatch | DirectBatch
"""What brings records, each as many `contents` from `sequence` on."""

IDS: dict[type[Message], bytes] = {
    LiveRecord: b"M",
    DirectRecord: b"D",
    Fetch: b"F",
    StoreAck: b"K",
    Head: b"H",
    DirectHead: b"E",
    GetHeads: b"G",
    ConsumerHello: b"W",
    StoreHello: b"L",
    Truncated: b"T",
    HeadsTold: b"Z",
    LiveBatch: b"N",
    DirectBatch: b"P",
    FindTime: b"S",
    TimeFound: b"A",
}
"""The letter that each message begins with."""
_LETTERS = {letter: kind for kind, letter in IDS.items()}
_WITH_CONTENT = (LiveRecord, DirectRecord, LiveBatch, DirectBatch)


class Subscription(NamedTuple):
    """What an XPUB socket hears when somebody subscribes to `prefix`, or ends that."""

    begins: bool
    prefix: bytes

    def address_of(self, kind: type[Message]) -> str | None:
        """Who has subscribed to messages of that kind for itself. None: it is another kind's, or of no address."""
        letter, name = self.prefix[:1], self.prefix[1:].removesuffix(b"\0")
        if letter != IDS[kind] or not name or not name.isalnum():
            return None
        return name.decode("ascii", "replace")


def topic_prefix(kind: type[Message], topic: str, *, exact: bool = True) -> bytes:
    """What a socket subscribes to for messages of a kind. Not `exact`: topics that begin with `topic`, too, as the C
    programs do; "" is every topic then."""
    return IDS[kind] + topic.encode() + (b"\0" if exact else b"")


@lru_cache(maxsize=1024)
def record_prefix(kind: type[RecordsMessage], topic: str, address: str, subject: str) -> bytes:
    """The first frame of a record but for its sequence, or of a batch but for its place. It is the same for all of a
    partition."""
    return _start(kind, topic) + _string(address) + _string(subject)


def encode(message: Message) -> list[bytes]:
    """The frames of a message. Raises FrameInvalid for a name or number that does not fit."""
    match message:
        case LiveRecord() | DirectRecord():
            kind = type(message)
            # Classes are hashable; of those whose instances are compared as tuples mypy does not know it.
            first = record_prefix(kind, message[0], message.address, message.subject)  # type: ignore[arg-type]
            return [first + _sequence(message.sequence), message.content]
        case LiveBatch() | DirectBatch():
            content = pack(message.contents)
            _sequence(message.sequence + len(message.contents) - 1)
            first = record_prefix(type(message), message[0], message.address, message.subject)  # type: ignore[arg-type]
            return [first + pack_place(message.sequence, len(message.contents)), content]
        case Head() | DirectHead() | Truncated():
            named = _string(message.address) + _string(message.subject)
            return [_start(type(message), message[0]) + named + _sequence(message.sequence)]
        case Fetch():
            named = _string(message.address) + _string(message.subject)
            return [_start(Fetch, message.to) + named + _sequence(message.sequence) + _count(message.records)]
        case StoreAck():
            return [_start(StoreAck, message.to) + _string(message.subject) + _sequence(message.sequence)]
        case ConsumerHello():
            subjects = b"".join(map(_longstr, message.subjects))
            return [
                _start(ConsumerHello, message.to) + _string(message.address) + _count(len(message.subjects)) + subjects
            ]
        case FindTime() | TimeFound():
            start = _start(type(message), message.to) + _string(message.address) + _string(message.producer)
            asked = start + _string(message.subject) + _sequence(message.at_ms)
            if isinstance(message, FindTime):
                return [asked]
            return [asked + bytes([message.known]) + _sequence(message.sequence)]
        case GetHeads() | StoreHello() | HeadsTold():
            return [_start(type(message), message[0]) + _string(message.address)]


def decode(frames: Frames) -> Message:
    """The message that frames are. Raises FrameInvalid, whatever else they are."""
    if not frames:
        raise FrameInvalid("a message without frames is none of Dafka's")
    kind = _LETTERS.get(frames[0][:1])
    if kind is None:
        raise FrameInvalid(f"a message begins with {frames[0][:1]!r}, which is no id of Dafka's")
    expected = 2 if kind in _WITH_CONTENT else 1
    if len(frames) != expected:
        raise FrameInvalid(f"a {kind.__name__} has {len(frames)} frames, and not {expected}")
    fields = _Fields(frames[0], kind)
    content = frames[1:]
    message = _DECODERS[kind](fields, *content)
    fields.end()
    return message


def decode_subscription(frame: bytes) -> Subscription:
    """What an XPUB socket has heard. Raises FrameInvalid."""
    if not frame or frame[0] > 1:
        raise FrameInvalid(f"{frame[:8]!r} is no subscription")
    return Subscription(frame[0] == 1, frame[1:])


class FrameDecoder:
    """`decode` for many messages of few partitions: all but the sequence is the same each time, and is remembered.

    It remembers at most `partitions_max` beginnings, and forgets all of them when there are more.
    """

    def __init__(self, partitions_max: int = 4096) -> None:
        self._partitions_max = partitions_max
        self._known: dict[bytes, tuple[type[LiveRecord | DirectRecord], str, str, str]] = {}

    def decode(self, frames: Frames) -> Message:
        """As the function. Raises FrameInvalid."""
        if len(frames) == 2 and (known := self._known.get(frames[0][:-8])) is not None:
            kind, topic, address, subject = known
            return kind(topic, address, subject, _U64.unpack(frames[0][-8:])[0], frames[1])
        message = decode(frames)
        if isinstance(message, LiveRecord | DirectRecord):
            if len(self._known) >= self._partitions_max:
                self._known.clear()
            self._known[bytes(frames[0][:-8])] = (type(message), message[0], message.address, message.subject)
        return message


class _Fields:
    """The fields of a first frame, taken one after the other. Every method raises FrameInvalid."""

    def __init__(self, frame: bytes, kind: type[Message]) -> None:
        self._frame = frame
        self._kind = kind
        self._at = frame.find(b"\0") + 2
        if self._at < 2 or self._at > len(frame):
            raise self._invalid("ends before its version")
        self.topic = self._text(frame[1 : self._at - 2])
        if frame[self._at - 1] != VERSION:
            raise self._invalid(f"has version {frame[self._at - 1]}; this program reads version {VERSION}")

    def string(self) -> str:
        return self._text(self._take(self._take(1)[0]))

    def address(self) -> str:
        """Of a role: it is the topic of what is sent to that."""
        found = self.string()
        if "\0" in found:
            raise self._invalid("has an address with a NUL in it")
        return found

    def longstr(self) -> str:
        return self._text(self._take(self.count()))

    def sequence(self) -> int:
        return int(_U64.unpack(self._take(8))[0])

    def count(self) -> int:
        return int(_U32.unpack(self._take(4))[0])

    def known(self) -> KnownOfTime:
        said = self._take(1)[0]
        if said > max(KnownOfTime):
            raise self._invalid(f"knows {said} of a time, and {max(KnownOfTime):d} is the most")
        return KnownOfTime(said)

    def longstrs(self) -> tuple[str, ...]:
        """As many as are said, which is checked before any is read: each takes four bytes at least."""
        count = self.count()
        if count > (len(self._frame) - self._at) // 4:
            raise self._invalid(f"says that it has {count} subjects, for which it is too short")
        return tuple(self.longstr() for _ in range(count))

    def batch(self, content: bytes) -> tuple[int, list[bytes]]:
        """The sequence of the first record, and all of them."""
        sequence, records = self.sequence(), self.count()
        contents = unpack(content, records)
        if sequence + records - 1 > SEQUENCE_MAX:
            raise self._invalid(f"has {many(records, 'record')} from {sequence} on, and sequences end with 2**64 - 1")
        return sequence, contents

    def end(self) -> None:
        if self._at != len(self._frame):
            raise self._invalid(f"has {len(self._frame) - self._at} bytes behind its fields")

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._frame):
            raise self._invalid("ends within a field")
        taken = self._frame[self._at : end]
        self._at = end
        return taken

    def _text(self, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise self._invalid("has a name that is not UTF-8") from None

    def _invalid(self, why: str) -> FrameInvalid:
        return FrameInvalid(f"a {self._kind.__name__} of {len(self._frame)} bytes {why}")


_DECODERS: dict[type[Message], Callable[..., Message]] = {
    LiveRecord: lambda f, content: LiveRecord(f.topic, f.address(), f.string(), f.sequence(), content),
    DirectRecord: lambda f, content: DirectRecord(f.topic, f.address(), f.string(), f.sequence(), content),
    Fetch: lambda f: Fetch(f.topic, f.address(), f.string(), f.sequence(), f.count()),
    StoreAck: lambda f: StoreAck(f.topic, f.string(), f.sequence()),
    Head: lambda f: Head(f.topic, f.address(), f.string(), f.sequence()),
    DirectHead: lambda f: DirectHead(f.topic, f.address(), f.string(), f.sequence()),
    GetHeads: lambda f: GetHeads(f.topic, f.address()),
    ConsumerHello: lambda f: ConsumerHello(f.topic, f.address(), f.longstrs()),
    StoreHello: lambda f: StoreHello(f.topic, f.address()),
    Truncated: lambda f: Truncated(f.topic, f.address(), f.string(), f.sequence()),
    HeadsTold: lambda f: HeadsTold(f.topic, f.address()),
    LiveBatch: lambda f, content: LiveBatch(f.topic, f.address(), f.string(), *f.batch(content)),
    DirectBatch: lambda f, content: DirectBatch(f.topic, f.address(), f.string(), *f.batch(content)),
    FindTime: lambda f: FindTime(f.topic, f.address(), f.address(), f.string(), f.sequence()),
    TimeFound: lambda f: TimeFound(
        f.topic, f.address(), f.address(), f.string(), f.sequence(), f.known(), f.sequence()
    ),
}


def _start(kind: type[Message], topic: str) -> bytes:
    name = _bytes(topic)
    if b"\0" in name:
        raise FrameInvalid(f"the topic {topic!r} has a NUL in it")
    return IDS[kind] + name + b"\0\x01"


def _string(value: str) -> bytes:
    data = _bytes(value)
    if len(data) > _STRING_BYTES_MAX:
        raise FrameInvalid(f"'{value[:40]}...' is {len(data)} bytes long; {_STRING_BYTES_MAX} fit")
    return bytes([len(data)]) + data


def _longstr(value: str) -> bytes:
    data = _bytes(value)
    if len(data) > _LONGSTR_BYTES_MAX:
        raise FrameInvalid(f"'{value[:40]}...' is {len(data)} bytes long; {_LONGSTR_BYTES_MAX} fit")
    return _U32.pack(len(data)) + data


def _bytes(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise FrameInvalid(f"{value!r} cannot be written as UTF-8") from None


def _sequence(value: int) -> bytes:
    if not 0 <= value <= SEQUENCE_MAX:
        raise FrameInvalid(f"{value} is no sequence: it is 0 to 2**64 - 1")
    return _U64.pack(value)


def _count(value: int) -> bytes:
    if not 0 <= value <= COUNT_MAX:
        raise FrameInvalid(f"{value} is no count: it is 0 to 2**32 - 1")
    return _U32.pack(value)
