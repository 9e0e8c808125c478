"""Topics of a Kafka cluster as a source: every partition is a stream, and a position is an offset of it.

What is asked of the cluster is in client.py and looking.py, waiting in watching.py, reading in reading.py; here it is
decided what a round reads.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

import pyarrow as pa

from scribengin.base.clock import Clock
from scribengin.base.diagnostics import tagged
from scribengin.base.model import JsonObject, Position
from scribengin.base.names import a_few, natural
from scribengin.connectors.contract import (
    PlannedRange,
    RoundLimits,
    Source,
    SourceStreamDescriptor,
    SourceStreamReader,
    StartAt,
)
from scribengin.connectors.kafka.client.client import KafkaControl, Partition
from scribengin.connectors.kafka.client.ends import PartitionEnds
from scribengin.connectors.kafka.source.columns import SCHEMA
from scribengin.connectors.kafka.source.config import EARLIEST, LATEST, KafkaSourceConfig, time_ms
from scribengin.connectors.kafka.source.hanging import HangingTransaction
from scribengin.connectors.kafka.source.mirror import GroupMirror
from scribengin.connectors.kafka.source.offsets import PartitionWatch
from scribengin.connectors.kafka.source.position import KafkaPosition, begin_of, lost_records
from scribengin.connectors.kafka.source.reading import KafkaSplit, Reading
from scribengin.connectors.kafka.source.watching import Watch
from scribengin.errors import ConfigInvalid, PositionTruncated, ScribenginError, SourceMissing

_LOG = logging.getLogger(__name__)

SPLIT_BYTES = 8 * 1024 * 1024
_SAMPLE_RECORDS = 100
_SAMPLES_KEPT = 4
_RECORD_BYTES = 1024
"""What a record is taken to have when none can be looked at."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the readers of one source have in common."""

    config: KafkaSourceConfig
    cluster: KafkaControl
    looks: PartitionWatch
    watch: Watch
    mirror: GroupMirror | None
    clock: Clock


class KafkaSource(Source):
    """The topics that the configuration means."""

    def __init__(
        self, name: str, config: KafkaSourceConfig, dataflow: str, clock: Clock, has_tasks: Callable[[], bool]
    ) -> None:
        """`has_tasks`: whether the dataflow has been split already, so that what is found now is new.

        Raises ConfigInvalid.
        """
        self._name = name
        self._config = config
        self._has_tasks = has_tasks
        self._cluster = KafkaControl.of(config)
        looks = PartitionWatch(self._cluster, config.isolation, clock)
        group = config.group or f"scribengin-{dataflow}-{name}"
        self._shared = Shared(
            config=config,
            cluster=self._cluster,
            looks=looks,
            watch=Watch(config, config.isolation, looks),
            mirror=GroupMirror(self._cluster, group) if config.mirror_offsets else None,
            clock=clock,
        )
        self._closed = False

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    @property
    def record_bytes_max(self) -> int | None:
        return self._config.record_bytes_max

    def streams(self) -> list[SourceStreamDescriptor]:
        """Raises SourceMissing, ConfigInvalid, SystemUnreachable."""
        there = self._cluster.partitions()
        topics = sorted((topic for topic in there if self._config.means(topic)), key=natural)
        self._refuse_missing(topics, there)
        partitions = [(topic, number) for topic in topics for number in range(there[topic])]
        self._refuse_unknown(partitions)
        data = self._data(partitions)
        return [SourceStreamDescriptor(source=self._name, name=_stream(p), data=data.get(p, {})) for p in partitions]

    def open_reader(self, stream: SourceStreamDescriptor) -> SourceStreamReader:
        return KafkaStreamReader(self._shared, stream)

    def position_at(self, stream: SourceStreamDescriptor, at: StartAt, before: Position | None = None) -> Position:
        topic, _, number = stream.name.rpartition("/")
        partition: Partition = (topic, int(number))
        ends = self._cluster.ends([partition], self._config.isolation)[partition]
        if isinstance(ends, ScribenginError):
            raise ends
        if at.kind == "dlsn":
            raise ConfigInvalid(f"source '{self._name}': a place in a topic is an offset, and no DLSN")
        offset = {"earliest": ends.begin, "latest": ends.end, "offset": int(at.value) if at.kind == "offset" else 0}
        if at.kind == "time":
            found = self._cluster.offset_at(partition, int(at.value), self._config.isolation)
            return KafkaPosition(ends.end if found is None else found, ends.topic_id).to_position()
        if not ends.begin <= offset[at.kind] <= ends.end:
            raise ConfigInvalid(
                f"source '{self._name}', partition {stream.name}: offsets {ends.begin} to {ends.end} are there, and "
                f"{at.value} is none of them"
            )
        return KafkaPosition(offset[at.kind], ends.topic_id).to_position()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._shared.watch.close()
        if self._shared.mirror is not None:
            self._shared.mirror.close()
        self._cluster.release()

    def _refuse_missing(self, topics: Collection[str], there: Collection[str]) -> None:
        missing = [f"'{topic}'" for topic in self._config.topics if topic not in there]
        if not missing and not topics:
            missing = [f"that matches '{self._config.pattern}'"]
        if missing:
            names = sorted((topic for topic in there if not topic.startswith("__")), key=natural)
            raise SourceMissing(
                f"source '{self._name}': there is no topic {', '.join(missing)} at {self._config.bootstrap} (there "
                f"are: {a_few(names)}); correct `topics` or `pattern`, create the topic, "
                "or permit the source's user to see it"
            )

    def _refuse_unknown(self, partitions: Collection[Partition]) -> None:
        """Offsets for what is not read are a mistake, and one that would go unseen."""
        for key, place in (("start", self._config.start), ("until", self._config.until)):
            named = [(t, n) for t, of_topic in place.items() for n in of_topic] if isinstance(place, dict) else []
            if unknown := next((p for p in named if p not in partitions), None):
                raise ConfigInvalid(
                    f"source '{self._name}': `{key}` names partition {_stream(unknown)}, which is none of its "
                    f"{len(partitions)} partitions"
                )

    def _data(self, partitions: list[Partition]) -> dict[Partition, JsonObject]:
        """With `latest`, where each partition ends when the dataflow is split for the first time."""
        if LATEST not in (self._config.start, self._config.until) or self._has_tasks():
            return {}
        found = {}
        for partition, ends in self._cluster.ends(partitions, self._config.isolation).items():
            if isinstance(ends, ScribenginError):
                raise ends
            found[partition] = {"latest": ends.end}
        return found


