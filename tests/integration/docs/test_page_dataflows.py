"""The pages on dataflows and transformations: what they print is what there is, and what Spark accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin_registry.contract import Registry
from tests.integration.docs.pages import RunsHere, stand_in_for_sandbox, terminal_in


@pytest.mark.spark
def test_dataflows_are_what_is_printed(tmp_path: Path, registry: Registry) -> None:
    with terminal_in(tmp_path) as terminal:
        stand_in_for_sandbox(terminal, registry)
        terminal.run_page("docs/guide/dataflows.md")
    assert "payload STRING" in terminal.shown("scribengin explain")


@pytest.mark.spark
def test_transformations_are_what_is_printed(tmp_path: Path, registry: Registry, runs_here: RunsHere | None) -> None:
    with terminal_in(tmp_path) as terminal:
        terminal.runs_here = runs_here
        stand_in_for_sandbox(terminal, registry)
        terminal.run_page("docs/guide/transformations.md")
    assert "room STRING" in terminal.shown("scribengin explain rooms")
    assert "KEEPS STATE" in terminal.shown("scribengin explain hot")
    peaks = terminal.shown("scribengin explain peaks").split()
    assert "divided by sensor" in " ".join(peaks)
    assert {"task-0", "task-1"} <= set(peaks)
    assert "its own code alone" in terminal.shown("scribengin explain silent")
