"""`scribengin verify`: tracking records written to the first sources, looked for in the last sinks.

Everything is read as readers of these systems see it, from its beginning, batch by batch.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.names import a_few
from scribengin.base.threads import pause
from scribengin.connectors import KINDS, AnySinkConfig, AnySourceConfig, Environment, open_sink, open_source
from scribengin.connectors.contract import RoundLimits
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigInvalid, SourceMissing
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
            (f.name, name, f.sinks[name])
            for key, f in flows.items()
            for name in _delivered_to(f)
            if (key, name) not in read
        ),
    )


def ends_of_dataflow(config: DataflowConfig) -> StreamEnds:
    """All sources and sinks of one dataflow, but for that of bad records."""
    return StreamEnds(
        tuple((config.name, name, source) for name, source in config.sources.items()),
        tuple((config.name, name, config.sinks[name]) for name in _delivered_to(config)),
    )


def _delivered_to(config: DataflowConfig) -> list[str]:
    """The sinks in which a record has arrived: late ones, too, but not that of bad records."""
    return [name for name in config.sinks if name != config.errors.sink]


def generate(registry: Registry, ends: StreamEnds, count: int) -> int:
    """Append `count` tracking records to every stream of every source; returns to how many streams.

    Raises ConfigInvalid before anything is written (a source is neither logs nor topics), SourceMissing, and what
    writing raises.
    """
    targets: dict[tuple[str, str], AnySourceConfig] = {}
    for dataflow, name, config in ends.sources:
        if KINDS[config.kind].append is None:
            raise ConfigInvalid(
                f"source '{name}' of '{dataflow}' is of kind {config.kind}: records are generated in logs and topics "
                "only; without --generate, what is there is verified"
            )
        with closing(open_source(name, config, _looking(registry, dataflow))) as source:
            for stream in source.streams():
                targets.setdefault((config.endpoint().system, stream.name), config)
    generators = {system: secrets.token_hex(4) for system, _ in targets}
    for (system, target), config in targets.items():
        if (append := KINDS[config.kind].append) is not None:
            append(registry, config, target, _tracking_batches(generators[system], target, count))
    return len(targets)


def verify(registry: Registry, ends: StreamEnds, within_s: float) -> Verdict:
    """Read everything, again and again until nothing is missing or `within_s` seconds have passed."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + within_s
    while True:
        found = _verify_once(registry, ends)
        if (found.complete and found.chunks) or SYSTEM_CLOCK.monotonic_s() >= deadline_s:
            return found
        pause(_LOOK_S)


def _verify_once(registry: Registry, ends: StreamEnds) -> Verdict:
    outputs = [_read_sink(registry, *sink) for sink in ends.sinks]
    sources = SinkRecords()
    for dataflow, name, config in ends.sources:  # after the outputs: what comes meanwhile is not there yet
        if not KINDS[config.kind].spark_alone:
            for stream, payloads in _read_source(registry, dataflow, name, config):
                sources.add(stream, payloads)
    return verdict(sources, outputs)


def _read_sink(registry: Registry, dataflow: str, name: str, config: AnySinkConfig) -> SinkRecords:
    output = SinkRecords()
    if KINDS[config.kind].spark_alone:
        raise ConfigInvalid(f"sink '{name}' of '{dataflow}' is a {config.endpoint().noun}, which verify does not read")
    if (back := config.read_back()) is not None:
        for stream, payloads in _read_source(registry, dataflow, name, back.source, re.compile(back.streams)):
            output.add(stream, payloads)
        return output
    with closing(open_sink(name, config, _looking(registry, dataflow))) as sink:
        for written in sink.streams(_streams_ever(registry, sink.resource)):
            for batch in sink.committed(written):
                output.add(written.name, _payloads(batch, dataflow, name))
            for batch in sink.unreachable(written):
                output.add_unreachable(_payloads(batch, dataflow, name))
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


def _read_source(
    registry: Registry, dataflow: str, name: str, config: AnySourceConfig, wanted: re.Pattern[str] | None = None
) -> Iterator[tuple[str, list[bytes | None]]]:
    """All that is there, by stream."""
    whole = {"start": "earliest", "until": None, "mirror_offsets": False}
    config = config.model_copy(update={key: value for key, value in whole.items() if key in type(config).model_fields})
    with closing(open_source(name, config, _looking(registry, dataflow))) as source:
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


def _looking(registry: Registry, dataflow: str) -> Environment:
    return Environment(registry=registry, dataflow=dataflow, nodes=paths.STREAM_NODES, looking=True)


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
