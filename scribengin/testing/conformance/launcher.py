"""Holds a `ContainerLauncher` against its contract: run `check_launcher` on your own.

    check_launcher(lambda: MyLauncher(...))

Each call of `make_launcher` makes another launcher object of the same place, as another master would have.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from scribengin.launcher.contract import ContainerDescriptor, ContainerExit, ContainerLauncher, ContainerRequest
from scribengin.launcher.local.processes import start_token
from scribengin.testing.waiting import wait_until

MakeLauncher = Callable[[], ContainerLauncher]
_REGISTRY, _FLOW = "here:1", "conformance"
_TIMEOUT_S = 90.0  # where a container is given room by a cluster, that may take a while
_SLEEP = "import threading; threading.Event().wait()"
_FAMILY = f"""
import subprocess, sys, threading
command = [sys.executable, "-c", {_SLEEP!r}]
children = [subprocess.Popen(command), subprocess.Popen(command, start_new_session=True)]
print(*[child.pid for child in children], flush=True)
threading.Event().wait()
"""
_ORPHAN = f"""
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", {_SLEEP!r}], start_new_session=True).pid, flush=True)
"""
_GREEDY = """
import threading
held = []
for _ in range(16):  # twice its limit, and no further: what else there is of limits, as YARN's, must not be first
    held.append(b"x" * (16 * 1024 * 1024))
    threading.Event().wait(0.02)
