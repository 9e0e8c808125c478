"""Which dataflow of a chain feeds which, told from its configuration alone. Pure: nothing is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from scribengin.base.text.counting import many
from scribengin.connectors import AnySourceConfig
from scribengin.connectors.contract import Endpoint
from scribengin.connectors.log.source import NOUN as LOG
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edges import Edge, edges_of
from scribengin.operations.chain.config import ChainConfig


@dataclass(frozen=True, slots=True)
class ChainGraph:
    """A chain as it flows: dataflows in the order of `order`, no writer after one of its readers, and its edges.

    `problems` are what is wrong with it, a line each. With a cycle there is no such order, and `order` is the file's.
    """

    order: tuple[str, ...]
    edges: tuple[Edge, ...]
    problems: tuple[str, ...]

    def feeding(self, reader: str) -> tuple[Edge, ...]:
        """The edges into a dataflow."""
        return tuple(edge for edge in self.edges if edge.reader == reader)

    def fed_by(self, writer: str) -> tuple[Edge, ...]:
        """The edges out of a dataflow."""
        return tuple(edge for edge in self.edges if edge.writer == writer)

    def is_fed(self, reader: str, source: str) -> bool:
        """Whether a dataflow of the chain writes what that source reads."""
        return any(edge.source == source for edge in self.feeding(reader))


def graph_of(chain: ChainConfig) -> ChainGraph:
    """The graph of a chain."""
    flows = chain.dataflows
    found = graph_of_flows(flows)
    of_edges = (*_late_starts(flows, found.edges), *_divided_otherwise(flows, found.edges))
    return replace(found, problems=(*found.problems, *_two_writers(flows), *of_edges, *_unused(chain)))


def graph_of_flows(flows: Mapping[str, DataflowConfig]) -> ChainGraph:
    """The graph of dataflows, whatever describes them. Of its problems it has the cycles alone."""
    edges = tuple(edges_of(flows))
    order, left = _sorted(list(flows), edges)
    return ChainGraph(tuple(flows) if left else tuple(order), edges, tuple(_cycles(left, edges)))


def _sorted(names: list[str], edges: tuple[Edge, ...]) -> tuple[list[str], list[str]]:
    """The dataflows in order, each after all that feed it, and those for which there is no order."""
    order: list[str] = []
    left = names
    while ready := [n for n in left if not any(e.reader == n and e.writer in left for e in edges)]:
        order += ready
        left = [name for name in left if name not in ready]
    return order, left


def _cycles(left: list[str], edges: tuple[Edge, ...]) -> Iterator[str]:
    """One line of a cycle among what could not be ordered: each of these is fed by another one of them."""
    if not left:
        return
    path = [left[0]]
    while True:
        before = next(e.writer for e in edges if e.reader == path[-1] and e.writer in left)
        if before in path:
            ring = [before, *reversed(path[path.index(before) + 1 :]), before]
            yield f"{' feeds '.join(ring)}: a chain flows in one direction; let one of them write somewhere else"
            return
        path.append(before)


def _two_writers(flows: Mapping[str, DataflowConfig]) -> Iterator[str]:
    seen: dict[Endpoint, str] = {}
    for name, flow in flows.items():
        for sink_name, sink in flow.sinks.items():
            thing, here = sink.endpoint(), f"{name}.{sink_name}"
            if not thing.name:
                continue
            if thing in seen:
                yield f"{seen[thing]} and {here} both write {thing}: a sink has one writer, so give each its own"
            seen.setdefault(thing, here)


def _late_starts(flows: Mapping[str, DataflowConfig], edges: tuple[Edge, ...]) -> Iterator[str]:
    """Who starts behind the beginning of what another dataflow writes would miss what was written before."""
    for edge in edges:
        start = getattr(flows[edge.reader].sources[edge.source], "start", "earliest")
        if start != "earliest":
            yield (
                f"{edge.reader}.{edge.source} reads what {edge.writer} writes and has `start: {start}`, so it would "
                "miss what is written before it runs: within a chain, `start` is earliest"
            )


def _divided_otherwise(flows: Mapping[str, DataflowConfig], edges: tuple[Edge, ...]) -> Iterator[str]:
    """Among another number of streams keys are divided otherwise."""
    for edge in edges:
        written = flows[edge.writer].sinks[edge.sink].division
        read = flows[edge.reader].sources[edge.source].division
        if written is not None and read is not None and written.streams != read.streams:
            yield (
                f"{edge.writer}.{edge.sink} divides its records among {many(written.streams, 'stream')}, and "
                f"{edge.reader}.{edge.source} says {read.streams}: say the same number"
            )


def _unused(chain: ChainConfig) -> Iterator[str]:
    """What the chain would create and nobody writes or reads: a mistyped name."""
    sources = [source for flow in chain.dataflows.values() for source in flow.sources.values()]
    sinks = [sink for flow in chain.dataflows.values() for sink in flow.sinks.values()]
    for key, name, between in chain.between():
        if not any(between.read_by(name, s) for s in sources) and not any(between.written_by(name, s) for s in sinks):
            yield f"{key}.{name}: no dataflow of the chain reads or writes it; correct the name, or leave it out"


def declares(chain: ChainConfig, source: AnySourceConfig) -> bool:
    """Whether the chain creates what the source reads."""
    return any(any(source.reads(thing) for thing in between.things(name)) for _, name, between in chain.between())


def written_or_made(chain: ChainConfig) -> list[str]:
    """What a source may name within the chain: what its dataflows write, and what it creates."""
    sinks = [sink.endpoint() for flow in chain.dataflows.values() for sink in flow.sinks.values()]
    written = [f"{thing.name}/*" if thing.noun == LOG else thing.name for thing in sinks]
    logs = [f"{name}/*" if log.streams is not None else name for name, log in chain.logs.items()]
    return list(dict.fromkeys([*written, *logs, *chain.topics]))
