"""The page on operating, run as it is printed, in a sandbox of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.docs.pages import RunsHere, sandbox_of, terminal_in


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_operating_runs_as_it_is_printed(tmp_path: Path, runs_here: RunsHere | None) -> None:
    with terminal_in(tmp_path) as terminal, sandbox_of(terminal):
        terminal.runs_here = runs_here
        terminal.run_page("docs/guide/operating.md")
    changed = terminal.shown("config set")
    assert "round.records_max: 100000 -> 5000" in changed
    assert re.search(r"accepted +round.records_max.* drain first", changed)
    assert "is rewound to earliest (2 streams)" in terminal.shown("scribengin rewind")
    assert terminal.shown("alarms/0 --from earliest -n 2").count('"oven"') == 2
    assert "'heat_alarm' is running" in terminal.shown("scribengin restart")
    assert "worker-1" in terminal.shown("scribengin history")
    assert "is stopped" in terminal.shown("scribengin stop")
    assert (terminal.directory / "registry.backup").stat().st_size > 0
