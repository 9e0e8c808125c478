"""What must hold of every simulation, whatever was done to it. Each check is small, and takes only what it judges.

Some are asked at the moment that something happens, so that a transcript ends where it went wrong; the others once
everything has been brought to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from scribengin.base.commit_log import CommitLog
from scribengin.log import DLSN


class Violation(AssertionError):
    """A promise of the engine was broken. `promise` names it, the same for every simulation that breaks it."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


class SeenRecords:
    """What readers of the sink have seen so far."""

    def __init__(self, *, of_all_streams: bool = True) -> None:
        """`of_all_streams`: they see everything at once, so that order holds over all streams. Else in each."""
        self.payloads: list[bytes] = []
        self._seen: set[tuple[int, bytes]] = set()
        self._last: dict[tuple[str, str], tuple[int, int]] = {}
        self._laps: dict[str, list[range]] = {}
        """Of each source that was rewound: which of its records are read, time after time."""
        self._of_all_streams = of_all_streams

    def rewound(self, source: str, read: int, first: int) -> None:
        """So many records of a source were read, and it is read on from another one. Those that are read again have to
        become visible again; those that are passed over need not."""
        laps = self._laps.setdefault(source, [range(_ENDLESS)])
        laps[-1] = range(laps[-1].start, max(read, laps[-1].start))
        laps.append(range(first, _ENDLESS))

    def read_once(self, source: str) -> int:
        """How many records of a source were read before it was rewound."""
        return max((lap.stop for lap in self._laps.get(source, ())[:-1]), default=0)

    def add(self, stream: str, payloads: Sequence[bytes]) -> None:
        """These are visible from now on. Raises Violation."""
        for payload in payloads:
            self._add(stream, payload, *self._read_at(payload))

    def passed_over(self, source: str, records: Mapping[int, bytes]) -> None:
        """A rewind goes on behind these records of a source, which were there and need not be seen."""

    def check_between(self) -> None:
        """At the end: what stands between the dataflows of a chain. Raises Violation."""

    def _read_at(self, payload: bytes) -> tuple[str, int]:
        return source_of(payload)

    def _add(self, stream: str, payload: bytes, source: str, number: int) -> None:
        laps = self._laps_of(source)
        lap = next((n for n, lap in enumerate(laps) if number in lap and (n, payload) not in self._seen), None)
        if lap is None:
            raise Violation("nothing is seen twice", f"{payload.decode()} became visible in {stream} once more")
        self._seen.add((lap, payload))
        self.payloads.append(payload)
        where = ("" if self._of_all_streams else stream, source)
        last = self._last.get(where, (0, -1))
        if (lap, number) < last:
            raise Violation("records keep their order", f"{payload.decode()} became visible after {last[1]}")
        self._last[where] = (lap, number)

    def missing(self, acknowledged: Sequence[bytes]) -> list[bytes]:
        """What was acknowledged and is not visible, as often as it has to be."""
        seen = self._seen
        if not self._laps:
            return [payload for payload in acknowledged if (0, payload) not in seen]
        missing = []
        for payload in acknowledged:
            source, number = source_of(payload)
            laps = enumerate(self._laps_of(source))
            missing += [payload for n, lap in laps if number in lap and (n, payload) not in seen]
        return missing

    def _laps_of(self, source: str) -> list[range]:
        return self._laps.get(source, _ONE_LAP)


