"""The demo over machines: one of them loses its power in the middle, and nothing is lost or comes twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.demo_runs import expect_exact, processes_in, start_demo
from tests.integration.leftovers import await_none

RECORDS = 20_000


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.servers
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", ["hdfs", "bk"])
def test_the_demo_loses_and_duplicates_nothing_though_a_machine_dies(tmp_path: Path, store: str) -> None:
    demo = start_demo(tmp_path, "--records", str(RECORDS), "--launcher", "yarn", "--machines", "3", "--store", store)
    output, errors = demo.communicate(timeout=3500)
    assert demo.returncode == 0, output + errors
    expect_exact(output, RECORDS)
    assert len(re.findall(r"killed the machine machine-[123] ", output)) == 1
    await_none(lambda: processes_in(tmp_path))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--machines", "3"], "--machines goes with --launcher yarn"),
        (["--kill", "machine"], "--kill machine goes with --machines"),
    ],
)
def test_machines_are_refused_where_nothing_runs_on_them(tmp_path: Path, words: list[str], told: str) -> None:
    demo = start_demo(tmp_path, *words)
    _output, errors = demo.communicate(timeout=300)
    assert demo.returncode == 2
    assert errors.startswith(f"demo: {told}")
    assert errors.count("\n") == 1
