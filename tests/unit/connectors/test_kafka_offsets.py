"""What partitions hold, as several readers of one process ask for it."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import cast

from scribengin.connectors.kafka.client.client import KafkaControl, Partition
from scribengin.connectors.kafka.client.ends import PartitionEnds
from scribengin.connectors.kafka.source.offsets import PartitionWatch
from scribengin.testing.clocks import ManualClock

OURS, OTHER = ("flights", 0), ("flights", 1)


class Cluster:
    """Knows the end of every partition that it is asked for."""

    def ends(self, asked: Collection[Partition], _isolation: str) -> dict[Partition, PartitionEnds]:
        return dict.fromkeys(asked, PartitionEnds(0, 5))


class OvertakenLock:
    """A lock whose holder is overtaken when it has let go for the second time."""

    def __init__(self, watch: PartitionWatch) -> None:
        self._lock = threading.Lock()
        self._watch = watch
        self._left = 2

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()
        self._left -= 1
        if self._left == 0:
            self._watch.remove(OURS)


def test_a_reader_that_is_closed_while_its_lag_is_asked_for_is_answered() -> None:
    watch = PartitionWatch(cast("KafkaControl", Cluster()), "read_committed", ManualClock())
    for partition in (OURS, OTHER):
        watch.add(partition)
    watch._lock = cast("threading.Lock", OvertakenLock(watch))
    assert watch.now(OURS) == PartitionEnds(0, 5)
    assert watch.now(OTHER) == PartitionEnds(0, 5)
