"""The pages on logs without a dataflow, run as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin_registry.contract import Registry
from tests.integration.docs.pages import RunsHere, Terminal, stand_in_for_sandbox, terminal_in


@pytest.mark.spark
@pytest.mark.parametrize("page", ["log-store", "notebook"])
def test_a_page_about_logs_runs_as_it_is_printed(
    tmp_path: Path, registry: Registry, runs_here: RunsHere | None, page: str
) -> None:
    with terminal_in(tmp_path) as terminal:
        terminal.runs_here = runs_here
        stand_in_for_sandbox(terminal, registry)
        terminal.run_page(f"docs/guide/{page}.md")
    {"log-store": check_log_store, "notebook": check_notebook}[page](terminal)


def check_log_store(terminal: Terminal) -> None:
    looked = terminal.shown("scribengin log verify")
    assert "23 logs, 6,021 records" in looked
    cold = " ".join(terminal.shown("scribengin log offload").split())
    assert "books/1: 1 segment copied to cold storage" in cold
    assert "cold ok" in cold
    assert "10 records given up, the first is 1/0/10 now" in looked
    assert "nothing to recover" in looked
    assert len((terminal.directory / "words.jsonl").read_text().splitlines()) == 1000


def check_notebook(terminal: Terminal) -> None:
    shown = terminal.shown('hot.selectExpr("log"')
    assert "oven" in shown
    assert "fridge" not in shown
