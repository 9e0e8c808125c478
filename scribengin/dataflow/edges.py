"""Which dataflow reads what another one writes, told from their configs alone, and whether another number of tasks
would let it see records out of order.

A sink and a source meet where they name the same logs, topic or directory. How many streams a sink will have is not
known here, so a pattern that matches any of the first STREAMS_TRIED is one that matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase

from scribengin.connectors import AnySinkConfig, AnySourceConfig
from scribengin.connectors.files import FileSinkConfig, FileSourceConfig
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.log.source import LogSinkConfig, LogSourceConfig
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import ConfigInvalid, DataflowNotFound, DescriptorUnreadable
from scribengin.log.metadata.names import WILDCARD
from scribengin_registry.contract import Registry

STREAMS_TRIED = 1000


@dataclass(frozen=True, slots=True)
class Edge:
    """What `writer` writes to its sink is read by `reader` as its source. `place` names it for people."""

    writer: str
    sink: str
    place: str
    reader: str
    source: str


def edges_of(flows: Mapping[str, DataflowConfig]) -> Iterator[Edge]:
    """Who reads what whom, by their configs."""
    for writer, writing in flows.items():
        for sink_name, sink in writing.sinks.items():
            for reader, reading in flows.items():
                for source_name, source in reading.sources.items():
                    if meets(sink, source):
                        yield Edge(writer, sink_name, place_of(sink), reader, source_name)


def place_of(endpoint: AnySinkConfig | AnySourceConfig) -> str:
    """What a source or a sink names, in a few words."""
    if isinstance(endpoint, LogSinkConfig):
        return f"log {endpoint.log.strip('/')}"
    if isinstance(endpoint, LogSourceConfig):
        return f"log {endpoint.logs}"
    if isinstance(endpoint, KafkaSinkConfig):
        return f"topic {endpoint.topic}"
    if isinstance(endpoint, KafkaSourceConfig):
        return f"topic {', '.join(endpoint.topics) or endpoint.pattern}"
    if isinstance(endpoint, FileSinkConfig | FileSourceConfig):
        return f"files {endpoint.path}"
    return "table of Spark"


def meets(sink: AnySinkConfig, source: AnySourceConfig) -> bool:
    """Whether the source reads what the sink writes."""
    if isinstance(sink, LogSinkConfig) and isinstance(source, LogSourceConfig):
        return sink.namespace == source.namespace and _matches_a_stream(source.logs, sink.log.strip("/"))
    if isinstance(sink, KafkaSinkConfig) and isinstance(source, KafkaSourceConfig):
        return same_cluster(sink.bootstrap, source.bootstrap) and source.means(sink.topic)
    if isinstance(sink, FileSinkConfig) and isinstance(source, FileSourceConfig):
        return f"{source.path.rstrip('/')}/".startswith(f"{sink.path.rstrip('/')}/")
    return False


def unawaited(flows: Mapping[str, DataflowConfig], writer: str) -> Edge | None:
    """An edge behind `writer`, right behind it or further on, whose reader nobody waits for when streams go on in
    another task (followers.py): what is read there is no log, or is not held back. None: everybody is waited for."""
    edges, found = tuple(edges_of(flows)), [writer]
    for flow in found:  # which grows
        for edge in (edge for edge in edges if edge.writer == flow):
            source = flows[edge.reader].sources[edge.source]
            if not isinstance(source, LogSourceConfig) or not source.retention_hold:
                return edge
            found += [edge.reader] if edge.reader not in found else []
    return None


def reordering(view: DataflowView, tasks: int | None) -> str | None:
    """Why the dataflow's tasks cannot become that many while it runs: a dataflow of this registry reads what this one
    writes, or what comes of that, and nobody would wait until it has read the earlier records. Of a config that cannot
    be read nothing is known."""
    flows = dict(_configs(view.registry, [view.dataflow]))
    if view.dataflow not in flows or flows[view.dataflow].tasks == tasks:
        return None
    flows |= _configs(view.registry, dataflow_names(view.registry))
    edge = unawaited(flows, view.dataflow)
    if edge is None:
        return None
    edit = f"scribengin config set {view.dataflow} tasks={'' if tasks is None else tasks}"
    return (
        f"dataflow '{edge.reader}' reads {edge.place}, which '{edge.writer}' writes, and nobody waits for it: it might "
        f"see records of a stream out of order. Let both end, in their order, then `{edit}` and `start` them; or go "
        f"ahead with `{edit} --force`"
    )


def _configs(registry: Registry, dataflows: Iterable[str]) -> Iterator[tuple[str, DataflowConfig]]:
    for name in dataflows:
        with suppress(DataflowNotFound, DescriptorUnreadable, ConfigInvalid):
            yield name, DataflowView(registry, name).config_in_force().value


def _matches_a_stream(pattern: str, log: str) -> bool:
    """Whether the pattern matches any of `<log>/0` and so on. Of a hundred dataflows nearly all pairs differ before the
    first wildcard already, and trying a thousand names of each would take seconds."""
    begun, streams = WILDCARD.split(pattern, maxsplit=1)[0], f"{log}/"
    if not (streams.startswith(begun) or begun.startswith(streams)):
        return False
    return any(fnmatchcase(f"{streams}{k}", pattern) for k in range(STREAMS_TRIED))


def same_cluster(one: str, other: str) -> bool:
    """Whether two lists of brokers name one."""
    return bool(set(one.split(",")) & set(other.split(",")))
