"""The README's block about chains, run as it is printed, in the second terminal of its tour."""

from __future__ import annotations

import subprocess

import pytest

from tests.house.readme import blocks_run_by
from tests.integration import test_readme_tour as tour

HERE = "tests/integration/test_readme_chains.py::test_a_chain_runs_as_it_is_printed"
terminal, sandbox = tour.terminal, tour.sandbox


@pytest.mark.spark
def test_a_chain_runs_as_it_is_printed(terminal: tour.Terminal, sandbox: subprocess.Popen[str]) -> None:
    of_tour = {block.name: block for block in blocks_run_by(f"{tour.HERE}::test_the_tour_runs_as_it_is_printed")}
    terminal.run(of_tour["tour-connect"])
    (block,) = blocks_run_by(HERE)
    terminal.run(block)
    lines = terminal.shown["chain"].splitlines()
    for drawn in ("log orders/* --> clean", "clean --> log clean --> archive"):
        assert drawn in lines
    verified = [line.split() for line in lines if line.startswith(("orders/0 ", "orders/1 "))]
    assert [(row[0], row[2:]) for row in verified] == [
        ("orders/0", ["1,000", "1,000", "0", "0", "0"]),
        ("orders/1", ["1,000", "1,000", "0", "0", "0"]),
    ]
    assert lines[-2:] == ["chain 'orders' is stopped", "chain 'orders' is deleted"]
