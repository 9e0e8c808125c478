"""The local launcher against the launcher contract, and what only processes of one machine can be asked for."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.errors import ContainerUnreachable, LauncherError
from scribengin.launcher.contract import ContainerDescriptor, ContainerExit, ContainerRequest
from scribengin.launcher.local import launcher as local
from scribengin.launcher.local import supervisor as keeper
from scribengin.launcher.local.launcher import LocalLauncher, scribengin_home
from scribengin.launcher.local.processes import Group, start_token
from scribengin.testing.conformance.launcher import check_launcher
from scribengin.testing.waiting import wait_until

SLEEP = [sys.executable, "-c", "import threading; threading.Event().wait()"]


def request(argv: list[str] | None = None) -> ContainerRequest:
    return ContainerRequest("here:1", "flow", "worker-1", argv or SLEEP, memory_mb=256)


@pytest.fixture(autouse=True)
def nothing_left_running(tmp_path: Path) -> Iterator[None]:
    yield
    if not (tmp_path / "containers").is_file():
        with LocalLauncher(tmp_path) as launcher:
            for container in launcher.all_containers("flow") + launcher.all_containers("conformance"):
                launcher.kill(container)


def test_the_local_launcher_keeps_the_launcher_contract(tmp_path: Path) -> None:
    check_launcher(lambda: LocalLauncher(tmp_path))


def test_a_container_whose_keeper_is_killed_ends_too_and_is_told_as_lost(tmp_path: Path) -> None:
    with LocalLauncher(tmp_path) as launcher:
        told: list[ContainerExit] = []
        launcher.on_exit(lambda _, how: told.append(how))
        container = launcher.launch(request())
        group = Group(container.pid, keeper.mark_of(Path(container.directory)))
        wait_until(lambda: group.pids(), what="the container's process")
        (process,) = group.pids()
        os.kill(container.pid, signal.SIGKILL)
        wait_until(lambda: told, what="word of the container's end")
        assert told[0].kind == "lost"
        assert told[0].code is None
        assert start_token(process) is None


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_end_that_cannot_be_looked_at_just_now_is_told_later_and_so_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where this process may open no more files. Nobody else tells a master of the ends of its containers."""
    refusals = [OSError(errno.EMFILE, "Too many open files") for _ in range(3)]

    def flaky(pid: int) -> str | None:
        if refusals:
            raise refusals.pop()
        return start_token(pid)

    monkeypatch.setattr(local, "_AGAIN_S", 0.01)
    with LocalLauncher(tmp_path) as launcher:
        told: list[ContainerDescriptor] = []
        launcher.on_exit(lambda container, _: told.append(container))
        first, second = launcher.launch(request()), launcher.launch(request())
        monkeypatch.setattr(local, "start_token", flaky)
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: told == [first], what="word of the first one's end")
        assert not refusals
        os.kill(second.pid, signal.SIGKILL)
        wait_until(lambda: told == [first, second], what="word of the second one's end")


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_a_container_that_another_one_launched_outlives_it(tmp_path: Path, end: str) -> None:
    program = f"""
import sys, threading
from pathlib import Path
from scribengin.launcher.contract import ContainerRequest
from scribengin.launcher.local.launcher import LocalLauncher
LocalLauncher(Path({str(tmp_path)!r})).launch(ContainerRequest("here:1", "flow", "inner", {SLEEP!r}, 256))
if {end!r} == "kill":
    threading.Event().wait()
"""

    def inner() -> list[ContainerDescriptor]:
        return [c for c in launcher.containers("here:1", "flow") if c.name == "inner"]

    with LocalLauncher(tmp_path) as launcher:
        outer = launcher.launch(request([sys.executable, "-c", program]))
        wait_until(inner, what="the inner container")
        if end == "kill":
            launcher.kill(outer)
        wait_until(lambda: launcher.poll(outer), what="the outer container's end")
        assert inner()
        launcher.kill(inner()[0])
        assert not inner()


def test_a_keeper_whose_launcher_dies_before_it_says_go_starts_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    program = f"""
import os, signal
from pathlib import Path
from scribengin.launcher.local import launcher as local
from scribengin.launcher.contract import ContainerRequest
local.LocalLauncher._let_it_go = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
launcher = local.LocalLauncher(Path({str(tmp_path)!r}))
launcher.launch(ContainerRequest("here:1", "flow", "half", ["touch", {str(marker)!r}], 256))
"""
    with LocalLauncher(tmp_path) as launcher:
        told: list[ContainerExit] = []
        launcher.on_exit(lambda _, how: told.append(how))
        outer = launcher.launch(request([sys.executable, "-c", program]))
        wait_until(lambda: told, what="the dying launcher's end")
        assert told[0].code == -signal.SIGKILL
        assert [c.id for c in launcher.all_containers("flow")] == [outer.id]
        assert not marker.exists()


