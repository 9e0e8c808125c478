"""Mistakes of protocol in our own sinks, put in one at a time: what simulations of a sink are there to find.

As `simulation_mistakes`, which has those of rounds, masters and workers, and of the simulation's own sink. Those of the
log as a sink are in `simulation_log_mistakes`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from scribengin.base.commit_log import CommitDescriptor, Decision
from scribengin.connectors.contract import PAYLOAD
from scribengin.connectors.dafka.sink import DafkaSinkWriter
from scribengin.connectors.files.sink.segments import segment_keys
from scribengin.connectors.files.sink.writer import FileSinkWriter
from scribengin.connectors.kafka.sink.transaction import KafkaTransaction
from scribengin.filesystems.contract import NewFile
from scribengin.testing.simulation.plan import Fault, Plan, drawn
from scribengin.testing.simulation.streams.files import FilesInMemory
from scribengin.testing.simulation.streams.kafka import KafkaInMemory
from scribengin.testing.simulation.world import MakeSystem
from tests.contract.connectors.test_sink_source_suites import (
    forgets_to_complete_in_recover,
    leaves_what_the_dead_staged,
    lets_the_stale_delete,
    shows_in_prepare,
)
from tests.property.simulation_log_mistakes import Aim, aimed
from tests.property.simulation_mistakes import Mistake
from tests.property.test_simulation_dafka import STOPS as DAFKA_STOPS
from tests.property.test_simulation_dafka import DafkaInMemory, _Publisher

FILE_STOPS = ("files.complete:after", "files.merge_decide:after", "files.merge_place:after", "files.merge_remove:after")
DECISIONS = (
    *("round.prepare:after", "sink.prepare:after", "sink.commit:before", "sink.commit:after"),
    *("sink.recover_decision:after", "sink.establish:after"),
)


def ends_in_the_cache(patch: pytest.MonkeyPatch) -> None:
    """Files are named in a round before they are durable."""
    patch.setattr(NewFile, "sync", lambda self: None)


def drops_what_was_decided(patch: pytest.MonkeyPatch) -> None:
    """A new owner cleans up before it looks what of it was committed."""

    def recover(self: Any, committed: CommitDescriptor | None) -> None:
        for key in segment_keys(self._files.names(self._layout.staged)):
            self._drop(key.name)
        real(self, committed)

    real = FileSinkWriter.recover
    patch.setattr(FileSinkWriter, "recover", recover)


def asks_for_no_decision(patch: pytest.MonkeyPatch) -> None:
    """A new owner takes what was prepared for never committed."""

    def recover(self: KafkaTransaction) -> None:
        real(self)

    real = KafkaTransaction.recover
    patch.setattr(KafkaTransaction, "recover", recover)


def leaves_the_decision_out(patch: pytest.MonkeyPatch) -> None:
    """The transaction commits records alone: nobody can ask later whether it has."""

    def prepare(self: KafkaTransaction, decision: Decision) -> None:
        self.flush()
        self._prepared = decision

    patch.setattr(KafkaTransaction, "prepare", prepare)


def commits_before_the_registry_knows(patch: pytest.MonkeyPatch) -> None:
    """The transaction is committed when it should be prepared: before the registry says that there is one."""

    def prepare(self: Any, decision: Decision) -> None:
        real_prepare(self, decision)
        real_commit(self)

    real_prepare, real_commit = KafkaTransaction.prepare, KafkaTransaction.commit
    patch.setattr(KafkaTransaction, "prepare", prepare)
    patch.setattr(KafkaTransaction, "commit", lambda _self: None)


def commits_what_it_should_abort(patch: pytest.MonkeyPatch) -> None:
    """A round that is too large for the registry was prepared, and is committed instead of rolled back."""

    def abort(self: KafkaTransaction) -> None:
        if self._prepared is not None:
            self.commit()

    patch.setattr(KafkaTransaction, "abort", abort)


def publishes_what_is_staged(patch: pytest.MonkeyPatch) -> None:
    """Stores have a round before it is committed."""

    def write(self: Any, batch: Any) -> None:
        self.shown = [*getattr(self, "shown", []), *batch.column(PAYLOAD).to_pylist()]
        real_write(self, batch)

    def prepare(self: Any) -> CommitDescriptor | None:
        prepared = real_prepare(self)
        if prepared is not None:
            first = int(prepared.data["first"])
            self._publisher.publish(self._partition, first, [self.shown], published=first + prepared.records)
        self.shown = []
        return prepared

    real_write, real_prepare = DafkaSinkWriter.write, DafkaSinkWriter.prepare_commit
    patch.setattr(DafkaSinkWriter, "write", write)
    patch.setattr(DafkaSinkWriter, "prepare_commit", prepare)


def publishes_for_no_other(patch: pytest.MonkeyPatch) -> None:
    """A new owner leaves unpublished what the one before it has committed."""

    def complete(self: Any, committed: CommitDescriptor) -> None:
        if self.recovers:
            self._published = int(committed.data["first"]) + committed.records
        real_complete(self, committed)

    def recover(self: Any, committed: CommitDescriptor | None) -> None:
        self.recovers = True
        real_recover(self, committed)
        self.recovers = False

    real_complete, real_recover = DafkaSinkWriter.complete_commit, DafkaSinkWriter.recover
    patch.setattr(DafkaSinkWriter, "complete_commit", complete)
    patch.setattr(DafkaSinkWriter, "recover", recover)


def publishes_under_new_sequences(patch: pytest.MonkeyPatch) -> None:
    """Whatever is published again follows what stores have: they cannot know it."""

    def publish(self: Any, partition: Any, _first: int, contents: Iterable[list[bytes]], *, published: int) -> None:
        real(self, partition, len(self._stored[partition]), contents, published=published)

    real = _Publisher.publish
    patch.setattr(_Publisher, "publish", publish)


class SinkAim(Aim):
    """The seed that caught a mistake last, into which sink, what is said of it, and the faults that it does harm at."""

    def __init__(self, seed: int, sink: tuple[MakeSystem, tuple[str, ...]], said: str, *where: tuple[Any, str]) -> None:
        super().__init__(seed, *where)
        self.make_system, self._stops = sink
        self.said = said

    def plan(self, seed: int) -> Plan:
        """The plan of a seed."""
        return (
            aimed(seed, self.where, "sink", self._stops)
            if self.where
            else drawn(seed, "sink", self._stops, lagging=False)
        )


class AimAtARollback(SinkAim):
    """Rounds are too large for the registry, for a moment, just when one is prepared."""

    def plan(self, seed: int) -> Plan:
        plan = super().plan(seed)
        little = Fault("registry takes little", "sink.prepare_commit:after", random.Random(seed).randint(1, 8), 0.3)
        return replace(plan, faults=(*plan.faults, little))


_FILES = (FilesInMemory, FILE_STOPS)
_KAFKA = (KafkaInMemory, DECISIONS)
_DAFKA = (DafkaInMemory, DAFKA_STOPS)

SINK_MISTAKES: dict[Mistake, SinkAim] = {
    shows_in_prepare: SinkAim(0, _FILES, "nothing is seen before it is committed"),
    forgets_to_complete_in_recover: SinkAim(5, _FILES, "nothing acknowledged is lost"),
    leaves_what_the_dead_staged: SinkAim(7, _FILES, "what is staged is completed or dropped"),
    lets_the_stale_delete: SinkAim(7, _FILES, "", *(("zombie", "sink.recover:before"),) * 2),
    drops_what_was_decided: SinkAim(5, _FILES, ""),
    ends_in_the_cache: SinkAim(17, _FILES, "the disk lost it, restore it from elsewhere|records stay as they are"),
    asks_for_no_decision: SinkAim(4, _KAFKA, "is prepared, and only .* can say whether it was committed there"),
    leaves_the_decision_out: SinkAim(0, _KAFKA, "says that round .* was committed, and the registry knows of round"),
    commits_before_the_registry_knows: SinkAim(0, _KAFKA, "nothing is seen before it is committed"),
    commits_what_it_should_abort: AimAtARollback(1, _KAFKA, "nothing is seen before it is committed"),
    publishes_what_is_staged: SinkAim(1, _DAFKA, "nothing is seen before it is committed"),
    publishes_for_no_other: SinkAim(4, _DAFKA, "nothing acknowledged is lost"),
    publishes_under_new_sequences: SinkAim(0, _DAFKA, "nothing is seen twice"),
}