class KafkaStreamReader(SourceStreamReader):
    """Reads one partition."""

    def __init__(self, shared: Shared, stream: SourceStreamDescriptor) -> None:
        topic, _, number = stream.name.rpartition("/")
        self._shared = shared
        self._config = shared.config
        self._partition: Partition = (topic, int(number))
        self._latest = int(stream.data.get("latest", 0))
        """The end when the dataflow was first split; 0 for a partition that came later."""
        self._what = f"source '{stream.source}', partition {stream.name}"
        self._reading = Reading.of(self._config)
        self._sizes: deque[int] = deque(maxlen=_SAMPLES_KEPT)
        self._time_bound: int | None = None
        self._hanging = HangingTransaction(
            self._what,
            f"kafka-transactions.sh --bootstrap-server {shared.config.bootstrap} abort --topic {topic} "
            f"--partition {number}",
            shared.clock,
            lambda: shared.cluster.written(self._partition),
        )
        self._closed = threading.Event()
        shared.looks.add(self._partition)

    def initial_position(self) -> Position:
        """Raises ConfigInvalid and PositionTruncated for offsets that are not there, and what `plan` raises."""
        ends, start = self._shared.looks.now(self._partition), self._config.start
        if start == EARLIEST:
            return self._at(ends.begin, ends)
        if start == LATEST:
            return self._at(max(self._latest, ends.begin), ends)
        if isinstance(start, dict):
            return self._at(self._explicit(start, ends), ends)
        found = self._shared.cluster.offset_at(self._partition, time_ms(start), self._config.isolation)
        return self._at(ends.end if found is None else found, ends)

    def plan(self, position: Position, limits: RoundLimits) -> PlannedRange | None:
        wanted = KafkaPosition.parse(position, what=self._what)
        ends = self._shared.looks.beyond(self._partition, wanted.offset)
        begin, told = begin_of(wanted, ends, self._config.on_expired, what=self._what)
        if told is not None:
            _LOG.warning(told, extra=tagged("records_skipped"))
        end = self._bounded(ends.end)
        if begin.offset >= end:
            moved = told is not None  # a place that was chosen anew is committed, though nothing is there to read
            return PlannedRange(position, begin.to_position(), 0, ()) if moved else None
        splits = self._splits(begin.offset, end, ends.topic_id, limits)
        records = splits[-1].end - begin.offset
        return PlannedRange(position, self._at(splits[-1].end, ends), records, tuple(splits))

    def wait(self, position: Position, timeout_s: float) -> bool:
        offset = KafkaPosition.parse(position, what=self._what).offset
        if self._is_at_bound(offset):
            self._closed.wait(timeout_s)
            return False
        return self._shared.watch.wait(self._partition, offset, timeout_s)

    def lag(self, position: Position) -> int:
        """Offsets, not records: where a topic is compacted or written in transactions, there are less of these. What a
        transaction that hangs holds back is among them."""
        offset = KafkaPosition.parse(position, what=self._what).offset
        ends = self._shared.looks.now(self._partition)
        end = self._bounded(self._hanging.end(ends.end))
        return max(0, end - max(offset, ends.begin))

    def refuse_gone(self, position: Position) -> None:
        wanted = KafkaPosition.parse(position, what=self._what)
        # `on_expired` would pass over what is there, or begin later.
        if lost := lost_records(wanted, self._shared.looks.now(self._partition)):
            raise PositionTruncated(f"{self._what}: {lost}")

    def ended(self, position: Position) -> bool:
        """Never without `until`."""
        return self._is_at_bound(KafkaPosition.parse(position, what=self._what).offset)

    def committed(self, position: Position) -> None:
        """Let the consumer group show it."""
        if self._shared.mirror is not None:
            offset = KafkaPosition.parse(position, what=self._what).offset
            self._shared.mirror.show(self._partition, offset)

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._shared.watch.drop(self._partition)
            self._shared.looks.remove(self._partition)

    def _at(self, offset: int, ends: PartitionEnds) -> Position:
        return KafkaPosition(offset, ends.topic_id).to_position()

    def _explicit(self, start: dict[str, dict[int, int]], ends: PartitionEnds) -> int:
        topic, number = self._partition
        offset = start.get(topic, {}).get(number, ends.begin)
        if offset > ends.end:
            raise ConfigInvalid(
                f"{self._what}: `start` says offset {offset}, and the partition ends at {ends.end}; correct it"
            )
        return begin_of(KafkaPosition(offset), ends, self._config.on_expired, what=self._what)[0].offset

    # -- where reading ends

    def _bound(self) -> int | None:
        """The offset that ends it, if there is one, and if it is known already."""
        until = self._config.until
        if until is None:
            return None
        if until == LATEST:
            return self._latest
        if isinstance(until, dict):
            return until.get(self._partition[0], {}).get(self._partition[1])
        if self._time_bound is None:
            self._time_bound = self._shared.cluster.offset_at(self._partition, time_ms(until), self._config.isolation)
        return self._time_bound

    def _bounded(self, end: int) -> int:
        """The end, or the bound if that is before it. The bound is asked for after the end was, as it must be."""
        bound = self._bound()
        return end if bound is None else min(end, bound)

    def _is_at_bound(self, offset: int) -> bool:
        until, bound = self._config.until, self._bound()
        if bound is not None or until is None or isinstance(until, dict):
            return bound is not None and offset >= bound
        if self._shared.clock.now_ms() <= time_ms(until) or offset < self._shared.looks.now(self._partition).end:
            return False
        return offset >= self._shared.cluster.written(self._partition)  # an open transaction may hold earlier records

    # -- how much is read

    def _splits(self, begin: int, end: int, topic_id: str, limits: RoundLimits) -> list[KafkaSplit]:
        end = self._limited(begin, end, topic_id, limits)
        each = max(1, SPLIT_BYTES // self._size)
        return [self._split(first, min(first + each, end), topic_id) for first in range(begin, end, each)]

    def _limited(self, begin: int, end: int, topic_id: str, limits: RoundLimits) -> int:
        """Where the limits end a range. Kafka does not say how large records are, so some of them are looked at: the
        first ever, and the last ones of every larger range."""
        end = min(end, begin + limits.records_max)
        if not self._sizes:
            self._sample(begin, end, topic_id)
        end = min(end, begin + max(1, limits.bytes_max // self._size))
        if end - begin > _SAMPLE_RECORDS:
            self._sample(end - _SAMPLE_RECORDS, end, topic_id)
            end = min(end, begin + max(1, limits.bytes_max // self._size))
        return end

    @property
    def _size(self) -> int:
        return max(self._sizes, default=_RECORD_BYTES)

    def _sample(self, begin: int, end: int, topic_id: str) -> None:
        size = self._split(begin, end, topic_id).sample(_SAMPLE_RECORDS)
        if size is not None:
            self._sizes.append(size)

    def _split(self, begin: int, end: int, topic_id: str) -> KafkaSplit:
        return KafkaSplit(
            reading=self._reading,
            topic=self._partition[0],
            topic_id=topic_id,
            partition=self._partition[1],
            start=begin,
            end=end,
            records=end - begin,
            size_bytes=(end - begin) * self._size,
        )


def _stream(partition: Partition) -> str:
    return f"{partition[0]}/{partition[1]}"
