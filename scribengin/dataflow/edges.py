"""Which dataflow reads what another one writes, told from their configs alone, and whether another number of tasks
would let it see records out of order.

A sink and a source meet where they name the same logs, topic or directory: the source's configuration says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import ConfigInvalid, DataflowNotFound, DescriptorUnreadable
from scribengin_registry.contract import Registry


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
                    if source.meets(sink.endpoint()):
                        yield Edge(writer, sink_name, str(sink.endpoint()), reader, source_name)


def unawaited(flows: Mapping[str, DataflowConfig], writer: str) -> Edge | None:
    """An edge behind `writer`, right behind it or further on, whose reader nobody waits for when streams go on in
    another task (followers.py): what is read there is no log, or is not held back. None: everybody is waited for."""
    edges, found = tuple(edges_of(flows)), [writer]
    for flow in found:  # which grows
        for edge in (edge for edge in edges if edge.writer == flow):
            if not flows[edge.reader].sources[edge.source].awaited:
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
