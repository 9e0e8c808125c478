"""`scribengin verify`: tracking records written to the first sources, looked for in the last sinks.

Everything is read as readers of these systems see it, from its beginning, batch by batch.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.names import a_few
from scribengin.connectors import AnySinkConfig, AnySourceConfig, Environment, open_sink, open_source
from scribengin.connectors.contract import Attempt, RoundLimits
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.log.source import LogSinkConfig, LogSourceConfig
from scribengin.connectors.spark import SparkSinkConfig, SparkSourceConfig
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigInvalid, SourceMissing
from scribengin.log import LogNamespace
from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.graph import graph_of
from scribengin.operations.chain.registry import ChainDescriptor
from scribengin.operations.verify.tracking import SinkRecords, Verdict, tracking_payload, verdict
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeMissing

_LIMITS = RoundLimits(100_000, 16 * 1024 * 1024)
_BATCH = 5_000
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class StreamEnds:
    """Where records enter and leave: `(dataflow's name, source's or sink's name, its configuration)`."""

    sources: tuple[tuple[str, str, AnySourceConfig], ...]
    sinks: tuple[tuple[str, str, AnySinkConfig], ...]


def ends_of(registry: Registry, chain: ChainDescriptor) -> StreamEnds:
    """The sources of a chain that none of its dataflows feeds, and the sinks that none of them reads."""
    views = {member.key: DataflowView(registry, member.dataflow) for member in chain.members}
    flows = {key: view.config_in_force().value for key, view in views.items()}
    graph = graph_of(ChainConfig(name=chain.name, dataflows=flows))
    read = {(edge.writer, edge.sink) for edge in graph.edges}
    return StreamEnds(
        tuple(
            (f.name, name, s)
            for key, f in flows.items()
            for name, s in f.sources.items()
            if not graph.is_fed(key, name)
        ),
        tuple(
            (f.name, name, f.sinks[name]) for key, f in flows.items() for name in f.outputs if (key, name) not in read
        ),
    )


def ends_of_dataflow(config: DataflowConfig) -> StreamEnds:
    """All sources and sinks of one dataflow, but for that of bad records."""
    return StreamEnds(
        tuple((config.name, name, source) for name, source in config.sources.items()),
        tuple((config.name, name, config.sinks[name]) for name in config.outputs),
    )


def generate(registry: Registry, ends: StreamEnds, count: int) -> int:
    """Append `count` tracking records to every stream of every source; returns to how many streams.

    Raises ConfigInvalid before anything is written (a source is neither logs nor topics), SourceMissing, and what
    writing raises.
    """
    targets: dict[tuple[str, str], AnySourceConfig] = {}
    for dataflow, name, config in ends.sources:
        if not isinstance(config, LogSourceConfig | KafkaSourceConfig):
            raise ConfigInvalid(
                f"source '{name}' of '{dataflow}' is of kind {config.kind}: records are generated in logs and topics "
                "only; without --generate, what is there is verified"
            )
        where = config.namespace if isinstance(config, LogSourceConfig) else config.bootstrap
        environment = Environment(registry=registry, dataflow=dataflow, looking=True)
        with closing(open_source(name, config, environment)) as source:
            for stream in source.streams():
                targets.setdefault((where, stream.name), config)
    generators = {where: secrets.token_hex(4) for where, _ in targets}
    for (where, target), config in targets.items():
        batches = _tracking_batches(generators[where], target, count)
        if isinstance(config, LogSourceConfig):
            _append_to_log(registry, config, target, batches)
        elif isinstance(config, KafkaSourceConfig):
            _append_to_partition(config, target, batches)
    return len(targets)


def verify(registry: Registry, ends: StreamEnds, within_s: float) -> Verdict:
    """Read everything, again and again until nothing is missing or `within_s` seconds have passed."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + within_s
    while True:
        found = _verify_once(registry, ends)
        if (found.complete and found.chunks) or SYSTEM_CLOCK.monotonic_s() >= deadline_s:
            return found
        threading.Event().wait(_LOOK_S)


def _verify_once(registry: Registry, ends: StreamEnds) -> Verdict:
    outputs = [_read_sink(registry, *sink) for sink in ends.sinks]
    sources = SinkRecords()
    for dataflow, name, config in ends.sources:  # after the outputs: what comes meanwhile is not there yet
        if not isinstance(config, SparkSourceConfig):
            for stream, payloads in _read_source(registry, dataflow, name, config):
                sources.add(stream, payloads)
    return verdict(sources, outputs)


