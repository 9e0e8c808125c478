"""What `scribengin dafka perf` measures: from a producer to consumers and stores, and from stores."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import NamedTuple

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.text.counting import many, which
from scribengin.dafka import DafkaConfig, DafkaConsumer, DafkaProducer, DafkaTower
from scribengin.errors import DafkaError
from scribengin_tools.logs.pacing import SILENCE_MAX_S, STAMP_BYTES, receive, send_paced

_ANY_PORT = "tcp://127.0.0.1:*"
_AT_ONCE = 1000
_READ_RECORDS = 65_536
_POLL_S = 0.5
_STORE_WAIT_S = 30.0
_LOOK = "look whether `scribengin dafka store` and `scribengin dafka tower` still run"


class DafkaSpeed(NamedTuple):
    """So many records of so many bytes each, in so many seconds."""

    records: int
    size: int
    seconds: float

    @property
    def records_s(self) -> float:
        """Records a second."""
        return self.records / self.seconds

    @property
    def megabytes_s(self) -> float:
        """Millions of bytes of content a second."""
        return self.records * self.size / self.seconds / 1e6

    def to_json(self) -> dict[str, float]:
        """As `--json` prints it."""
        return {"seconds": self.seconds, "records_s": self.records_s, "megabytes_s": self.megabytes_s}


class DafkaPace(NamedTuple):
    """At which rate records are published one by one, and for how many seconds."""

    per_s: int
    seconds: int = 3

    @property
    def records(self) -> int:
        """How many that are."""
        return self.per_s * self.seconds


class DafkaLatency(NamedTuple):
    """How long records were on their way to a consumer, in milliseconds, at so many a second."""

    per_s: int
    p50_ms: float
    p99_ms: float

    def to_json(self) -> dict[str, float]:
        """As `--json` prints it."""
        return self._asdict()


class DafkaFigures(NamedTuple):
    """What was measured, by its name."""

    topic: str
    speeds: Mapping[str, DafkaSpeed]
    latency: DafkaLatency


def measure(records: int, size: int, pace: DafkaPace) -> DafkaFigures:
    """How fast `records` of `size` bytes come to a consumer: `live` as they are published, then `fetched` from the
    producer's memory by one that joins later. That one's time begins when it is made. No store is asked."""
    topic = _new_topic()
    with tower_of_its_own() as addresses:
        config = _config(addresses, records + pace.records)
        with DafkaProducer(topic, config) as producer:
            with DafkaConsumer([topic], config) as consumer:
                producer.publish(b"they have met")
                _read(consumer, 1)
                begun_s = SYSTEM_CLOCK.monotonic_s()
                _publish(producer, records, size)
                _read(consumer, records)
                live_s = SYSTEM_CLOCK.monotonic_s() - begun_s
                ways = latency(producer, consumer, size, pace)
            begun_s = SYSTEM_CLOCK.monotonic_s()
            with DafkaConsumer([topic], config) as late:
                _read(late, records + 1)
                fetched_s = SYSTEM_CLOCK.monotonic_s() - begun_s
    speeds = {"live": DafkaSpeed(records, size, live_s), "fetched": DafkaSpeed(records, size, fetched_s)}
    return DafkaFigures(topic, speeds, ways)


def measure_stores(config: DafkaConfig, records: int, size: int, pace: DafkaPace) -> DafkaFigures:
    """How fast the stores of a network are: `published` until they have acknowledged all, then `stored`, as one reads
    it once the producer has gone. Between the two, how long records are on their way to a consumer while stores take
    them. Raises DafkaError where stores acknowledge nothing, or nothing comes from them, for 30 s."""
    topic = _new_topic()
    with DafkaProducer(topic, config) as producer:
        _await_stores(producer, config)
        speeds = {"published": published(producer, records, size)}
        with DafkaConsumer([topic], config) as consumer:
            _read(consumer, records + 1)
            ways = latency(producer, consumer, size, pace)
        _while_acknowledged(producer, producer.flush)
    with DafkaConsumer([topic], config) as late:
        speeds["stored"] = read_on(late, records, size)
    return DafkaFigures(topic, speeds, ways)


def published(producer: DafkaProducer, records: int, size: int) -> DafkaSpeed:
    """From the first record that is published to the last that stores have acknowledged. Raises DafkaError."""

    def publish() -> None:
        _publish(producer, records, size)
        producer.flush()

    begun_s = SYSTEM_CLOCK.monotonic_s()
    _while_acknowledged(producer, publish)
    return DafkaSpeed(records, size, SYSTEM_CLOCK.monotonic_s() - begun_s)


def read_on(consumer: DafkaConsumer, records: int, size: int) -> DafkaSpeed:
    """From when the first records have come to the last of so many. Raises DafkaError."""
    first = found = _taken(consumer, max(1, records // 10))
    begun_s = SYSTEM_CLOCK.monotonic_s()
    while found < records:
        found += _taken(consumer, _READ_RECORDS)
    return DafkaSpeed(found - first, size, SYSTEM_CLOCK.monotonic_s() - begun_s)


def latency(producer: DafkaProducer, consumer: DafkaConsumer, size: int, pace: DafkaPace) -> DafkaLatency:
    """How long records are on their way to a consumer who has read all before. A record has room for a time at least.
    Raises ServerDown where they do not come, and what publishing raises."""

    def poll() -> Iterable[bytes]:
        if sending.done():
            sending.result()  # what it raises is why records do not come
        return [record.content for record in consumer.read(_READ_RECORDS, _POLL_S)]

    with _beside(lambda: send_paced(producer.publish, pace.records, pace.per_s, max(size, STAMP_BYTES))) as sending:
        ways = receive(poll, pace.records)
        sending.result()
    return DafkaLatency(pace.per_s, ways["p50_ms"], ways["p99_ms"])


@contextmanager
def tower_of_its_own() -> Iterator[dict[str, str]]:
    """A tower on free ports of this machine: where it is, as the section `beacon` of roles says it."""
    listening = DafkaConfig.parse({"tower": {"sub_address": _ANY_PORT, "pub_address": _ANY_PORT}}, source="a tower")
    with DafkaTower(listening) as tower:
        yield {"sub_address": tower.sub_address, "pub_address": tower.pub_address}


def _config(addresses: Mapping[str, str], records: int) -> DafkaConfig:
    """Nothing is acknowledged, as there is no store: all of it fits into memory."""
    said = {
        "beacon": {**addresses, "interval": 100},
        "producer": {"terminate_unacked": True, "high_watermark": records + 1, "head_interval": 100},
        "consumer": {"offset_reset": "earliest", "high_watermark": records + 1},
    }
    return DafkaConfig.parse(said, source="scribengin dafka perf")


def _new_topic() -> str:
    return f"perf-{uuid.uuid4().hex[:12]}"


def _await_stores(producer: DafkaProducer, config: DafkaConfig) -> None:
    """Until as many stores as are wanted have the first record."""
    try:
        producer.publish(b"they have met").result(_STORE_WAIT_S)
    except TimeoutError:
        wanted, towers = config.producer.min_acks, ", ".join(config.beacon.pub_address)
        raise DafkaError(
            f"fewer than {wanted} stores have acknowledged a record within {_STORE_WAIT_S:g} s, at the tower "
            f"{towers}: start them with `scribengin dafka store`"
        ) from None


def _publish(producer: DafkaProducer, records: int, size: int) -> None:
    content = os.urandom(size)
    for first in range(0, records, _AT_ONCE):
        producer.publish_many([content] * min(_AT_ONCE, records - first))


def _read(consumer: DafkaConsumer, count: int) -> None:
    while count:
        count -= _taken(consumer, count)


def _taken(consumer: DafkaConsumer, records_max: int) -> int:
    """How many have come, one at least. Raises DafkaError."""
    found = len(consumer.read(records_max, SILENCE_MAX_S))
    if not found:
        raise DafkaError(f"no record has come for {SILENCE_MAX_S:g} s, and some are missing: {_LOOK}")
    return found


def _while_acknowledged(producer: DafkaProducer, publish: Callable[[], None]) -> None:
    """Publish, or wait for what was published, as long as stores go on acknowledging. Raises DafkaError."""
    with _beside(publish) as publishing:
        acked = -1
        while not wait([publishing], SILENCE_MAX_S).done:
            before, acked = acked, producer.next - producer.unacknowledged
            if acked == before:
                left = producer.unacknowledged
                raise DafkaError(
                    f"no store has acknowledged anything for {SILENCE_MAX_S:g} s, and {many(left, 'record')} "
                    f"{which(left, 'waits', 'wait')} for that: {_LOOK}"
                )
        publishing.result()


@contextmanager
def _beside(work: Callable[[], None]) -> Iterator[Future[None]]:
    """Work in a thread of its own. A block that raises does not wait for it: it ends when its producer is closed."""
    pool = ThreadPoolExecutor(1)
    try:
        yield pool.submit(work)
    finally:
        pool.shutdown(wait=False)
