"""The graph of all dataflows of a registry: what each reads and writes, told from their configs alone. Pure.

Two kinds of nodes: dataflows, and the places between them (logs, topics, directories). A sink and the sources that
read what it writes share one place; so do sources that read the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from scribengin.connectors import AnySinkConfig, AnySourceConfig
from scribengin.dataflow.config import DataflowConfig


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A dataflow or a place. `id` names it within the graph, `label` names it for people."""

    id: str
    kind: Literal["flow", "place"]
    label: str


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """Records go from the node `start` to the node `end`: one of the two is the dataflow `flow`, which reads the other
    as its source `name`, or writes it as its sink `name`."""

    start: str
    end: str
    flow: str
    direction: Literal["reads", "writes"]
    name: str


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """Nodes in the order of their dataflows, and edges in the direction in which records go."""

    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()


def graph_of_flows(configs: Mapping[str, DataflowConfig | None]) -> FlowGraph:
    """The graph. A dataflow without a readable config stands alone."""
    nodes = {flow_id(name): GraphNode(flow_id(name), "flow", name) for name in configs}
    edges: list[GraphEdge] = []
    written: list[tuple[AnySinkConfig, str]] = []
    for flow, config in configs.items():
        for name, sink in config.sinks.items() if config else ():
            place = _place(nodes, sink)
            written.append((sink, place))
            edges.append(GraphEdge(flow_id(flow), place, flow, "writes", name))
    for flow, config in configs.items():
        for name, source in config.sources.items() if config else ():
            met = list(dict.fromkeys(place for sink, place in written if source.meets(sink.endpoint())))
            for place in met or [_place(nodes, source)]:
                edges.append(GraphEdge(place, flow_id(flow), flow, "reads", name))
    return FlowGraph(tuple(nodes.values()), tuple(edges))


def flow_id(name: str) -> str:
    """The node of a dataflow."""
    return f"flow:{name}"


def _place(nodes: dict[str, GraphNode], endpoint: AnySinkConfig | AnySourceConfig) -> str:
    where = getattr(endpoint, "namespace", "") or getattr(endpoint, "bootstrap", "")
    label = str(endpoint.endpoint())
    node = f"place:{label} {where}".rstrip()
    nodes.setdefault(node, GraphNode(node, "place", label))
    return node
