"""What clients saw of a log, held against what a log promises, in the manner of Jepsen's test of Kafka.

Clients tell what they do, as it happens: a record is handed over, it is acknowledged at a place, or refused; a reader
sees records at their places. Whoever saw neither acknowledgement nor refusal does not know, and both is well. Every
value is handed over once in a history, so that a value stands for a record. In the end one reader reads everything.

| anomaly | what was seen |
|---|---|
| `lost` | a record was acknowledged, and the reader of everything did not find it |
| `vanished` | a reader saw a record, and the reader of everything did not |
| `never written` | a record that nobody handed over, or that was refused |
| `twice` | one record at two places |
| `disagreement` | two records at one place, or one whose acknowledgement names another place than readers do |
| `gap` | a reader went past a record without seeing it |
| `backwards` | a reader saw a place after a later one |
| `reordered` | a record stands before one that was acknowledged before it was handed over |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

Place = tuple[int, ...]
"""Where a record stands: a DLSN. Places of one log can be compared."""


@dataclass(frozen=True, slots=True)
class RecordSent:
    """A client handed a record over."""

    value: str


@dataclass(frozen=True, slots=True)
class RecordAcknowledged:
    """A client was told that its record is durable, and where."""

    value: str
    place: Place


@dataclass(frozen=True, slots=True)
class RecordRejected:
    """A client was told that its record is not in the log, and never will be."""

    value: str


@dataclass(frozen=True, slots=True)
class RecordSeen:
    """A reader saw a record."""

    reader: str
    value: str
    place: Place


LogEvent = RecordSent | RecordAcknowledged | RecordRejected | RecordSeen
LogContent = Sequence[tuple[Place, str]]
"""What one reader saw that read everything, when all was over: places and values, in its order."""


@dataclass(frozen=True, slots=True)
class LogAnomaly:
    """Something that a log never does. `kind` is one of the table's."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


def check_history(events: Sequence[LogEvent], content: LogContent) -> list[LogAnomaly]:
    """All that is wrong with the history of one log, whose `events` are in the order of time."""
    return [
        *_missing(events, content),
        *_unwritten(events, content),
        *_misplaced(events, content),
        *_badly_read("the reader of everything", content),
        *_followed(events, content),
        *_reordered(events, content),
    ]


def _missing(events: Iterable[LogEvent], content: LogContent) -> Iterator[LogAnomaly]:
    there = {value for _place, value in content}
    for event in events:
        if isinstance(event, RecordAcknowledged) and event.value not in there:
            yield LogAnomaly("lost", f"{event.value} was acknowledged at {_text(event.place)}")
        if isinstance(event, RecordSeen) and event.value not in there:
            yield LogAnomaly("vanished", f"{event.reader} saw {event.value} at {_text(event.place)}")


def _unwritten(events: Sequence[LogEvent], content: LogContent) -> Iterator[LogAnomaly]:
    sent = {event.value for event in events if isinstance(event, RecordSent)}
    refused = {event.value for event in events if isinstance(event, RecordRejected)}
    for place, value in _observed(events, content):
        if value not in sent:
            yield LogAnomaly("never written", f"{value} at {_text(place)}")
        elif value in refused:
            yield LogAnomaly("never written", f"{value} at {_text(place)} was refused")


def _misplaced(events: Sequence[LogEvent], content: LogContent) -> Iterator[LogAnomaly]:
    values, places = defaultdict(set), defaultdict(set)
    for place, value in _observed(events, content):
        values[place].add(value)
        places[value].add(place)
    for place, found in values.items():
        if len(found) > 1:
            yield LogAnomaly("disagreement", f"{' and '.join(sorted(found))} are at {_text(place)}")
    kept = defaultdict(set)
    for place, value in content:
        kept[value].add(place)
    for value, where in places.items():
        if len(where) > 1:
            kind = "twice" if len(kept[value]) > 1 else "disagreement"
            yield LogAnomaly(kind, f"{value} is at {' and '.join(map(_text, sorted(where)))}")


def _badly_read(reader: str, seen: LogContent) -> Iterator[LogAnomaly]:
    for (before, _), (place, value) in pairwise(seen):
        if place <= before:
            yield LogAnomaly("backwards", f"{reader} saw {value} at {_text(place)} after {_text(before)}")


def _followed(events: Sequence[LogEvent], content: LogContent) -> Iterator[LogAnomaly]:
    """Each reader saw, between its first record and its last, all that there is."""
    readers: dict[str, list[tuple[Place, str]]] = defaultdict(list)
    for event in events:
        if isinstance(event, RecordSeen):
            readers[event.reader].append((event.place, event.value))
    for reader, seen in readers.items():
        yield from _badly_read(reader, seen)
        first, last = min(seen)[0], max(seen)[0]
        there = {value for _place, value in seen}
        for place, value in content:
            if first < place < last and value not in there:
                yield LogAnomaly("gap", f"{reader} went past {value} at {_text(place)}")


def _reordered(events: Sequence[LogEvent], content: LogContent) -> Iterator[LogAnomaly]:
    """What was acknowledged before another record was handed over stands before that one."""
    places = {value: place for place, value in reversed(content)}
    last: tuple[Place, str] | None = None
    for event in events:
        if isinstance(event, RecordAcknowledged):
            last = max(last, (event.place, event.value)) if last is not None else (event.place, event.value)
        elif isinstance(event, RecordSent) and last is not None and event.value in places:
            place = places[event.value]
            if place < last[0]:
                yield LogAnomaly(
                    "reordered",
                    f"{event.value} is at {_text(place)}, and {last[1]} at {_text(last[0])} was there first",
                )


def _observed(events: Iterable[LogEvent], content: LogContent) -> Iterator[tuple[Place, str]]:
    """Each record at each place where anybody saw it, once for each."""
    seen = {(event.place, event.value) for event in events if isinstance(event, RecordAcknowledged | RecordSeen)}
    yield from sorted(seen | set(content))


def _text(place: Place) -> str:
    return "/".join(map(str, place))
