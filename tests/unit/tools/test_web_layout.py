"""Where nodes of a graph stand, and what the graph of dataflows is."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from scribengin_tools.web.model.graph import graph_of_flows
from scribengin_tools.web.model.layout import Arrow, layout
from tests.integration.watched import config


def crossings(places: dict[str, tuple[int, float]], arrows: list[Arrow]) -> int:
    lines = [(places[a], places[b]) for a, b in arrows if places[b][0] == places[a][0] + 1]
    return sum(
        (a[1] - c[1]) * (b[1] - d[1]) < 0 for n, (a, b) in enumerate(lines) for c, d in lines[n + 1 :] if a[0] == c[0]
    )


def test_a_chain_goes_from_left_to_right_in_one_row() -> None:
    places = layout(["c", "a", "b"], [("a", "b"), ("b", "c")])
    assert {name: (place.layer, place.row) for name, place in places.items()} == {
        "a": (0, 0.0),
        "b": (1, 0.0),
        "c": (2, 0.0),
    }


def test_the_longest_way_counts_and_small_layers_stand_in_the_middle() -> None:
    places = layout(list("abcd"), [("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")])
    assert [places[name].layer for name in "abcd"] == [0, 1, 2, 1]
    assert places["a"].row == 0.5


def test_what_does_not_hang_together_stands_below_each_other_the_largest_first() -> None:
    places = layout(["z", "a", "b", "c"], [("a", "b"), ("a", "c")])
    assert [places[name].band for name in "abcz"] == [0, 0, 0, 1]
    assert places["z"].row > max(places[name].row for name in "abc")


def test_arrows_do_not_cross_where_they_need_not() -> None:
    arrows = [
        ("a", "z"),
        ("b", "y"),
        ("c", "x"),
        ("x", "p"),
        ("y", "q"),
        ("z", "r"),
        ("j", "a"),
        ("j", "b"),
        ("j", "c"),
    ]
    found = layout(list("jabcxyzpqr"), arrows)
    assert crossings({name: (place.layer, place.row) for name, place in found.items()}, arrows) == 0


def test_a_cycle_and_an_arrow_to_itself_are_no_trouble() -> None:
    places = layout(list("abc"), [("a", "b"), ("b", "c"), ("c", "a"), ("b", "b"), ("b", "nobody")])
    assert [places[name].layer for name in "abc"] == [0, 1, 2]
    assert layout([], []) == {}


@given(st.integers(1, 40), st.integers(0, 80), st.randoms(use_true_random=False))
def test_every_node_has_a_place_of_its_own_and_arrows_of_no_cycle_go_right(
    count: int, many: int, chance: random.Random
) -> None:
    names = [f"n{number}" for number in range(count)]
    pairs = [sorted(chance.choices(range(count), k=2)) for _ in range(many)]
    arrows = [(names[a], names[b]) for a, b in pairs]
    places = layout(names, arrows)
    assert places.keys() == set(names)
    assert len({(place.layer, place.row) for place in places.values()}) == count
    assert all(places[a].layer < places[b].layer for a, b in arrows if a != b)
    assert layout(names, [*arrows, *((b, a) for a, b in arrows)]).keys() == set(names), (
        "with a cycle wherever one can be"
    )


def test_a_dataflow_reads_the_place_that_another_one_writes() -> None:
    graph = graph_of_flows(
        {
            "clean": config("clean", "orders/*", "clean"),
            "archive": config("archive", "clean/*", "archive"),
            "count": config("count", "clean/*", "count"),
            "other": config("other", "orders/*", "other"),
            "gone": None,
        }
    )
    arrows = [(edge.start.split()[0], edge.end.split()[0], edge.flow, edge.direction) for edge in graph.edges]
    labels = {node.id: node.label for node in graph.nodes}
    named = [(labels[edge.start], labels[edge.end]) for edge in graph.edges]
    assert ("clean", "log clean") in named
    assert ("log clean", "archive") in named
    assert ("log clean", "count") in named
    assert named.count(("log orders/*", "clean")) == named.count(("log orders/*", "other")) == 1
    assert len(arrows) == 8
    assert [node.label for node in graph.nodes if node.kind == "place"] == [
        "log clean", "log archive", "log count", "log other", "log orders/*",
    ]  # fmt: skip
    assert "gone" in labels.values()
