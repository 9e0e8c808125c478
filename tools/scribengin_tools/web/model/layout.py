"""Where the nodes of a directed graph stand: in layers from left to right, few crossings, parts that hang together in
bands of their own. Pure; a unit is one layer across, one row down.

The way is Sugiyama's: edges that close a cycle are turned round, a node's layer is the longest way to it, and rows are
ordered by the mean of their neighbours' rows, to and fro.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

_SWEEPS = 6

Arrow = tuple[str, str]


@dataclass(frozen=True, slots=True)
class NodePosition:
    """Layer and row of a node, both from 0. Rows may be halves: a layer with fewer nodes stands in the middle. `band`
    is the number of the part of the graph that it is in."""

    layer: int
    row: float
    band: int


def layout(nodes: Sequence[str], arrows: Iterable[Arrow]) -> dict[str, NodePosition]:
    """A place for every node; no two share one. Parts of the graph that do not hang together stand below each other,
    the largest first."""
    known = set(nodes)
    kept = list(dict.fromkeys((a, b) for a, b in arrows if a != b and a in known and b in known))
    places: dict[str, NodePosition] = {}
    top = 0.0
    for band, part in enumerate(_parts(nodes, kept)):
        inside = [arrow for arrow in kept if arrow[0] in part]
        layers = _layers([node for node in nodes if node in part], inside)
        rows = _ordered(layers, inside)
        height = max(len(row) for row in rows)
        for layer, names in enumerate(rows):
            shift = (height - len(names)) / 2
            places |= {name: NodePosition(layer, top + shift + number, band) for number, name in enumerate(names)}
        top += height
    return places


def _parts(nodes: Sequence[str], arrows: Sequence[Arrow]) -> list[set[str]]:
    """Sets of nodes that hang together, largest first, else in the order of `nodes`."""
    beside: dict[str, set[str]] = defaultdict(set)
    for a, b in arrows:
        beside[a].add(b)
        beside[b].add(a)
    parts: list[set[str]] = []
    seen: set[str] = set()
    for node in nodes:
        if node in seen:
            continue
        part, left = {node}, [node]
        while left:
            new = beside[left.pop()] - part
            part |= new
            left += new
        seen |= part
        parts.append(part)
    return sorted(parts, key=len, reverse=True)


def _layers(nodes: Sequence[str], arrows: Sequence[Arrow]) -> dict[str, int]:
    """The longest way to each node, without the arrows that close a cycle."""
    forward = _without_cycles(nodes, arrows)
    into: dict[str, int] = dict.fromkeys(nodes, 0)
    for _, b in forward:
        into[b] += 1
    after: dict[str, list[str]] = defaultdict(list)
    for a, b in forward:
        after[a].append(b)
    layers = dict.fromkeys(nodes, 0)
    ready = [node for node in nodes if not into[node]]
    while ready:
        node = ready.pop(0)
        for following in after[node]:
            layers[following] = max(layers[following], layers[node] + 1)
            into[following] -= 1
            if not into[following]:
                ready.append(following)
    return layers


def _without_cycles(nodes: Sequence[str], arrows: Sequence[Arrow]) -> list[Arrow]:
    """The arrows, with those turned round that lead back to where a walk from the first nodes has come from."""
    after: dict[str, list[str]] = defaultdict(list)
    for a, b in arrows:
        after[a].append(b)
    entered = {b for _, b in arrows}
    done: set[str] = set()
    forward: list[Arrow] = []
    for start in sorted(nodes, key=lambda node: node in entered):
        if start in done:
            continue
        way, walk = {start}, [(start, iter(after[start]))]
        while walk:
            node, left = walk[-1]
            following = next(left, None)
            if following is None:
                walk.pop()
                way.discard(node)
                done.add(node)
            elif following in way:
                forward.append((following, node))
            else:
                forward.append((node, following))
                if following not in done:
                    way.add(following)
                    walk.append((following, iter(after[following])))
    return forward


def _ordered(layers: Mapping[str, int], arrows: Sequence[Arrow]) -> list[list[str]]:
    """The nodes of each layer, in an order in which few arrows cross."""
    rows: list[list[str]] = [[] for _ in range(max(layers.values()) + 1)]
    for node, layer in layers.items():
        rows[layer].append(node)
    before: dict[str, list[str]] = defaultdict(list)
    after: dict[str, list[str]] = defaultdict(list)
    for a, b in arrows:
        before[b].append(a)
        after[a].append(b)
    for sweep in range(_SWEEPS):
        beside = before if sweep % 2 == 0 else after
        for row in rows if sweep % 2 == 0 else reversed(rows):
            at = {name: (number + 0.5) / len(names) for names in rows for number, name in enumerate(names)}
            row.sort(key=partial(_weight, beside, at))
    return rows


def _weight(beside: Mapping[str, Sequence[str]], at: Mapping[str, float], name: str) -> float:
    """Where a node would best stand: in the middle of those that it is joined to."""
    joined = [at[neighbour] for neighbour in beside.get(name, ())]
    return sum(joined) / len(joined) if joined else at[name]
