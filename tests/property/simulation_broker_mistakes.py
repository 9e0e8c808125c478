"""Mistakes about single brokers of Kafka that fail, put in one at a time: what simulations on topics are there to find.

As `simulation_mistakes`, which has those of rounds, masters and workers.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from scribengin.base.commit_log import Decision
from scribengin.connectors.kafka.client.client import KafkaControl
from scribengin.connectors.kafka.sink import transaction
from scribengin.connectors.kafka.sink.transaction import KafkaTransaction
from scribengin.connectors.kafka.source import source
from scribengin.connectors.kafka.source.position import KafkaPosition, begin_of
from scribengin.connectors.kafka.source.reading import PartitionConsumer
from scribengin.errors import DecisionUnknown
from scribengin.testing.simulation.plan import Fault, FaultKind, Plan, drawn
from tests.property.simulation_mistakes import Mistake


def take_a_moved_coordinator_for_an_abort(patch: pytest.MonkeyPatch) -> None:
    """The broker that was to commit leads no more, or does not answer: whoever comes next is told that it did not."""
    aborted: dict[str, Decision | None] = {}

    def commit(self: Any) -> None:
        try:
            real_commit(self)
        except DecisionUnknown:
            aborted[self._name] = self._last
            raise

    def recover(self: Any) -> Decision | None:
        found: Decision | None = real_recover(self)
        return aborted.pop(self._name, found)

    real_commit, real_recover = KafkaTransaction.commit, KafkaTransaction.recover
    patch.setattr(KafkaTransaction, "commit", commit)
    patch.setattr(KafkaTransaction, "recover", recover)


def take_a_group_that_moves_for_one_without_a_decision(patch: pytest.MonkeyPatch) -> None:
    """Whoever does not coordinate the group, or does not know it yet, has nothing to say, which is taken for none."""

    def committed_offset(member: Any, place: TopicPartition) -> TopicPartition:
        try:
            (found,) = member.committed([place], 1.0)
        except KafkaException as error:
            if error.args[0].code() not in transaction._MOVING:
                raise
            return TopicPartition(place.topic, place.partition, -1)
        return found

    patch.setattr(transaction, "committed_offset", committed_offset)


def go_on_at_a_shorter_end(patch: pytest.MonkeyPatch) -> None:
    """A leader that ends before what was read is believed: what comes behind that end is taken for new."""

    def begin(position: KafkaPosition, ends: Any, policy: Any, *, what: str) -> Any:
        if ends.end < position.offset:
            return KafkaPosition(ends.end, ends.topic_id), f"{what}: it goes on where the partition ends"
        return begin_of(position, ends, policy, what=what)

    patch.setattr(source, "begin_of", begin)


def take_a_shorter_end_for_the_end_of_a_range(patch: pytest.MonkeyPatch) -> None:
    """Where a leader says that its partition ends, the range that was planned is over."""

    def take(self: Any, message: Any) -> None:
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF and self._is_here(message):
            self._passed = 2**62
            return
        real(self, message)

    real = PartitionConsumer._take
    patch.setattr(PartitionConsumer, "_take", take)


def take_a_partition_without_a_leader_for_an_empty_one(patch: pytest.MonkeyPatch) -> None:
    """A source goes on from where a partition would end that nobody leads: at its beginning."""

    def ends(self: Any, partitions: Any, isolation: str) -> Any:
        found = real(self, partitions, isolation)
        led = {topic: end for (topic, _), end in found.items() if not isinstance(end, Exception)}  # with the topic's id
        lost = {p: replace(led[p[0]], begin=0, end=0) for p in found if p[0] in led}
        return {p: lost.get(p, end) if isinstance(end, Exception) else end for p, end in found.items()}

    real = KafkaControl.ends
    patch.setattr(KafkaControl, "ends", ends)
    go_on_at_a_shorter_end(patch)


class BrokerAim:
    """The seed that caught a mistake last, what is said of it, and the faults that it does harm at."""

    def __init__(self, seed: int, said: str, *where: tuple[FaultKind, str]) -> None:
        self.seed = seed
        self.said = said
        self.where = where

    def plan(self, seed: int) -> Plan:
        """The plan of a seed, with brokers that are likely to fail where the mistake is."""
        chance, plan = random.Random(seed), drawn(seed, "kafka", rewound=False, lagging=False)
        faults = tuple(
            Fault(kind, at, chance.randint(1, 8), 0.0 if kind == "kill" else round(chance.uniform(1.0, 4.0), 3))
            for kind, at in self.where
        )
        return replace(plan, records=30, faults=(*plan.faults, *faults))


_AT_A_DECISION: tuple[tuple[FaultKind, str], ...] = (("broker fails unheard", "sink.commit:before"),) * 4
_AT_A_RECOVERY: tuple[tuple[FaultKind, str], ...] = (
    *((("kill", "round.prepare:after"),) * 2),
    *((("broker fails", "kafka.init:after"),) * 4),
)
_AT_A_LOOK: tuple[tuple[FaultKind, str], ...] = (
    *((("broker fails", "sink.prepare:after"),) * 2),
    *((("broker fails", "sink.commit:after"),) * 2),
    ("broker fails", "sink.write:after"),
)

_READ_AGAIN = "nothing is seen twice|nothing is seen before it is committed"

BROKER_MISTAKES: dict[Mistake, BrokerAim] = {
    take_a_moved_coordinator_for_an_abort: BrokerAim(6, "nothing is seen twice", *_AT_A_DECISION),
    take_a_group_that_moves_for_one_without_a_decision: BrokerAim(
        15, "is prepared, and only .* can say whether it was committed there", *_AT_A_RECOVERY
    ),
    go_on_at_a_shorter_end: BrokerAim(2, _READ_AGAIN, *_AT_A_LOOK),
    take_a_shorter_end_for_the_end_of_a_range: BrokerAim(0, "nothing acknowledged is lost", *_AT_A_LOOK),
    take_a_partition_without_a_leader_for_an_empty_one: BrokerAim(23, _READ_AGAIN, *_AT_A_LOOK),
}
