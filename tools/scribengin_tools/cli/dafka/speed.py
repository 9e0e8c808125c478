"""What `scribengin dafka perf` measures: from a producer to a consumer through a tower, all on free loopback ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dafka import DafkaConfig, DafkaConsumer, DafkaProducer, DafkaTower

_ANY_PORT = "tcp://127.0.0.1:*"
_TOPIC = "perf"
_AT_ONCE = 1000


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


def measure(records: int, size: int) -> dict[str, DafkaSpeed]:
    """How fast `records` of `size` bytes come to a consumer: `live` as they are published, then `fetched` from the
    producer's memory by one that joins later. That one's time begins when it is made."""
    with tower_of_its_own() as addresses:
        config = _config(addresses, records)
        with DafkaProducer(_TOPIC, config) as producer:
            with DafkaConsumer([_TOPIC], config) as consumer:
                producer.publish(b"they have met")
                _read(consumer, 1)
                begun_s = SYSTEM_CLOCK.monotonic_s()
                content = bytes(size)
                for first in range(0, records, _AT_ONCE):
                    producer.publish_many([content] * min(_AT_ONCE, records - first))
                _read(consumer, records)
                live_s = SYSTEM_CLOCK.monotonic_s() - begun_s
            begun_s = SYSTEM_CLOCK.monotonic_s()
            with DafkaConsumer([_TOPIC], config) as late:
                _read(late, records + 1)
                fetched_s = SYSTEM_CLOCK.monotonic_s() - begun_s
    return {"live": DafkaSpeed(records, size, live_s), "fetched": DafkaSpeed(records, size, fetched_s)}


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


def _read(consumer: DafkaConsumer, count: int) -> None:
    while count:
        count -= len(consumer.read(count))
