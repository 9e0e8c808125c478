"""The README's blocks about logs, run as they are printed, in the second terminal of its tour."""

from __future__ import annotations

import subprocess

import pytest

from tests.house.readme import blocks_run_by
from tests.integration import test_readme_tour as tour

HERE = "tests/integration/test_readme_logs.py::test_logs_are_used_as_it_is_printed"
terminal, sandbox = tour.terminal, tour.sandbox


@pytest.mark.spark
def test_logs_are_used_as_it_is_printed(terminal: tour.Terminal, sandbox: subprocess.Popen[str]) -> None:
    of_tour = {block.name: block for block in blocks_run_by(f"{tour.HERE}::test_the_tour_runs_as_it_is_printed")}
    for name in ("tour-connect", "tour-logs"):
        terminal.run(of_tour[name])
    for block in blocks_run_by(HERE):
        terminal.run(block)
    assert terminal.shown["logs-python"].splitlines() == [
        "DLSN{logSegmentSequenceNo=1, entryId=0, slotId=0}",
        "[b'one book']",
        "[DLSN(segment=1, entry=0, slot=0)]",
    ]
    looked = terminal.shown["logs-look"]
    assert "4 logs, 1,003 records" in looked
    assert "10 records given up, the first is 1/0/10 now" in looked
    assert "nothing to recover" in looked
    assert len((terminal.directory / "words.jsonl").read_text().splitlines()) == 1000
    assert "oven" in terminal.shown["spark-logs"]
    assert "fridge" not in terminal.shown["spark-logs"]