threading.Event().wait()
"""


class _Exits:
    """The exits that a launcher told of, by container id."""

    def __init__(self, launcher: ContainerLauncher) -> None:
        self._lock = threading.Lock()
        self._told: list[tuple[str, ContainerExit]] = []
        launcher.on_exit(self._tell)

    def _tell(self, container: ContainerDescriptor, exit_: ContainerExit) -> None:
        with self._lock:
            self._told.append((container.id, exit_))

    def of(self, container: ContainerDescriptor) -> list[ContainerExit]:
        with self._lock:
            return [exit_ for told, exit_ in self._told if told == container.id]

    def wait(self, container: ContainerDescriptor, timeout_s: float = _TIMEOUT_S) -> ContainerExit:
        wait_until(lambda: self.of(container), timeout_s, f"word of the end of {container.id}")
        return self.of(container)[0]


def check_launcher(make_launcher: MakeLauncher, cannot: Mapping[str, str] | None = None) -> None:
    """Raises AssertionError with a sentence for the first promise that is not held. Takes some seconds.

    `cannot` names promises (of PROMISES) that this launcher does not give, each with its reason: they are printed, and
    not checked.
    """
    cannot = cannot or {}
    unknown = set(cannot) - set(PROMISES)
    assert not unknown, f"{', '.join(sorted(unknown))}: no promise is called so; there are {', '.join(PROMISES)}"
    for name, check in _CHECKS.items():
        if name in cannot:
            print(f"not promised: {name}: {cannot[name]}")
        else:
            check(make_launcher)


def _request(name: str, program: str, *arguments: str, memory_mb: int = 256) -> ContainerRequest:
    return ContainerRequest(
        _REGISTRY,
        _FLOW,
        name,
        [sys.executable, "-c", program, *arguments],
        memory_mb,
        env={"SCRIBENGIN_CONFORMANCE": "å b"},
    )


@contextmanager
def _running(launcher: ContainerLauncher, name: str, program: str) -> Iterator[ContainerDescriptor]:
    container = launcher.launch(_request(name, program))
    try:
        yield container
    finally:
        launcher.kill(container)


def _an_exit_is_told_once_with_its_code(make_launcher: MakeLauncher) -> None:
    with make_launcher() as launcher:
        exits = _Exits(launcher)
        for code in (0, 7):
            container = launcher.launch(_request("exits", f"raise SystemExit({code})"))
            told = exits.wait(container)
            assert (told.kind, told.code) == ("exited", code), f"a process that exits with {code} was told as {told}"
            assert launcher.poll(container) == told, "poll() must say what the listener was told"
            launcher.attach(container)
            launcher.kill(container)
            assert launcher.poll(container) == told, "kill() must not change how a container ended"
            assert exits.of(container) == [told], "an exit must be told once"


def _output_and_environment_arrive(make_launcher: MakeLauncher) -> None:
    program = (
        "import os, sys; print(os.environ['SCRIBENGIN_CONFORMANCE'], sys.argv[1]); print('to stderr', file=sys.stderr)"
    )
    with make_launcher() as launcher:
        exits = _Exits(launcher)
        container = launcher.launch(_request("output", program, "an argument"))
        exits.wait(container)
        assert launcher.log_tail(container, "stdout") == "å b an argument", "stdout, env or argv did not arrive whole"
        assert launcher.log_tail(container, "stderr") == "to stderr", "stderr did not arrive"


def _a_program_that_is_not_there_is_an_exit(make_launcher: MakeLauncher) -> None:
    with make_launcher() as launcher:
        exits = _Exits(launcher)
        container = launcher.launch(ContainerRequest(_REGISTRY, _FLOW, "absent", ["/no/such/program"], 256))
        told = exits.wait(container)
        assert told.code not in (0, None), f"a program that is not there ended as {told}"
        assert "/no/such/program" in told.reason, f"the reason does not name the program: {told.reason}"


def _kill_ends_everything_below_and_only_that(make_launcher: MakeLauncher) -> None:
    with make_launcher() as launcher, _running(launcher, "neighbour", _SLEEP) as neighbour:
        exits = _Exits(launcher)
        container = launcher.launch(_request("family", _FAMILY))
        children = _printed_pids(launcher, container, 2)
        assert launcher.poll(container) is None, "poll() says that a running container has ended"
        launcher.kill(container)
        alive = [pid for pid in children if start_token(pid) is not None]
        assert not alive, f"processes {alive} of a killed container still run"
        assert exits.wait(container).kind == "killed", f"a killed container was told as {exits.of(container)}"
        launcher.kill(container)
        assert launcher.poll(neighbour) is None, "killing a container ended another one"


def _an_orphan_ends_with_its_container(make_launcher: MakeLauncher) -> None:
    with make_launcher() as launcher:
        exits = _Exits(launcher)
        container = launcher.launch(_request("orphan", _ORPHAN))
        exits.wait(container)
        (orphan,) = _printed_pids(launcher, container, 1)
        assert start_token(orphan) is None, f"process {orphan} outlived its container"


def _the_memory_limit_is_held_with_a_reason(make_launcher: MakeLauncher) -> None:
    with make_launcher() as launcher:
        exits = _Exits(launcher)
        container = launcher.launch(_request("greedy", _GREEDY, memory_mb=128))
        told = exits.wait(container)
        assert told.kind == "memory", f"a container over its memory limit was told as {told}"
        assert "128" in told.reason, f"the reason does not name the limit: {told.reason}"


def _a_container_survives_its_launcher_and_is_found(make_launcher: MakeLauncher) -> None:
    with make_launcher() as first:
        container = first.launch(_request("survivor", _SLEEP))
    with make_launcher() as second:
        exits = _Exits(second)
        assert container in second.containers(_REGISTRY, _FLOW), "another launcher does not find a running container"
        found = ContainerDescriptor.from_bytes(container.to_bytes(), path="the test")
        assert not second.containers("elsewhere:1", _FLOW), "another registry's dataflow has this one's containers"
        second.attach(found)
        assert second.poll(found) is None, "a container ended with its launcher"
        second.kill(found)
        assert exits.wait(found).kind == "killed", f"an attached container's kill was told as {exits.of(found)}"
        assert container not in second.containers(_REGISTRY, _FLOW), "a killed container is still listed"


def _an_exit_between_two_launchers_is_not_lost(make_launcher: MakeLauncher) -> None:
    with make_launcher() as first:
        container = first.launch(_request("between", "raise SystemExit(5)"))
    with make_launcher() as second:
        exits = _Exits(second)
        second.attach(container)
        assert exits.wait(container).code == 5, f"the exit code was lost between two launchers: {exits.of(container)}"


def _names_may_repeat_and_ids_do_not(make_launcher: MakeLauncher) -> None:
    with (
        make_launcher() as launcher,
        _running(launcher, "twin", _SLEEP) as one,
        _running(launcher, "twin", _SLEEP) as two,
    ):
        assert one.id != two.id, "two containers have one id"
        launcher.kill(one)
        assert launcher.poll(two) is None, "killing a container ended another one of its name"


def _a_signal_from_outside_is_an_exit(make_launcher: MakeLauncher) -> None:
    with make_launcher() as launcher:
        exits = _Exits(launcher)
        container = launcher.launch(_request("shot", f"import os; print(os.getpid(), flush=True); {_SLEEP}"))
        (pid,) = _printed_pids(launcher, container, 1)
        os.kill(pid, signal.SIGKILL)
        told = exits.wait(container)
        assert told.kind in ("exited", "lost"), f"a process that somebody shot was told as {told}"
        assert told.code == -signal.SIGKILL, f"a process that somebody shot was told as {told}"


def _printed_pids(launcher: ContainerLauncher, container: ContainerDescriptor, count: int) -> list[int]:
    def printed() -> list[str]:
        return launcher.log_tail(container, "stdout").split()

    wait_until(lambda: len(printed()) >= count, _TIMEOUT_S, f"{count} process ids from {container.id}")
    return [int(pid) for pid in printed()]


_CHECKS: Mapping[str, Callable[[MakeLauncher], None]] = {
    "an exit is told once with its code": _an_exit_is_told_once_with_its_code,
    "output and environment arrive": _output_and_environment_arrive,
    "a program that is not there is an exit": _a_program_that_is_not_there_is_an_exit,
    "kill ends everything below, and only that": _kill_ends_everything_below_and_only_that,
    "an orphan ends with its container": _an_orphan_ends_with_its_container,
    "the memory limit is held, with a reason": _the_memory_limit_is_held_with_a_reason,
    "a container survives its launcher and is found": _a_container_survives_its_launcher_and_is_found,
    "an exit between two launchers is not lost": _an_exit_between_two_launchers_is_not_lost,
    "names may repeat, and ids do not": _names_may_repeat_and_ids_do_not,
    "a signal from outside is an exit": _a_signal_from_outside_is_an_exit,
}
PROMISES = tuple(_CHECKS)
"""What a launcher promises, by the names that `cannot` takes."""
