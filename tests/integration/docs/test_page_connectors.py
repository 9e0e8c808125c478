"""The page on connectors of one's own: its sink passes, and the mistake that it shows is told as it is printed."""

from __future__ import annotations

from pathlib import Path

from tests.integration.docs.pages import terminal_in


def test_a_sink_of_ones_own_is_held_against_the_contract(tmp_path: Path) -> None:
    with terminal_in(tmp_path) as terminal:
        terminal.run_page("docs/internals/connectors.md")
    told = terminal.shown("class Careless")
    assert told.startswith("seed 0 of the sink: nothing is seen twice: ")
    assert "prepare_commit() = 1 records {'box': 'box-1'}" in told
    assert "BROKEN: nothing is seen twice: " in told.splitlines()[-2]