class SeenAtTheEnd(SeenRecords):
    """What readers of the end of a chain have seen so far, where a later dataflow is rewound, too.

    Each record says which place of which log between the dataflows it was read at. So both dataflows are judged: of the
    places, each is read as often as the later one was rewound; and each record of the input stands at as many places as
    the first one was. Places are known of that were read, or passed over. A record that was lost between is at none.
    """

    def __init__(self) -> None:
        super().__init__()
        self._between: dict[str, dict[int, bytes]] = {}
        """What stands at each known place of a log: as the first dataflow has written it."""
        self._places: Counter[bytes] = Counter()
        """At how many."""

    def add(self, stream: str, payloads: Sequence[bytes]) -> None:
        super().add(stream, payloads)
        for payload in payloads:
            log, place = self._read_at(payload)
            self._stands_at(log, place, payload.partition(_READ_AT)[0])

    def passed_over(self, source: str, records: Mapping[int, bytes]) -> None:
        """Raises Violation."""
        for place, payload in records.items():
            self._stands_at(source, place, payload)

    def missing(self, acknowledged: Sequence[bytes]) -> list[bytes]:
        missing = []
        for log, records in self._between.items():
            laps = list(enumerate(self._laps_of(log)))
            for place, payload in records.items():
                told = told_of_place(payload, log, place)
                missing += [told for n, lap in laps if place in lap and (n, told) not in self._seen]
        missing += [p for p in acknowledged for _ in range(self._written(p) - self._places[p])]
        return missing

    def check_between(self) -> None:
        """At the end: the first dataflow has kept the order of what it wrote. Raises Violation."""
        for log, records in self._between.items():
            last: dict[str, int] = {}
            again: Counter[str] = Counter()
            for _, payload in sorted(records.items()):
                source, number = source_of(payload)
                again[source] += number <= last.get(source, -1)
                last[source] = number
                if again[source] >= len(self._laps_of(source)):
                    raise Violation("records keep their order", f"{payload.decode()} stands in {log} behind later ones")

    def _read_at(self, payload: bytes) -> tuple[str, int]:
        log, _, place = payload.partition(_READ_AT)[2].decode().partition(_PLACE)
        return log, place_number(*map(int, place.split("/")))

    def _stands_at(self, log: str, place: int, payload: bytes) -> None:
        known = self._between.setdefault(log, {})
        if place not in known:
            known[place] = payload
            self._places[payload] += 1
        if known[place] != payload:
            raise Violation("records stay as they are", f"{known[place].decode()} in {log} became {payload.decode()}")
        if self._places[payload] > self._written(payload):
            raise Violation("nothing is seen twice", f"{payload.decode()} stands in {log}, and elsewhere")

    def _written(self, payload: bytes) -> int:
        """How often the first dataflow has to write a record."""
        source, number = source_of(payload)
        return sum(number in lap for lap in self._laps_of(source))


class SeenAtSeveralEnds(SeenRecords):
    """What readers have seen at each end of dataflows that read the same: everything has to come out of each."""

    def __init__(self, ends: Sequence[str]) -> None:
        super().__init__()
        self._ends = {end: SeenRecords() for end in ends}

    def rewound(self, source: str, read: int, first: int) -> None:
        super().rewound(source, read, first)
        for seen in self._ends.values():
            seen.rewound(source, read, first)

    def add(self, stream: str, payloads: Sequence[bytes]) -> None:
        """Raises Violation."""
        self._ends[stream.partition("/")[0]].add(stream, payloads)

    def missing(self, acknowledged: Sequence[bytes]) -> list[bytes]:
        return [payload for seen in self._ends.values() for payload in seen.missing(acknowledged)]


_ENDLESS = 2**128
_ONE_LAP = [range(_ENDLESS)]
_READ_AT = b" of log "
_PLACE = ", DLSN "
_PART = 2**32


def place_number(segment: int, entry: int, slot: int) -> int:
    """A place in a log as a number, in the order of places."""
    return (segment * _PART + entry) * _PART + slot


def told_at(payload: bytes, place: str) -> bytes:
    """A record that also says where it was read: in the words that a log's reader has for that."""
    return payload + b" of " + place.encode()


def told_of_place(payload: bytes, log: str, place: int) -> bytes:
    """The same, by the number of the place."""
    segment, entry, slot = place // _PART // _PART, place // _PART % _PART, place % _PART
    return told_at(payload, f"log {log}, DLSN {segment}/{entry}/{slot}")


def payload_of(stream: str, number: int) -> bytes:
    """A record that says where it is from."""
    return f"{stream}:{number}".encode()


def source_of(payload: bytes) -> tuple[str, int]:
    """The stream and the number of a record."""
    stream, _, number = payload.decode().rpartition(":")
    return stream, int(number)


