"""The page on chains, run as it is printed, in a sandbox of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.docs.pages import RunsHere, sandbox_of, terminal_in


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_chains_run_as_they_are_printed(tmp_path: Path, runs_here: RunsHere | None) -> None:
    with terminal_in(tmp_path) as terminal, sandbox_of(terminal):
        terminal.runs_here = runs_here
        terminal.run_page("docs/guide/chains.md")
    lines = terminal.shown("scribengin submit").splitlines()
    for drawn in ("log orders/* --> clean", "clean --> log clean --> archive"):
        assert drawn in lines
    verified = [line.split() for line in lines if line.startswith(("orders/0 ", "orders/1 "))]
    assert [(row[0], row[2:]) for row in verified] == [
        ("orders/0", ["1,000", "1,000", "0", "0", "0"]),
        ("orders/1", ["1,000", "1,000", "0", "0", "0"]),
    ]
    assert lines[-3:] == ["chain 'orders' is stopped", "2000", "chain 'orders' is deleted"]
