"""Checking a chain before it runs, and drawing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from scribengin.dataflow.registry.view import dataflow_names
from scribengin.errors import ChainExists, DataflowExists, ScribenginError, SourceMissing
from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.graph import ChainGraph, graph_of
from scribengin.operations.chain.submit import begun_before, problems_of
from scribengin.operations.submit.explain import Explanation
from scribengin_registry.contract import Registry
from scribengin_tools.rendering.checking import check
from scribengin_tools.rendering.text import facts, table

WIDTH = 80
"""A drawing fits into a terminal of this many columns."""
_ELLIPSIS = "..."
_TOLD_OF_THE_CHAIN = (SourceMissing, DataflowExists)
"""What the chain itself creates need not be there; `problems_of` tells of the rest, and of names."""


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """What a chain would be, and all that is wrong with it."""

    chain: ChainConfig
    graph: ChainGraph
    dataflows: dict[str, Explanation]
    errors: tuple[ScribenginError, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything there is to say."""
        return {
            "chain": self.chain.name,
            "order": list(self.graph.order),
            "edges": [
                {"from": e.writer, "sink": e.sink, "through": e.place, "to": e.reader, "source": e.source}
                for e in self.graph.edges
            ],
            "dataflows": {key: found.model_dump(mode="json") for key, found in self.dataflows.items()},
            "problems": [str(error) for error in self.errors],
        }


def check_chain(registry: Registry, chain: ChainConfig, *, transformations: bool = True) -> ChainCheck:
    """Check everything that can be checked without running it; `transformations` with Spark, once the rest is right.
    Changes nothing."""
    graph = graph_of(chain)
    errors = problems_of(registry, chain)
    found, of_flows = _of_dataflows(registry, chain, transformations=False)
    errors += of_flows
    if transformations and not errors:
        found, errors = _of_dataflows(registry, chain, transformations=True)
    return ChainCheck(chain, graph, found, tuple(errors))


def _of_dataflows(
    registry: Registry, chain: ChainConfig, *, transformations: bool
) -> tuple[dict[str, Explanation], list[ScribenginError]]:
    begun = _begun(registry, chain)
    found: dict[str, Explanation] = {}
    errors: list[ScribenginError] = []
    for key in graph_of(chain).order:
        config = chain.dataflows[key]
        exists = begun and config.name in dataflow_names(registry)
        found[key], of_flow = check(
            registry, config, exists=exists, transformation=transformations, expected=_TOLD_OF_THE_CHAIN
        )
        errors += [error for error in of_flow if not isinstance(error, _TOLD_OF_THE_CHAIN)]
    return found, errors


def drawn(chain: ChainConfig, graph: ChainGraph, width: int = WIDTH) -> str:
    """The graph, a line for each way that records take, in the order in which they flow."""
    return "\n".join(_fitting(parts, width) for parts in _ways(chain, graph))


def shown(found: ChainCheck) -> RenderableType:
    """What a chain would be, for a terminal. Its problems are not part of it."""
    rows = [
        (
            key,
            len(found.dataflows[key].tasks) or None,
            found.chain.dataflows[key].workers,
            ", ".join(sorted(set(found.dataflows[key].guarantees.values()))) or None,
        )
        for key in found.graph.order
    ]
    return Group(
        facts((("chain", found.chain.name),)),
        Text(),
        Text(drawn(found.chain, found.graph), no_wrap=True),
        Text(),
        table(("DATAFLOW", ">TASKS", ">WORKERS", "GUARANTEE"), rows),
    )


def _ways(chain: ChainConfig, graph: ChainGraph) -> Iterator[list[str]]:
    for key in graph.order:
        flow = chain.dataflows[key]
        for name, source in flow.sources.items():
            if not graph.is_fed(key, name):
                yield [str(source.endpoint()), key]
        for name, sink in flow.sinks.items():
            readers = sorted({edge.reader for edge in graph.fed_by(key) if edge.sink == name})
            bad = " (bad records)" if name == flow.errors.sink else ""
            yield [key, f"{sink.endpoint()}{bad}", *((", ".join(readers),) if readers else ())]


def _fitting(parts: list[str], width: int) -> str:
    """The parts with arrows between them; what is longest is shortened in its middle until the line fits."""
    arrow = " --> "
    over = sum(map(len, parts)) + len(arrow) * (len(parts) - 1) - width
    while over > 0:
        longest = max(range(len(parts)), key=lambda k: len(parts[k]))
        text = parts[longest]
        keep = max(len(_ELLIPSIS) + 2, len(text) - over) - len(_ELLIPSIS)
        shorter = f"{text[: (keep + 1) // 2]}{_ELLIPSIS}{text[len(text) - keep // 2 :]}"
        if len(shorter) >= len(text):
            break
        over -= len(text) - len(shorter)
        parts = [*parts[:longest], shorter, *parts[longest + 1 :]]
    return arrow.join(parts)


def _begun(registry: Registry, chain: ChainConfig) -> bool:
    try:
        return begun_before(registry, chain) is not None
    except (ChainExists, DataflowExists):
        return False