def told(payloads: Sequence[bytes]) -> str:
    """Records, for people."""
    names = [repr(payload)[2:-1] for payload in payloads]
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]}, ... {names[-1]} ({len(names)})"


def check_commit_log(path: str, before: CommitLog | None, after: CommitLog) -> None:
    """One change of a commit log. Raises Violation."""
    if before is None:
        return
    if after.epoch < before.epoch:
        raise Violation("fenced owners change nothing", f"{path}: epoch {before.epoch} became {after.epoch}")
    if after.epoch == before.epoch and after.owner != before.owner:
        raise Violation("fenced owners change nothing", f"{path}: {after.owner} wrote under {before.owner}'s epoch")
    if after.generation < before.generation:
        raise Violation(
            "fenced owners change nothing", f"{path}: generation {before.generation} became {after.generation}"
        )
    if after.epoch > before.epoch and (after.position, after.committed, after.round) != (
        before.position,
        before.committed,
        before.round,
    ):
        raise Violation("taking over decides nothing", f"{path}: what was committed changed with the epoch")
    if after.round < before.round:
        raise Violation("rounds go forward", f"{path}: round {before.round} became {after.round}")


def is_moved(before: CommitLog | None, after: CommitLog) -> bool:
    """Whether a commit log's position was changed by somebody who commits no round."""
    if before is None:
        return after.position is not None
    return (after.epoch, after.round) == (before.epoch, before.round) and after.position != before.position


def check_moved_together(moves: set[str], looked: Sequence[set[str]]) -> None:
    """Positions that were moved in one transaction are all that one rewind has looked at. Raises Violation."""
    if moves not in looked:
        raise Violation("streams are rewound as one", "; ".join(sorted(moves)))


def check_all_looked_at(streams: set[str], looked: set[str]) -> None:
    """One rewind is of all streams that the dataflow's tasks have read all the while. Raises Violation."""
    if not streams <= looked:
        raise Violation("streams are rewound as one", f"{', '.join(sorted(streams - looked))} would not be moved")


def check_nothing_lost(missing: Sequence[bytes]) -> None:
    """At the end. Raises Violation."""
    if missing:
        told = ", ".join(payload.decode() for payload in missing[:5])
        raise Violation("nothing acknowledged is lost", f"{len(missing)} records are not there: {told}")


def check_goes_on(what: str, waited_s: float, within_s: float) -> None:
    """What is waited for once faults end comes in bounded time. Raises Violation."""
    if waited_s > within_s:
        raise Violation("it goes on once faults end", f"after {within_s:g} s not: {what}")


def check_not_failed(state: str, error: str | None, mended: Sequence[str] = (), beside: Sequence[str] = ()) -> None:
    """No dataflow fails, but for what people mend: then each of its troubles says one of these words, or one that may
    stand `beside` and that nothing fails by. Raises Violation."""
    troubles = (error or "").split("\n\n")
    causes = [trouble for trouble in troubles if not any(word in trouble for word in beside)]
    if state == "failed" and not (causes and all(any(word in cause for word in mended) for cause in causes)):
        raise Violation("it ends as it was told", f"it is failed: {error}")


def check_forgotten(path: str, log: CommitLog, said: CommitLog | None = None) -> None:
    """Nobody deletes a commit log that an owner has had, with the epoch that fences off those before, unless that is
    `said` where streams are that are gone. Raises Violation."""
    if log.epoch > (0 if said is None else said.epoch):
        raise Violation("fenced owners change nothing", f"{path}: deleted with epoch {log.epoch} of {log.owner}")


def check_stopped(state: str, error: str | None) -> None:
    """At the end, every dataflow was stopped. Raises Violation."""
    if state != "stopped":
        raise Violation("it ends as it was told", f"it is {state}: {error}")


def check_passed_over(log: str, end: DLSN, there: DLSN) -> None:
    """A rewind that goes on behind some records has seen them: a log's readers see as much. Raises Violation."""
    if there < end:
        raise Violation("a rewind passes over what is there", f"{log}: to {end}, and it ends at {there}")