def test_a_pid_that_is_another_process_now_is_neither_watched_nor_killed(tmp_path: Path) -> None:
    with LocalLauncher(tmp_path) as launcher:
        told: list[ContainerDescriptor] = []
        launcher.on_exit(lambda container, _: told.append(container))
        real = launcher.launch(request())
        directory = tmp_path / "containers" / "flow" / "earlier"
        directory.mkdir()
        earlier = real.model_copy(
            update={"id": "flow/earlier", "start_token": "another-boot:1", "directory": str(directory)}
        )
        try:
            launcher.attach(earlier)
            wait_until(lambda: earlier in told, what="the end of the earlier container")
            launcher.kill(earlier)
            assert launcher.poll(real) is None
        finally:
            launcher.kill(real)


def test_a_home_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "containers").write_text("a file where a directory should be")
    with LocalLauncher(tmp_path) as launcher, pytest.raises(LauncherError, match="worker-1"):
        launcher.launch(request())


def test_nobody_else_can_look_into_a_container_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with LocalLauncher(tmp_path / "home") as launcher:
            container = Path(launcher.launch(request()).directory)
            assert [path.stat().st_mode & 0o777 for path in (container, tmp_path / "home")] == [0o700, 0o700]
            for left in launcher.all_containers("flow"):
                launcher.kill(left)
    finally:
        os.umask(before)


def test_only_so_many_ended_containers_leave_their_logs_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "KEPT_MAX", 3)
    with LocalLauncher(tmp_path) as launcher:
        told: list[ContainerDescriptor] = []
        launcher.on_exit(lambda container, _: told.append(container))
        first = launcher.launch(request())
        for ended in range(4):
            launcher.launch(request([sys.executable, "-c", ""]))
            wait_until(lambda ended=ended: len(told) == ended + 1, what="the container's end")
        assert launcher.all_containers("flow") == [first, *told[-2:]]
        launcher.kill(first)


@pytest.mark.parametrize("left", [b"", b'{"kind":', bytes(64)], ids=["nothing", "a part", "zeros"])
def test_what_a_power_failure_has_left_of_a_containers_files_keeps_nobody_from_the_others(
    tmp_path: Path, left: bytes
) -> None:
    """Nothing syncs them: their names may be on the disk, and what was in them not."""
    with LocalLauncher(tmp_path) as launcher:
        ended = [launcher.launch(request([sys.executable, "-c", ""])) for _ in range(3)]
        wait_until(lambda: all(map(launcher.poll, ended)), what="their ends")
        nameless, wordless, whole = ended
        Path(nameless.directory, keeper.DESCRIPTOR).write_bytes(left)
        Path(wordless.directory, keeper.EXIT).write_bytes(left)
        assert launcher.all_containers("flow") == [wordless, whole]
        assert launcher.containers("here:1", "flow") == []
        how = [launcher.poll(container) for container in (wordless, whole)]
        assert [one.kind for one in how if one is not None] == ["lost", "exited"]
        again = launcher.launch(request())
        assert launcher.containers("here:1", "flow") == [again]


def test_a_container_that_cannot_be_watched_just_now_is_watched_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, failures = os.pidfd_open, [OSError(errno.EMFILE, "Too many open files")]

    def pidfd_open(pid: int) -> int:
        if failures:
            raise failures.pop()
        return opened(pid)

    with LocalLauncher(tmp_path) as launcher:
        told: list[ContainerExit] = []
        launcher.on_exit(lambda _, how: told.append(how))
        monkeypatch.setattr(os, "pidfd_open", pidfd_open)
        launcher.launch(request([sys.executable, "-c", ""]))
        wait_until(lambda: told, what="word of the container's end")
        assert not failures
        assert [how.kind for how in told] == ["exited"]


def test_a_container_that_nobody_can_tell_from_others_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_token(_pid: int) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    with LocalLauncher(tmp_path) as launcher:
        with monkeypatch.context() as broken:
            broken.setattr(local, "start_token", no_token)
            with pytest.raises(LauncherError, match=r"'worker-1' of flow could not be started: .*Too many open files"):
                launcher.launch(request())
        assert not list((tmp_path / "containers" / "flow").iterdir())


