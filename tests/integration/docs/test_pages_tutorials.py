"""The tutorials, each run as it is printed, in a registry of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin_registry.contract import Registry
from tests.house.pages import TUTORIALS
from tests.integration.docs.pages import stand_in_for_sandbox, terminal_in


@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_runs_as_it_is_printed(tmp_path: Path, registry: Registry, page: str) -> None:
    with terminal_in(tmp_path) as terminal:
        stand_in_for_sandbox(terminal, registry)
        terminal.run_page(f"docs/tutorials/{page}.md")
    assert list((tmp_path / "logs").glob("**/*.seg")) == [], "each page cleans up behind itself"