def _read_sink(registry: Registry, dataflow: str, name: str, config: AnySinkConfig) -> SinkRecords:
    output = SinkRecords()
    if isinstance(config, SparkSinkConfig):
        raise ConfigInvalid(f"sink '{name}' of '{dataflow}' is a table of Spark, which verify does not read")
    if isinstance(config, LogSinkConfig | KafkaSinkConfig):
        own = re.compile(rf"{re.escape(config.log.strip('/'))}/\d+" if isinstance(config, LogSinkConfig) else ".*")
        for log, payloads in _read_source(registry, dataflow, name, _as_source(config), own):
            output.add(log, payloads)
        return output
    environment = Environment(registry=registry, dataflow=dataflow, looking=True)
    with closing(open_sink(name, config, environment)) as sink:
        for stream in sink.streams(_streams_ever(registry, sink.resource)):
            for batch in sink.committed(stream):
                output.add(stream.name, _payloads(batch, dataflow, name))
    return output


def _payloads(batch: pa.RecordBatch, dataflow: str, sink: str) -> list[bytes | None]:
    """The payloads of what a sink of columns (Parquet) holds. Raises ConfigInvalid where no column is called so."""
    columns = batch.schema.names
    column = batch.column("payload") if columns.count("payload") == 1 else None
    if column is not None and column.type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        return list(column.cast(pa.large_binary()).to_pylist())
    raise ConfigInvalid(
        f"sink '{sink}' of '{dataflow}' writes the columns {a_few(columns)}, and verify reads records, which are in a "
        "column `payload` of text or bytes: give the output one, or look into the files with a tool of columns"
    )


def _as_source(config: LogSinkConfig | KafkaSinkConfig) -> AnySourceConfig:
    """What the sink writes, to be read: by all streams at once, which share partitions in a topic."""
    if isinstance(config, LogSinkConfig):
        return LogSourceConfig(kind="log", logs=f"{config.log.strip('/')}/*", namespace=config.namespace)
    return KafkaSourceConfig.parse({"kind": "kafka", "topics": [config.topic], **_connection(config)}, source="verify")


def _connection(config: KafkaConnectionConfig) -> dict[str, object]:
    return {key: getattr(config, key) for key in KafkaConnectionConfig.model_fields}


def _read_source(
    registry: Registry, dataflow: str, name: str, config: AnySourceConfig, wanted: re.Pattern[str] | None = None
) -> Iterator[tuple[str, list[bytes | None]]]:
    """All that is there, by stream."""
    whole = {"start": "earliest", "until": None, "mirror_offsets": False}
    config = config.model_copy(update={key: value for key, value in whole.items() if key in type(config).model_fields})
    environment = Environment(registry=registry, dataflow=dataflow, looking=True)
    with closing(open_source(name, config, environment)) as source:
        if "payload" not in source.schema.names:
            return
        try:
            streams = source.streams()
        except SourceMissing:
            return
        for stream in streams:
            if wanted is not None and not wanted.fullmatch(stream.name):
                continue
            with closing(source.open_reader(stream)) as reader:
                position = reader.initial_position()
                while (plan := reader.plan(position, _LIMITS)) is not None:
                    for batch in (batch for split in plan.splits for batch in split.read()):
                        yield stream.name, batch.column("payload").to_pylist()
                    position = plan.end


def _streams_ever(registry: Registry, resource: str) -> int:
    """How many streams the sink has had, those of former tasks included."""
    try:
        names = registry.children(paths.sink_resource(resource))
    except NodeMissing:
        return 0
    return max((int(name) + 1 for name in names if name.isdecimal()), default=0)


def _tracking_batches(generator: str, chunk: str, count: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, count, _BATCH):
        numbers = range(first, min(first + _BATCH, count))
        payloads = [tracking_payload(generator, chunk, number) for number in numbers]
        yield pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])


def _append_to_log(registry: Registry, config: LogSourceConfig, log: str, batches: Iterable[pa.RecordBatch]) -> None:
    with (
        LogNamespace.open(config.namespace, registry=registry) as namespace,
        namespace.open_writer(log) as writer,
    ):
        for batch in batches:
            writer.write_bulk(batch).result()


def _append_to_partition(config: KafkaSourceConfig, stream: str, batches: Iterable[pa.RecordBatch]) -> None:
    from scribengin.connectors.kafka.sink.records import Target  # its client is not installed everywhere
    from scribengin.connectors.kafka.sink.topic import Topic
    from scribengin.connectors.kafka.sink.writing import AtLeastOnceWriter

    topic, _, number = stream.rpartition("/")
    facts = Topic(config, topic).facts()
    if facts is None:
        raise SourceMissing(f"there is no topic {topic} at {config.bootstrap} any more")
    target = Target(topic, facts.partitions, int(number), facts.bytes_max, by_key=False, tombstones=False)
    value = {"kind": "kafka", "topic": topic, "guarantee": "at_least_once", **_connection(config)}
    made = KafkaSinkConfig.parse(value, source="verify")
    with closing(AtLeastOnceWriter(target, made, Attempt(owner="verify", epoch=0, commit_log=""))) as writer:
        for batch in batches:
            writer.write(batch)
            writer.prepare_commit()
