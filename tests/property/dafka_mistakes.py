"""Mistakes of protocol in Dafka's roles, put in one at a time: what schedules on a network that splits are there to
find.

As `simulation_mistakes`, which has those of rounds, masters and workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from scribengin.dafka.state import (
    ConsumerState,
    DafkaPartition,
    FollowerState,
    PartitionIntake,
    ProducerState,
    ReadStored,
    Send,
    StoreState,
)
from scribengin.dafka.state.kept import KeptRecords
from scribengin.dafka.wire import DirectBatch, DirectHead, Fetch, LiveBatch, Message, Truncated
from tests.property.simulation_mistakes import Mistake
from tests.scenario.dafka_world import World


class Told(NamedTuple):
    """The seed that caught it last, and what is said of it."""

    seed: int
    said: str


def forgets_before_min_acks(patch: pytest.MonkeyPatch) -> None:
    """A producer lets go of a record when the first store has it."""
    real = ProducerState.__init__

    def init(self: Any, partition: DafkaPartition, **said: Any) -> None:
        real(self, partition, **{**said, "acks_min": 1})

    patch.setattr(ProducerState, "__init__", init)


def counts_one_store_twice(patch: pytest.MonkeyPatch) -> None:
    """Each acknowledgement counts, whichever store it is from."""
    real = ProducerState._acknowledged
    told = iter(range(1 << 62))

    def acknowledged(self: Any, store: str, end: int) -> None:
        real(self, f"{next(told):016}, of {store}", end)

    patch.setattr(ProducerState, "_acknowledged", acknowledged)


def answers_with_one_too_many(patch: pytest.MonkeyPatch) -> None:
    """As the C store does."""
    real = StoreState._fetched

    def fetched(self: Any, fetch: Fetch) -> Any:
        more = (
            one._replace(records=one.records + 1) if isinstance(one, ReadStored) else one for one in real(self, fetch)
        )
        return list(more)

    patch.setattr(StoreState, "_fetched", fetched)


def answers_from_where_it_let_go(patch: pytest.MonkeyPatch) -> None:
    """As the C producer does: bytes of other records under the sequences that were asked for."""
    real = KeptRecords.between

    def between(self: Any, first: int, end: int) -> list[bytes]:
        return real(self, self.first, self.first + end - first)

    patch.setattr(KeptRecords, "between", between)


def answers_from_the_next_on(patch: pytest.MonkeyPatch) -> None:
    """A store leaves out the first record that was asked for."""
    real = StoreState._fetched

    def fetched(self: Any, fetch: Fetch) -> Any:
        return real(self, fetch._replace(sequence=fetch.sequence + 1))

    patch.setattr(StoreState, "_fetched", fetched)


def goes_live_over_a_gap(patch: pytest.MonkeyPatch) -> None:
    """Whoever has fetched what he was behind takes the next live record, whichever it is."""
    real = PartitionIntake.records

    def records(self: Any, first: int, contents: Sequence[bytes], now_s: float) -> list[bytes]:
        if first > self.next and self.has_begun and self._due_s is None:
            self.next = first
        return real(self, first, contents, now_s)

    patch.setattr(PartitionIntake, "records", records)


def takes_a_batch_beyond_a_gap(patch: pytest.MonkeyPatch) -> None:
    """A store looks at the place of single records alone."""
    real = StoreState._record

    def record(self: Any, message: Any, appends: Any, now_s: float) -> None:
        intake = self._intakes.get(DafkaPartition(message.subject, message.address))
        if intake is not None and isinstance(message, LiveBatch | DirectBatch) and message.sequence > intake.next:
            intake.next = message.sequence
        real(self, message, appends, now_s)

    patch.setattr(StoreState, "_record", record)


def takes_a_batch_whole(patch: pytest.MonkeyPatch) -> None:
    """Records of a batch that were there already come again with those that are new."""
    real = PartitionIntake.records

    def records(self: Any, first: int, contents: Sequence[bytes], now_s: float) -> list[bytes]:
        known = max(0, self.next - first)
        ready = real(self, first, contents, now_s)
        return [*contents[:known], *ready] if ready else ready

    patch.setattr(PartitionIntake, "records", records)


def forgets_acks_of_what_comes_again(patch: pytest.MonkeyPatch) -> None:
    """As the C store does: a producer whose acknowledgement got lost waits for ever."""
    real = StoreState._acks

    def acks(self: Any) -> Any:
        real(self)
        return []

    patch.setattr(StoreState, "_acks", acks)


def marks_no_tail(patch: pytest.MonkeyPatch) -> None:
    """A store says nothing of what it does not keep any more."""
    real = StoreState._fetched

    def fetched(self: Any, fetch: Fetch) -> Any:
        return [one for one in real(self, fetch) if not (isinstance(one, Send) and isinstance(one.message, Truncated))]

    patch.setattr(StoreState, "_fetched", fetched)


def marks_no_tail_where_nothing_is_left(patch: pytest.MonkeyPatch) -> None:
    """The same, of a log that was truncated to its end."""
    real = World._read

    def read(self: Any, reader: str, to: str, partition: DafkaPartition, asked: range) -> None:
        if self.disks[reader[:-1]][partition]:
            real(self, reader, to, partition, asked)

    patch.setattr(World, "_read", read)


def believes_the_first_who_keeps_nothing(patch: pytest.MonkeyPatch) -> None:
    """A store says that it does not keep what was asked for: the producer or another store may."""
    real = PartitionIntake.truncated

    def truncated(self: Any, first_kept: int) -> None:
        real(self, first_kept)
        if self._kept_from is not None and self.next < self._kept_from:
            self.halted_at = self._kept_from

    patch.setattr(PartitionIntake, "truncated", truncated)


def begins_behind_what_is_kept(patch: pytest.MonkeyPatch) -> None:
    """Who begins where nobody keeps the first records leaves out the first that is kept."""
    real = ConsumerState._gone

    def gone(self: Any, partition: DafkaPartition, intake: Any, first_kept: int, now_s: float) -> Any:
        more = intake._end > first_kept + 1
        return real(self, partition, intake, first_kept + more, now_s)

    patch.setattr(ConsumerState, "_gone", gone)


def says_that_less_is_kept(patch: pytest.MonkeyPatch) -> None:
    """A store of which the beginning was truncated says that it keeps one record less than it does."""
    real = StoreState._fetched

    def fetched(self: Any, fetch: Fetch) -> Any:
        return [
            one._replace(message=one.message._replace(sequence=one.message.sequence + 1))
            if isinstance(one, Send) and isinstance(one.message, Truncated)
            else one
            for one in real(self, fetch)
        ]

    patch.setattr(StoreState, "_fetched", fetched)


def fetches_once(patch: pytest.MonkeyPatch) -> None:
    """A fetch that was lost, or whose answer was, is not sent again."""
    real = PartitionIntake.missing

    def missing(self: Any, now_s: float, records_max: int | None = None) -> tuple[int, int] | None:
        if self._due_s is not None:
            self._due_s = now_s + 1.0
        return real(self, now_s, records_max)

    patch.setattr(PartitionIntake, "missing", missing)


def hears_no_heads(patch: pytest.MonkeyPatch) -> None:
    """What is lost at the end of what was published is not missed."""
    patch.setattr(PartitionIntake, "head", lambda _self, _sequence: None)


def keeps_what_a_reader_has_left(patch: pytest.MonkeyPatch) -> None:
    """A follower whose reader goes back gives it what it holds, from where it held it."""
    real = FollowerState.follow

    def follow(self: Any, partition: DafkaPartition, sequence: int, now_s: float) -> list[Send]:
        held = self._held.get(partition)
        back = held is not None and sequence < held.first
        return real(self, partition, held.first if back else sequence, now_s)

    patch.setattr(FollowerState, "follow", follow)


def believes_to_have_all_before_the_end(patch: pytest.MonkeyPatch) -> None:
    """A consumer that a store tells of the end of a partition stands there, whatever it was given."""
    real = ConsumerState._other

    def other(self: Any, message: Message, now_s: float) -> Any:
        done = real(self, message, now_s)
        if isinstance(message, DirectHead):
            intake = self._intakes.get(DafkaPartition(message.subject, message.address))
            if intake is not None:
                intake.next = max(intake.next, message.sequence + 1)
        return done

    patch.setattr(ConsumerState, "_other", other)


def goes_on_behind_what_failed(patch: pytest.MonkeyPatch) -> None:
    """A store whose log has failed wants what follows, and not again what could not be made durable."""

    def refuse(self: Any, partition: DafkaPartition, until_s: float) -> None:
        self._refused[partition] = until_s

    patch.setattr(StoreState, "refuse", refuse)


_STORES = "what is let go of, enough stores have"
_ASKED = "gets what it has not asked for"
_ORDER = "each record comes once, in order, as it was published"
_HOLE = "leaves a hole, or writes twice"
_BEGINS = "which nobody has told it"
_KEEPS = "and says that it does not"
_ACKS = "all is acknowledged"
_ALL = "gets all of"

DAFKA_MISTAKES: dict[Mistake, Told] = {
    forgets_before_min_acks: Told(0, _STORES),
    counts_one_store_twice: Told(0, _STORES),
    answers_with_one_too_many: Told(0, _ASKED),
    answers_from_where_it_let_go: Told(0, _ORDER),
    answers_from_the_next_on: Told(0, _ASKED),
    goes_live_over_a_gap: Told(2, _ORDER),
    takes_a_batch_beyond_a_gap: Told(0, _HOLE),
    takes_a_batch_whole: Told(1, _ORDER),
    forgets_acks_of_what_comes_again: Told(10, _ACKS),
    marks_no_tail: Told(2, _ALL),
    marks_no_tail_where_nothing_is_left: Told(18, _ALL),
    believes_the_first_who_keeps_nothing: Told(18, _ALL),
    begins_behind_what_is_kept: Told(21, _BEGINS),
    says_that_less_is_kept: Told(2, _KEEPS),
    fetches_once: Told(0, _ALL),
    hears_no_heads: Told(0, _ALL),
    keeps_what_a_reader_has_left: Told(3, _BEGINS),
    believes_to_have_all_before_the_end: Told(3, _ALL),
    goes_on_behind_what_failed: Told(1, _HOLE),
}
