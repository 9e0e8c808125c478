"""A process of ours works whole, or it ends: by a thread that dies, or a registry that stays away."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from scribengin.base.process import lifetime
from scribengin.errors import ConfigInvalid
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry, SessionState

BEGINNING = """
import sys, threading
from types import ModuleType
from scribengin.base.process.lifetime import run_process

def thread_of(module, code):
    made = ModuleType(module)
    exec("def run():\\n    " + code, made.__dict__)
    return threading.Thread(target=made.run, name="executor-1", daemon=True)

def main(arguments):
"""


def run(tmp_path: Path, body: str, stdout: object = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    program.write_text(f"{BEGINNING}{indented}\nrun_process(main)\n")
    return subprocess.run(
        [sys.executable, str(program)], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("what", ["raise OSError(28, 'No space left on device')", "raise SystemExit(0)"])
def test_a_thread_of_ours_that_dies_takes_its_process_along(tmp_path: Path, what: str) -> None:
    ended = run(
        tmp_path,
        f"""
thread_of("scribengin.worker.executor", {what!r}).start()
threading.Event().wait()
""",
    )
    assert ended.returncode == lifetime.EXIT_FAILED
    assert "executor-1 died of" in ended.stderr


def test_a_thread_that_a_user_started_does_not(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        """
thread = thread_of("my.module", "raise ValueError('mine')")
thread.start()
thread.join()
return 5
""",
    )
    assert ended.returncode == 5
    assert "a thread that is not ours, died" in ended.stderr


def test_a_main_thread_that_dies_does_not_leave_the_others_behind(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        """
import scribengin.base.process.lifetime
scribengin.base.process.lifetime._END_MAX_S = 0.2
threading.Thread(target=threading.Event().wait, daemon=False).start()
raise OSError(28, "No space left on device")
""",
    )
    assert ended.returncode == lifetime.EXIT_FAILED
    assert "No space left" in ended.stderr


def test_a_full_disk_under_the_log_does_not_change_how_a_process_ends(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = run(
            tmp_path,
            """
import logging
for _ in range(2000):
    logging.getLogger("scribengin.worker").info("x" * 100)
return 0
""",
            stdout=full,
        )
    assert (ended.returncode, ended.stderr) == (0, "")


def free_port() -> int:
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        return int(there.getsockname()[1])


@pytest.mark.long
def test_processes_that_are_launched_in_an_outage_wait_and_say_so_and_end_in_the_end() -> None:
    kinds = (["scribengin.master", "--name", "m"], ["scribengin.worker", "--worker", "w"])
    words = ("--registry", f"127.0.0.1:{free_port()}", "--dataflow", "d")
    environment = {**os.environ, lifetime.PATIENCE_VARIABLE: "11"}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", *kind, *words],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for kind in kinds
    ]  # side by side: most of it is waiting
    said = [process.communicate(timeout=300)[1] for process in running]
    assert [process.returncode for process in running] == [2, 2]
    for stderr in said:
        assert "tries again for 11 s" in stderr
        assert stderr.count("no ZooKeeper server answered") == 2


def test_patience_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("soon", "0", "-1", "nan", "1e300"):
        monkeypatch.setenv(lifetime.PATIENCE_VARIABLE, wrong)
        with pytest.raises(ConfigInvalid, match=lifetime.PATIENCE_VARIABLE):
            lifetime.patience()


class AwayRegistry:
    """All that patience asks of a registry."""

    hosts = "nowhere:1"

    def __init__(self) -> None:
        self.state = SessionState.CONNECTED
        self.tell: Callable[[SessionState], None] = lambda _: None

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self.tell = listener

    def move(self, state: SessionState) -> None:
        self.state = state
        self.tell(state)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    told: list[tuple[str, str, int]] = []
    monkeypatch.setattr(lifetime, "end_at_once", lambda *said: told.append(said))
    return told


def test_a_process_whose_registry_is_gone_for_good_ends_and_says_so(ends: list[tuple[str, str, int]]) -> None:
    registry = AwayRegistry()
    lifetime.RegistryPatience(cast(Registry, registry), 0.05)
    registry.move(SessionState.SUSPENDED)
    wait_until(lambda: ends, 120, "the end")
    event, message, code = ends[0]
    assert (event, code) == ("registry_gone", lifetime.EXIT_REGISTRY_GONE)
    assert "nowhere:1" in message
    assert "scribengin start" in message


def test_a_process_that_connects_has_patience_from_then_on(
    ends: list[tuple[str, str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, told_of_open = AwayRegistry(), list[object]()
    monkeypatch.setenv(lifetime.PATIENCE_VARIABLE, "0.05")
    monkeypatch.setattr(lifetime, "connect", lambda _hosts, *, session_timeout_s: registry)
    monkeypatch.setattr(lifetime, "_tell_of_open", told_of_open.append)
    assert lifetime.connect_patiently(registry.hosts, 8.0) is cast(Registry, registry)
    assert told_of_open == [registry]
    registry.move(SessionState.SUSPENDED)
    wait_until(lambda: ends, 120, "the end")
    assert (ends[0][0], ends[0][2]) == ("registry_gone", lifetime.EXIT_REGISTRY_GONE)


def test_one_whose_registry_comes_back_goes_on(ends: list[tuple[str, str, int]]) -> None:
    registry = AwayRegistry()
    patience = lifetime.RegistryPatience(cast(Registry, registry), 3600)
    for _ in range(3):
        registry.move(SessionState.SUSPENDED)
        registry.move(SessionState.LOST)
        assert patience.waits
        registry.move(SessionState.CONNECTED)
        assert not patience.waits
    registry.move(SessionState.SUSPENDED)
    registry.state = SessionState.CONNECTED  # and the word of it is still on its way
    patience.give_up()
    assert ends == []
    registry.move(SessionState.CLOSED)
    assert not patience.waits
