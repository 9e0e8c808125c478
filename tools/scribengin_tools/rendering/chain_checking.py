"""A chain that was checked before it runs, drawn."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from scribengin.operations.chain.check import ChainCheck
from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.graph import ChainGraph
from scribengin_tools.rendering.text import facts, table

WIDTH = 80
"""A drawing fits into a terminal of this many columns."""
_ELLIPSIS = "..."


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
            role = flow.role_of(name)
            what = str(sink.endpoint()) if role is None else f"{sink.endpoint()} ({role})"
            yield [key, what, *((", ".join(readers),) if readers else ())]


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
