"""What a sink of Dafka has outside of the engine: a producer that publishes committed rounds, and what stores have."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from itertools import chain
from typing import Protocol

from scribengin.connectors.dafka.config import DafkaSinkConfig, roles_config
from scribengin.dafka import DafkaFollower, DafkaPartition, DafkaProducer
from scribengin.errors import DataflowError, StoresAhead, SystemUnreachable

_HEAD_INTERVAL_MS = 1000
_OUTSTANDING_MAX = 64
"""Batches that are published before the first of them is acknowledged."""
_INTERVALS = 4
"""Whoever has a record has told of it after so many intervals of beacons."""
_READ_RECORDS = 10_000
_READ_BYTES = 8 * 1024 * 1024


class RoundPublisher(Protocol):
    """Publishes the rounds of one stream, in order."""

    def publish(
        self, partition: DafkaPartition, first: int, contents: Iterable[list[bytes]], *, published: int
    ) -> None:
        """Publish records from the sequence `first` on, and return once enough stores have them. What was published
        before, all of it before the sequence `published`, comes with the same contents. Raises SystemUnreachable, and
        DataflowError where stores have more than that."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


class DafkaPublisher:
    """Publishes through a producer of its own, which goes on as the one that was before."""

    def __init__(self, sink: str, config: DafkaSinkConfig) -> None:
        self._sink = sink
        self._config = config
        head_interval = min(_HEAD_INTERVAL_MS, config.beacon.interval)
        said = {"min_acks": config.min_acks, "head_interval": head_interval, "terminate_unacked": True}
        self._roles = roles_config(config, producer=said)
        self._producer: DafkaProducer | None = None

    def publish(
        self, partition: DafkaPartition, first: int, contents: Iterable[list[bytes]], *, published: int
    ) -> None:
        """As RoundPublisher."""
        before = self._producer
        producer = self._going_on(partition, first, published)
        try:
            if producer is not before and first >= published:
                contents = self._with_the_first_alone(producer, contents)
            self._publish(producer, contents)
        except StoresAhead as error:
            raise DataflowError(
                f"sink '{self._sink}': {error}. If the registry is that of an older backup, what was committed since "
                "is lost to it: give the sink another `log`, which makes it another producer"
            ) from error

    def _with_the_first_alone(self, producer: DafkaProducer, contents: Iterable[list[bytes]]) -> Iterable[list[bytes]]:
        """Publish the first record, and return the rest once stores have taken it. Nothing was published before by
        which a store would have told that it has more: it would take all for what it has."""
        rest = iter(contents)
        batch = next(rest)
        self._await(producer.publish_many(batch[:1]))
        return chain([batch[1:]] if len(batch) > 1 else [], rest)

    def _publish(self, producer: DafkaProducer, contents: Iterable[list[bytes]]) -> None:
        fit = self._roles.producer.high_watermark
        waited: deque[Future[range]] = deque()
        for batch in contents:
            while waited and (len(waited) > _OUTSTANDING_MAX or producer.unacknowledged + len(batch) > fit):
                self._await(waited.popleft())  # beyond that, `publish_many` would wait for stores without an end
            waited.append(producer.publish_many(batch))
        for future in waited:
            self._await(future)

    def close(self) -> None:
        """Leave the network. Idempotent."""
        if self._producer is not None:
            self._producer.close()

    def _going_on(self, partition: DafkaPartition, first: int, published: int) -> DafkaProducer:
        if self._producer is not None and (self._producer.partition != partition or self._producer.next != first):
            self._producer.close()
            self._producer = None
        if self._producer is None:
            resume = (partition.address, first)
            self._producer = DafkaProducer(self._config.topic, self._roles, resume=resume, published=published)
        return self._producer

    def _await(self, future: Future[range]) -> None:
        """Until stores have a batch. A large round takes its time as long as they acknowledge one after the other."""
        try:
            future.result(self._config.ack_timeout_s)
        except TimeoutError:
            said = self._config
            stores = "no store has" if said.min_acks == 1 else f"fewer than {said.min_acks} stores have"
            towers = ", ".join(said.beacon.pub_address)
            raise SystemUnreachable(
                f"sink '{self._sink}': {stores} taken a round of topic '{said.topic}' in {said.ack_timeout_s:g} s "
                f"(towers: {towers}): start one"
            ) from None


def published(
    config: DafkaSinkConfig, partition: DafkaPartition, end: int, *, looking: bool = False
) -> Iterator[tuple[int, list[bytes]]]:
    """What consumers get of the partition now, from its first record that is kept: the sequence of the first of some,
    and these; none where nobody keeps what was before. Records before `end` were committed:
    they are waited for. Those that nobody has after `ack_timeout_s` wait for stores themselves.

    Who is only `looking` waits so long for what somebody has told of. For the rest he waits as long as it takes to hear
    of all who are there. Raises SystemUnreachable where nobody answers, or nobody sends what somebody has told of."""
    with closing(DafkaFollower(partition.subject, roles_config(config))) as follower:
        at = 0
        while at < end:
            follower.follow(partition, at)
            if not _comes(config, partition, at, follower, looking=looking):
                _refuse_unsent(config, partition, at, follower)
                return
            held = follower.held(partition, _READ_RECORDS, _READ_BYTES)
            yield held.first, held.contents
            at = held.first + len(held.contents)


def _comes(
    config: DafkaSinkConfig, partition: DafkaPartition, at: int, follower: DafkaFollower, *, looking: bool
) -> bool:
    """Whether the record comes, or it is told that nobody keeps it."""
    if looking:
        follower.settle()
        beacon = config.beacon
        told_s = min(config.ack_timeout_s, max(beacon.timeout, _INTERVALS * beacon.interval) / 1000)
        if follower.wait(partition, at, told_s):
            return True
        if follower.end_of(partition) <= at:
            return False
    return follower.wait(partition, at, config.ack_timeout_s)


def _refuse_unsent(config: DafkaSinkConfig, partition: DafkaPartition, at: int, follower: DafkaFollower) -> None:
    if follower.welcomed_s is None:
        raise SystemUnreachable(f"no tower answers at {', '.join(config.beacon.pub_address)}: start one")
    if at < (end := follower.end_of(partition)):
        raise SystemUnreachable(
            f"topic '{partition.subject}', producer {partition.address}: nobody has sent record {at} in "
            f"{config.ack_timeout_s:g} s, and {end - 1} was published: start the stores that have it"
        )
