"""`tools/dev.py cluster`: servers for a person. They outlive the command, are found by `env`, and end with `stop`."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.hadoop.hadoop import run_client
from scribengin_dev.servers.java_server import listens
from scribengin_registry.errors import NotAuthorised
from scribengin_registry.opening import connect
from tests.integration.leftovers import await_none

pytestmark = pytest.mark.servers  # also of those that start their own

COMMAND = [sys.executable, "-m", "scribengin_dev.cluster"]


def run(action: str, folder: Path, code: int = 0) -> str:
    """Run the command; what it said."""
    words = [*COMMAND, action, "--folder", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def exports(folder: Path) -> dict[str, str]:
    words = [shlex.split(line) for line in run("env", folder).splitlines()]
    assert all(word == "export" for word, _assignment in words)
    return dict(assignment.split("=", 1) for _word, assignment in words)


def processes_in(folder: Path) -> list[psutil.Process]:
    """Those that work below a folder: servers, and what they have left."""
    found = []
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] and Path(process.info["cwd"]).is_relative_to(folder):
            found.append(process)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cluster"
    run("stop", tmp_path / "cluster")


@pytest.mark.full
@pytest.mark.timeout(900)  # it starts seven servers, and there may be others on this machine
def test_servers_outlive_the_command_are_found_and_end_when_they_are_told(folder: Path) -> None:
    assert "resourcemanager" in run("start", folder)
    variables = exports(folder)
    with connect(variables["SCRIBENGIN_REGISTRY"], auth=variables["SCRIBENGIN_REGISTRY_AUTH"]) as registry:
        registry.create("/mine", b"")
    with connect(variables["SCRIBENGIN_REGISTRY"], auth="somebody:else") as registry:
        assert registry.find("/logs") is not None
        with pytest.raises(NotAuthorised):
            registry.create("/theirs", b"")
    assert listens(int(variables["KAFKA_BOOTSTRAP_SERVERS"].rpartition(":")[2]))
    configuration = Path(variables["HADOOP_CONF_DIR"])
    run_client("org.apache.hadoop.fs.FsShell", ["-touchz", "/touched"], folder, configuration)
    assert "it runs already" in run("start", folder)
    assert exports(folder) == variables
    kafka = next(line for line in run("status", folder).splitlines() if line.startswith("kafka"))
    os.kill(int(kafka.split()[1]), signal.SIGKILL)
    wait_until(lambda: "has died" in run("status", folder), timeout_s=120)
    assert "its data is kept" in run("stop", folder)
    await_none(lambda: processes_in(folder))
    assert "nothing runs" in run("stop", folder)
    assert "no cluster runs in" in run("env", folder, code=1)


def test_ctrl_c_while_it_starts_leaves_nothing(folder: Path) -> None:
    starting = subprocess.Popen([*COMMAND, "start", "--folder", str(folder)], start_new_session=True)
    wait_until(lambda: (folder / "kafka" / "ports").is_file(), timeout_s=120)
    starting.send_signal(signal.SIGINT)
    assert starting.wait(120) == 130
    await_none(lambda: processes_in(folder))
    assert "nothing runs" in run("stop", folder)
