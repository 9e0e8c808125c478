"""A dataflow as the specification of a skein application, and how the ends of its workers are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scribengin.errors import ConfigInvalid
from scribengin.launcher.contract import ContainerRequest
from scribengin.launcher.skein.client import Instance, attempt_of
from scribengin.launcher.skein.exits import exit_of_instance
from scribengin.launcher.skein.spec import PROGRAM_VARIABLE, WorkerSize, application_spec, program_words
from scribengin.launcher.yarn.application_master.container import OVER_MEMORY
from scribengin.launcher.yarn.client.applications import tag_of
from scribengin.launcher.yarn.config import YarnConfig
from scribengin.launcher.yarn.launching import kit_of

MASTER = ContainerRequest("zk:1", "flow", "master-1", [sys.executable, "-m", "scribengin.master", "--name", "a b"], 768)
WORKER = WorkerSize(2048, 2)
OVER = "held 150 MiB of memory, and container.memory_mb is 128"


def test_the_master_is_one_instance_and_workers_are_the_masters_to_add() -> None:
    yarn = YarnConfig.parse(
        {
            "queue": "second",
            "attempts": 4,
            "python": {"archive": "hdfs:///env.tar.gz"},
            "files": {"t.csv": "hdfs:///t.csv"},
            "environment": {"FLAVOUR": "a $word"},
        },
        source="the test",
    )
    spec = application_spec(yarn, kit_of(yarn, yarn.files), MASTER, WORKER)
    assert (spec["name"], spec["queue"], spec["max_attempts"]) == ("flow", "second", 4)
    assert tag_of("zk:1", "flow") in spec["tags"], "or nobody finds it"
    assert spec["master"]["env"] == {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    master, worker = spec["services"]["master"], spec["services"]["worker"]
    assert (master["instances"], master["max_restarts"], worker["instances"]) == (1, 4, 0)
    assert worker["resources"] == {"memory": "2048 MiB", "vcores": 2}
    assert "exec environment/bin/python -m scribengin.master --name 'a b' >" in master["script"]
    assert master["files"] == {
        "environment": {"source": "hdfs:///env.tar.gz", "type": "archive"},
        "t.csv": {"source": "hdfs:///t.csv", "type": "file"},
    }
    assert worker["env"]["FLAVOUR"] == r"a \$word", "YARN puts it between double quotes"


@pytest.mark.parametrize("setting", [{"priority": 3}, {"attempts_window_s": 60}])
def test_what_skein_cannot_say_is_refused(setting: dict[str, int]) -> None:
    yarn = YarnConfig.parse(setting, source="the test")
    with pytest.raises(ConfigInvalid, match=f"yarn.{next(iter(setting))} is not for launcher: skein"):
        application_spec(yarn, kit_of(yarn, {}), MASTER, WORKER)


def run_as_a_worker(directory: Path, *argv: str) -> int:
    """Run a program of Python's as skein runs a worker, with its logs in `directory`. Returns the exit code."""
    script = application_spec(YarnConfig(), kit_of(YarnConfig(), {}), MASTER, WORKER)["services"]["worker"]["script"]
    value = program_words([sys.executable, "-c", *argv])
    outer = f'export {PROGRAM_VARIABLE}="{value}"\nexec bash -c "$SCRIPT"\n'  # as YARN writes a variable
    environment = {**os.environ, "LOG_DIRS": f"{directory},/nowhere", "SCRIPT": script}
    return subprocess.run(["bash", "-c", outer], env=environment, cwd=directory, check=False).returncode


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("import sys; print(sys.argv[1]); print('wrong', file=sys.stderr); sys.exit(7)", 7),
        ("import os, sys; print(sys.argv[1], flush=True); os.kill(os.getpid(), 9)", 128 + signal.SIGKILL),
    ],
)
def test_a_worker_runs_what_it_is_told_and_leaves_output_and_code(tmp_path: Path, program: str, code: int) -> None:
    word = 'it\'s a "word" of $HOME, `date`, {{PWD}} and å'
    assert run_as_a_worker(tmp_path, program, word) == code
    assert (tmp_path / "stdout").read_text() == f"{word}\n"
    assert (tmp_path / "exit").read_text().split() == [str(code)]