def test_who_may_open_no_more_files_is_told_in_a_line_and_may_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_pid: int) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    with LocalLauncher(tmp_path) as launcher:
        container = launcher.launch(request())
        with monkeypatch.context() as broken:
            broken.setattr(local, "start_token", refused)
            with pytest.raises(LauncherError, match=r"'worker-1' of flow cannot be looked at just now: .*Too many"):
                launcher.poll(container)
            with pytest.raises(LauncherError, match=r"'worker-1' of flow cannot be looked at just now: .*Too many"):
                launcher.containers("here:1", "flow")
            with pytest.raises(ContainerUnreachable, match=r"'worker-1' of flow may still run: .*Too many open files"):
                launcher.kill(container)
        assert launcher.poll(container) is None
        launcher.kill(container)
        assert launcher.poll(container) is not None


def test_what_a_power_failure_has_spoilt_goes_as_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "KEPT_MAX", 2)
    with LocalLauncher(tmp_path) as launcher:
        spoilt, *others = [launcher.launch(request([sys.executable, "-c", ""])) for _ in range(2)]
        wait_until(lambda: all(map(launcher.poll, [spoilt, *others])), what="their ends")
        Path(spoilt.directory, keeper.DESCRIPTOR).write_bytes(b"")
        others.append(launcher.launch(request()))
        assert not Path(spoilt.directory).exists()
        assert launcher.all_containers("flow") == others


def test_what_a_power_failure_has_spoilt_goes_with_the_last_of_its_dataflow(tmp_path: Path) -> None:
    with LocalLauncher(tmp_path) as launcher:
        ended, runs = launcher.launch(request([sys.executable, "-c", ""])), launcher.launch(request())
        last = launcher.launch(request())
        wait_until(lambda: launcher.poll(ended), what="its end")
        whole = Path(runs.directory, keeper.DESCRIPTOR).read_bytes()
        for container in (ended, runs):
            Path(container.directory, keeper.DESCRIPTOR).write_bytes(b"{")
        launcher.forget(last)
        assert not Path(ended.directory).exists()
        assert launcher.poll(runs) is None, "one that a newer version has written may run"
        Path(runs.directory, keeper.DESCRIPTOR).write_bytes(whole)
        launcher.forget(runs)
        assert launcher.dataflows() == []


def test_what_says_that_a_dataflow_runs_here_is_durable_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who revives what ran before a power failure goes by it."""
    sync, durable = os.fsync, list[int]()

    def synced(descriptor: int) -> None:
        sync(descriptor)
        durable.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", synced)
    with LocalLauncher(tmp_path) as launcher:
        directory = Path(launcher.launch(request()).directory)
    places = [directory / keeper.DESCRIPTOR, directory]
    assert [place.stat().st_ino for place in places] == durable


def test_a_keeper_that_dies_at_once_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(directory: Path) -> subprocess.Popen[bytes]:
        (directory / keeper.KEEPER_LOG).write_text("no more threads")
        child = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        return child

    monkeypatch.setattr(local, "_start_keeper", dying)
    with LocalLauncher(tmp_path) as launcher:
        with pytest.raises(LauncherError, match="'worker-1' died at once: no more threads"):
            launcher.launch(request())
        assert not list((tmp_path / "containers" / "flow").iterdir()), "each try would leave another one"


def test_what_is_forgotten_is_gone_though_its_end_is_written_down_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalLauncher(tmp_path) as launcher:
        container = launcher.launch(request([sys.executable, "-c", ""]))
        wait_until(lambda: launcher.poll(container), what="its end")
        directory, real, late = Path(container.directory), os.rmdir, ["exit", ".exit-1-1"]

        def rmdir(path: str, *, dir_fd: int | None = None) -> None:
            if late and Path(path) == directory:
                (directory / late.pop()).write_text("somebody was late")
            real(path, dir_fd=dir_fd)

        monkeypatch.setattr(os, "rmdir", rmdir)
        launcher.forget(container)
        assert not directory.parent.exists()


def test_the_home_is_what_the_environment_says_and_else_below_the_users(tmp_path: Path) -> None:
    assert scribengin_home({"SCRIBENGIN_HOME": str(tmp_path)}) == tmp_path
    assert scribengin_home({}) == Path.home() / ".scribengin"
