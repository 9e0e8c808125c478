"""The page on Dafka, run as it is printed."""

from __future__ import annotations

from pathlib import Path

from scribengin_registry.contract import Registry
from tests.integration.pages import stand_in_for_sandbox, terminal_in


def test_dafka_runs_as_it_is_printed(tmp_path: Path, registry: Registry) -> None:
    with terminal_in(tmp_path) as terminal:
        stand_in_for_sandbox(terminal, registry)
        terminal.run_page("docs/guide/dafka.md")