def test_the_code_of_a_worker_is_written_where_there_was_room_for_it(tmp_path: Path) -> None:
    """A disk that the worker has filled takes no new file, and no block more."""
    exit_file = tmp_path / "exit"
    looks = f"import os; one = os.stat({str(exit_file)!r}); print(one.st_ino, one.st_size); raise SystemExit(7)"
    assert run_as_a_worker(tmp_path, looks) == 7
    after = exit_file.stat()
    assert (tmp_path / "stdout").read_text().split() == [str(after.st_ino), str(after.st_size)]
    assert int(exit_file.read_bytes()) == 7


def test_a_worker_that_was_ended_before_it_could_say_how_has_said_nothing(tmp_path: Path) -> None:
    before = tmp_path / "before"
    assert run_as_a_worker(tmp_path, f"import shutil; shutil.copy({str(tmp_path / 'exit')!r}, {str(before)!r})") == 0
    failed = Instance("worker_3", "FAILED", "container_1_0001_02_000005", "node:1", "see logs")
    assert exit_of_instance(failed, before.read_bytes(), "", 128).kind == "lost"


@pytest.mark.parametrize(
    ("state", "code", "last_word", "kind", "number", "reason"),
    [
        ("SUCCEEDED", b"0\n", "", "exited", 0, "exit code 0"),
        ("SUCCEEDED", b"", "", "exited", 0, "exit code 0"),
        ("FAILED", b"7\n", "it was wrong", "exited", 7, "exit code 7: it was wrong"),
        ("FAILED", b"137\n", "", "exited", -9, "SIGKILL"),
        ("FAILED", f"{OVER_MEMORY}\n".encode(), OVER, "memory", -9, OVER),
        ("FAILED", b"", "", "lost", None, "see logs"),
        ("KILLED", b"137\n", "", "killed", -9, "by the launcher"),
    ],
)
def test_an_end_is_told_in_the_contracts_words(
    state: str, code: bytes, last_word: str, kind: str, number: int | None, reason: str
) -> None:
    instance = Instance("worker_3", state, "container_1_0001_02_000005", "node:1", "it failed, see logs")
    how = exit_of_instance(instance, code, last_word, 128)
    assert (how.kind, how.code) == (kind, number)
    assert reason in how.reason
    assert attempt_of("container_e17_1_0001_02_000005") == 2


@pytest.mark.parametrize(
    ("message", "kind", "reason"),
    [
        (
            "137.4 MB of 128 MB physical memory used",
            "memory",
            "ended by YARN: it held 137.4 MB of the 128 MB that",
        ),
        ("2.2 GB of 2.1 GB virtual memory used", "memory", "it had 2.2 GB of the 2.1 GB of virtual memory that it may"),
        (
            "Container killed by YARN for exceeding memory limits",
            "memory",
            "it held more memory than it may, and",
        ),
        ("Container preempted by scheduler", "killed", "YARN took it back for another application (preempted)"),
        ("Container failed during execution, see logs for more information.", "exited", "ended by SIGTERM"),
    ],
)
def test_whom_yarn_has_ended_says_why_whatever_signal_that_was(message: str, kind: str, reason: str) -> None:
    """What skein says of it: the worker knows of a signal alone."""
    failed = Instance("worker_3", "FAILED", "container_1_0001_02_000005", "node:1", message)
    for killing in (False, True) if kind == "memory" else (False,):
        how = exit_of_instance(failed, f"{128 + signal.SIGTERM}\n".encode(), "", 128, killing=killing)
        assert how.kind == kind
        assert reason in how.reason
    how = exit_of_instance(replace(failed, state="KILLED"), b"143\n", "", 128)
    assert how.reason == "killed by the launcher"


def test_an_instance_that_skein_does_not_know_is_lost() -> None:
    assert exit_of_instance(None, b"", "", 128).kind == "lost"


@pytest.mark.parametrize(("code", "kind"), [(b"143\n", "killed"), (b"137\n", "killed"), (b"7\n", "exited")])
def test_one_that_was_killed_before_skein_had_noted_that_is_killed(code: bytes, kind: str) -> None:
    failed = Instance("worker_1", "FAILED", "container_1", "node:1", "it failed")
    assert exit_of_instance(failed, code, "", 128, killing=True).kind == kind
    assert exit_of_instance(failed, code, "", 128).kind == "exited"