def check_nothing_staged(staged: Mapping[str, Sequence[str]]) -> None:
    """At the end. Raises Violation."""
    left = [f"{stream}: {', '.join(tokens)}" for stream, tokens in staged.items() if tokens]
    if left:
        raise Violation("what is staged is completed or dropped", "; ".join(left))


def check_recovered(stream: str, count: int, acknowledged: int) -> None:
    """Of a log that was taken from a writer that died: it has what that one acknowledged. Raises Violation."""
    if count < acknowledged:
        what = f"{stream} was recovered with {count} records, {acknowledged} were acknowledged"
        raise Violation("nothing acknowledged is lost", what)


def check_extended(stream: str, seen: Sequence[bytes], found: Sequence[bytes]) -> None:
    """At every look: readers of a stream find what they have seen, in that order, and then more. Raises Violation."""
    if list(found[: len(seen)]) != list(seen):
        same = next((n for n, pair in enumerate(zip(seen, found, strict=False)) if pair[0] != pair[1]), len(found))
        instead = told(found[same : same + 1]) or "nothing"
        what = f"record {same} was {told(seen[same : same + 1])}, and {instead} is there instead"
        raise Violation("what is seen stays", f"{stream}: {what}")


def check_written(stream: str, payloads: Sequence[bytes], written: Sequence[bytes]) -> None:
    """What becomes visible was a record of the input. Raises Violation."""
    other = [payload for payload in payloads if payload not in set(written)]
    if other:
        raise Violation("records stay as they are", f"{stream}: {told(other)} was never written")


def check_committed(stream: str, payloads: Sequence[bytes], committed: Mapping[str, int]) -> None:
    """What becomes visible was committed: each input stream was, or is being, up to there. Raises Violation."""
    early = [payload for payload in payloads if source_of(payload)[1] >= committed.get(source_of(payload)[0], 0)]
    if early:
        raise Violation("nothing is seen before it is committed", f"{told(early)} became visible in {stream}")


def check_still_there(stream: str, seen: Sequence[bytes], there: Sequence[bytes]) -> None:
    """At the end: a stream holds what its readers were given, in that order. Raises Violation."""
    if list(seen) != list(there):
        at = next((n for n, pair in enumerate(zip(seen, there, strict=False)) if pair[0] != pair[1]), None)
        where = f"{len(seen)} were seen, {len(there)} are there" if at is None else f"record {at} is another one"
        raise Violation("what is seen stays", f"{stream}: {where}")


def check_sound(stream: str, findings: Sequence[str]) -> None:
    """At the end: nothing is wrong with what is stored. Raises Violation."""
    if findings:
        raise Violation("what is stored is sound", f"{stream}: {'; '.join(findings)}")


def check_no_leftovers(ephemerals: Sequence[str], workers: Sequence[str], containers: Sequence[str]) -> None:
    """At the end. Raises Violation."""
    found = [*ephemerals, *workers, *containers]
    if found:
        raise Violation("nothing is left behind", ", ".join(found))


def check_nothing_left(nodes: Sequence[str]) -> None:
    """Once a dataflow was deleted. Raises Violation."""
    if nodes:
        raise Violation("nothing is left behind", ", ".join(nodes))


def check_stays(dataflow: str, before: Sequence[str], after: Sequence[str]) -> None:
    """Of a dataflow that was submitted again, nothing goes with the one before. Raises Violation."""
    gone = sorted(set(before) - set(after))
    if gone:
        raise Violation("another dataflow's nodes stay", f"of {dataflow}: {', '.join(gone)}")


def check_numbers_grow(dataflow: str, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """A dataflow of that name that was deleted has used what is below `before`. Raises Violation."""
    used = [f"{name} {after[name]} of {number}" for name, number in before.items() if after[name] < number]
    if used:
        raise Violation("numbers are used once", f"{dataflow} begins at {', '.join(used)}")


def check_launched_once(names: Sequence[str]) -> None:
    """Names of containers are never used twice. Raises Violation."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Violation("names are used once", ", ".join(twice))


def check_no_thread_died(errors: Sequence[BaseException]) -> None:
    """Of errors that nobody expected. Raises Violation."""
    if errors:
        raise Violation("threads do not die", "; ".join(map(repr, errors)))
