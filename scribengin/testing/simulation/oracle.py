"""What must hold of every simulation, whatever was done to it. Each check is small, and takes only what it judges.

Some are asked at the moment that something happens, so that a transcript ends where it went wrong; the others once
everything has been brought to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from scribengin.base.commit_log import CommitLog


class Violation(AssertionError):
    """A promise of the engine was broken. `promise` names it, the same for every simulation that breaks it."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


class SeenRecords:
    """What readers of the sink have seen so far."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self._seen: set[bytes] = set()
        self._last: dict[str, int] = {}

    def add(self, stream: str, payloads: Sequence[bytes]) -> None:
        """These are visible from now on. Raises Violation."""
        for payload in payloads:
            if payload in self._seen:
                raise Violation("nothing is seen twice", f"{payload.decode()} became visible in {stream} once more")
            self._seen.add(payload)
            self.payloads.append(payload)
            source, number = source_of(payload)
            if number < self._last.get(source, -1):
                raise Violation(
                    "records keep their order", f"{payload.decode()} became visible after {self._last[source]}"
                )
            self._last[source] = number

    def missing(self, acknowledged: Sequence[bytes]) -> list[bytes]:
        """What was acknowledged and is not visible."""
        return [payload for payload in acknowledged if payload not in self._seen]


def payload_of(stream: str, number: int) -> bytes:
    """A record that says where it is from."""
    return f"{stream}:{number}".encode()


def source_of(payload: bytes) -> tuple[str, int]:
    """The stream and the number of a record."""
    stream, _, number = payload.decode().rpartition(":")
    return stream, int(number)


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


def check_nothing_lost(missing: Sequence[bytes]) -> None:
    """At the end. Raises Violation."""
    if missing:
        told = ", ".join(payload.decode() for payload in missing[:5])
        raise Violation("nothing acknowledged is lost", f"{len(missing)} records are not there: {told}")


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


def check_launched_once(names: Sequence[str]) -> None:
    """Names of containers are never used twice. Raises Violation."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Violation("names are used once", ", ".join(twice))


def check_no_thread_died(errors: Sequence[BaseException]) -> None:
    """Of errors that nobody expected. Raises Violation."""
    if errors:
        raise Violation("threads do not die", "; ".join(map(repr, errors)))
