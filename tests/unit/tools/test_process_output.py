"""Reading what processes have printed, while their files are rotated; and whose output `logs` shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scribengin.launcher.contract import ContainerDescriptor, ContainerRequest
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.launcher.local.output import OutputFile
from scribengin.testing.clocks import ManualClock
from scribengin.testing.waiting import wait_until
from scribengin_tools.output.local import FollowedOutput, ProcessOutput, outputs_of, text_of


def test_who_follows_misses_nothing_when_the_file_becomes_the_older_one(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    output = OutputFile(path, bytes_max=100)
    output.write(b"".join(b"old %d\n" % number for number in range(5)))
    followed = FollowedOutput(path, 2)
    assert followed.new() == b"old 3\nold 4\n"
    seen = b""
    for number in range(100):
        output.write(b"line %d\nha" % number)
        output.write(b"lf\n")
        if number % 3 == 0:
            seen += followed.new()
    seen += followed.new()
    assert seen == b"".join(b"line %d\nhalf\n" % number for number in range(100))


def test_a_file_that_comes_later_is_followed_from_its_beginning(tmp_path: Path) -> None:
    followed = FollowedOutput(tmp_path / "stdout.log", None)
    assert followed.new() == b""
    OutputFile(tmp_path / "stdout.log").write(b"first\nsec")
    assert followed.new() == b"first\n"


def test_the_last_lines_reach_into_the_older_file(tmp_path: Path) -> None:
    output = OutputFile(tmp_path / "stdout.log", bytes_max=50)
    for number in range(20):
        output.write(b"line %d\n" % number)
    container = ContainerDescriptor(
        id="x", registry="r", dataflow="d", name="w", memory_mb=1, cores=1, launched_ms=0, directory=str(tmp_path)
    )
    shown = text_of(ProcessOutput(container, (tmp_path / "stdout.log", tmp_path / "stderr.log"), None), 8)
    assert shown == "".join(f"line {number}\n" for number in range(12, 20))


def test_of_a_deleted_dataflow_of_that_name_and_of_another_registry_nothing_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path))
    clock = ManualClock()
    with LocalLauncher(tmp_path, clock) as launcher:

        def ran(hosts: str, name: str) -> ContainerDescriptor:
            argv = [sys.executable, "-c", f"print('{name}')"]
            container = launcher.launch(ContainerRequest(hosts, "flow", name, argv, memory_mb=256))
            wait_until(lambda: launcher.poll(container), what="its end")
            return container

        ran("here:1", "master-1")
        clock.advance_s(1.0)
        submitted_ms = clock.now_ms()
        ran("here:1", "master-1")
        ran("there:1", "master-1")
        clock.advance_s(1.0)
        ran("here:1", "worker-1")
    shown = outputs_of("here:1", "flow", submitted_ms)
    assert [(output.container.name, output.container.launched_ms) for output in shown] == [
        ("master-1", submitted_ms),
        ("worker-1", clock.now_ms()),
    ]
