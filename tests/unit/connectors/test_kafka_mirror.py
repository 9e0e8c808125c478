"""Positions shown in a consumer group: what is in the way is told with what there is to do, and stops nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from scribengin.connectors.kafka.client.client import KafkaControl, Partition, made_by
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig
from scribengin.connectors.kafka.source.mirror import GroupMirror
from scribengin.errors import ConfigInvalid, DataflowError, ScribenginError, SystemUnreachable

PLACE: Partition = ("t", 0)


class Admin:
    """Refuses to move a group: as a whole, or each of its partitions."""

    def __init__(self, code: int, *, by_partition: bool) -> None:
        self._error = KafkaError(code)
        self._by_partition = by_partition

    def alter_consumer_group_offsets(
        self, asked: Sequence[ConsumerGroupTopicPartitions], **_limits: object
    ) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        if self._by_partition:
            answer.set_result(SimpleNamespace(topic_partitions=[SimpleNamespace(error=self._error)]))
        else:
            answer.set_exception(KafkaException(self._error))
        return {asked[0].group_id: answer}

    def poll(self, _timeout_s: float) -> int:
        return 0


@pytest.mark.parametrize("by_partition", [True, False])
@pytest.mark.parametrize(
    ("code", "raised", "said"),
    [
        (KafkaError.UNKNOWN_MEMBER_ID, DataflowError, r"it has members of its own.* `group`.*`mirror_offsets: false`$"),
        (KafkaError.NON_EMPTY_GROUP, DataflowError, r"it has members of its own.* `group`.*`mirror_offsets: false`$"),
        (KafkaError.REBALANCE_IN_PROGRESS, DataflowError, r"it has members of its own"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, ConfigInvalid, r"permit Read of it.*`mirror_offsets: false`$"),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, SystemUnreachable, r"it is waited for"),
    ],
)
def test_a_group_that_cannot_be_moved_says_why(
    code: int, raised: type[ScribenginError], said: str, by_partition: bool
) -> None:
    with made_by("mirror:1", lambda _kind, _conf: Admin(code, by_partition=by_partition)):
        control = KafkaControl.of(KafkaConnectionConfig(bootstrap="mirror:1"))
        with pytest.raises(raised, match=rf"^Kafka at mirror:1, committing offsets of group g: .*{said}") as refused:
            control.commit_group("g", {PLACE: 5})
        assert "\n" not in str(refused.value)
        control.release()


class Cluster:
    """Answers each commit as it is told to, and knows what was committed."""

    def __init__(self) -> None:
        self.answers: list[ScribenginError | None] = []
        self.committed: list[int] = []

    def commit_group(self, _group: str, offsets: dict[Partition, int]) -> None:
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer
        self.committed += offsets.values()


def test_each_new_reason_is_told_once_and_again_after_it_had_passed(caplog: pytest.LogCaptureFixture) -> None:
    away, refused = SystemUnreachable("away"), ConfigInvalid("refused")
    cluster = Cluster()
    mirror = GroupMirror(cast("KafkaControl", cluster), "g")
    with caplog.at_level(logging.WARNING):
        for answer in (away, away, refused, refused, None, refused):
            cluster.answers.append(answer)
            mirror._pending[PLACE] = 5
            mirror._commit()
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["away", "refused", "refused"]
    assert mirror.failures == 5
    assert cluster.committed == [5]


def test_what_could_not_be_shown_is_shown_later_unless_it_has_moved() -> None:
    cluster = Cluster()
    cluster.answers = [SystemUnreachable("away"), None, None]
    with closing(GroupMirror(cast("KafkaControl", cluster), "g")) as mirror:
        mirror._pending[PLACE] = 5
        mirror._commit()
        mirror._pending[PLACE] = 6
        mirror._commit()
    assert cluster.committed == [6]
