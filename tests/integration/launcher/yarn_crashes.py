"""An application on YARN whose master dies in the middle of a launch, another step each attempt: `yarn_crashes.py
REGISTRY FOLDER [STOP...]`. Each next attempt looks at what the one before has left. Its last words are `held`, or why
not."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from scribengin.launcher.contract import ContainerDescriptor, ContainerExit, ContainerRequest
from scribengin.launcher.local.processes import start_token
from scribengin.launcher.yarn.application_master.fleet import Fleet
from scribengin.launcher.yarn.application_master.launcher import YarnLauncher, kit_from_environment
from scribengin.launcher.yarn.application_master.resource_manager import ApplicationMaster
from scribengin.launcher.yarn.config import YarnConfig
from scribengin.launcher.yarn.container_records import ContainerRecords
from scribengin.testing.failpoints import at_failpoint, kill_this_process
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect

STOPS = (
    "yarn.trace:after",
    "yarn.trace_place:before",
    "yarn.start:before",
    "yarn.start:after",
    "yarn.trace_end:before",
    "yarn.trace_end:after",
)
A_FEW = ("yarn.trace_place:before", "yarn.start:after")
NOT_STARTED = STOPS[:3]
ENDED = STOPS[4:]
RECORDS = "/crashes/containers"
STEP = "/crashes/step"
CODE = 5
_TIMEOUT_S = 120.0
_PROGRAM = """
import os, sys, threading
from pathlib import Path
Path(sys.argv[1]).write_text(str(os.getpid()))
if sys.argv[2]:
    sys.exit(int(sys.argv[2]))
threading.Event().wait()
"""


def main(hosts: str, folder: Path, stops: Sequence[str]) -> None:
    """Be the application, or die on the way."""
    with connect(hosts, session_timeout_s=60) as registry:
        master = ApplicationMaster(YarnConfig())
        before = left_behind(registry)
        fleet = Fleet(master, ContainerRecords(registry, RECORDS), print)
        with YarnLauncher(fleet, kit_from_environment()) as launcher:
            words = verdict(registry, launcher, stops, lambda stop: look(launcher, before, stop, folder), folder)
        fleet.close()
        master.unregister(succeeded=words == "held", message=words)


def left_behind(registry: Registry) -> dict[str, ContainerDescriptor]:
    """The containers whose records the last master has left, by name: before anybody changes them. The first master of
    all makes the nodes for these."""
    if registry.find(STEP) is None:
        registry.create(STEP, b"0", parents=True)
    return {trace.container.name: trace.container for trace in ContainerRecords(registry, RECORDS).all()}


def verdict(
    registry: Registry, launcher: YarnLauncher, stops: Sequence[str], look_at: Callable[[str], None], folder: Path
) -> str:
    """Look at what the last step has left, then die at the next one; `held` after the last one, or why not."""
    step = int(registry.get(STEP).data)  # and not the attempt: YARN may give one up that is slow to start
    try:
        if step > 0:
            look_at(stops[step - 1])
        if step < len(stops):
            registry.set(STEP, str(step + 1).encode())
            die_at(launcher, stops[step], folder)
    except AssertionError:
        return traceback.format_exc()
    return "held"


def die_at(launcher: YarnLauncher, stop: str, folder: Path) -> None:
    """Launch a container that is named for the stop, and do not get further."""
    code = str(CODE) if stop in ENDED else ""
    argv = [sys.executable, "-c", _PROGRAM, str(marker(folder, stop)), code]
    with at_failpoint(stop, kill_this_process):
        launcher.launch(ContainerRequest("here:1", "crashes", stop, argv, 256))
        wait_until(lambda: False, _TIMEOUT_S, f"this master's death at {stop}")


def look(launcher: YarnLauncher, left: dict[str, ContainerDescriptor], stop: str, folder: Path) -> None:
    """Compare what became of the container with what must have."""
    assert stop in left, f"no trace was left at {stop}"
    told: list[ContainerExit] = []
    launcher.on_exit(lambda container, how: told.append(how) if container.name == stop else None)
    launcher.attach(left[stop])
    if stop == "yarn.start:after":
        look_at_started(launcher, left[stop], told, folder)
        return
    wait_until(lambda: told, _TIMEOUT_S, f"word of the container of {stop}")
    if stop in NOT_STARTED:
        assert told[0].kind == "lost", f"at {stop} nothing was started, and it was told as {told[0]}"
        assert not marker(folder, stop).exists(), f"something was started although its master died at {stop}"
    else:
        assert (told[0].kind, told[0].code) == ("exited", CODE), f"the exit was lost at {stop}: {told[0]}"


def look_at_started(
    launcher: YarnLauncher, container: ContainerDescriptor, told: list[ContainerExit], folder: Path
) -> None:
    """It runs and is known, or YARN had not heard of it yet and ends it: nothing runs that nobody knows."""
    started = marker(folder, container.name)
    wait_until(lambda: told or started.exists(), _TIMEOUT_S, "the started container, or word of its end")
    if not told:
        launcher.kill(container)
    wait_until(lambda: told, _TIMEOUT_S, "word of the container's end")
    if started.exists() and (pid := started.read_text()):
        wait_until(lambda: start_token(int(pid)) is None, _TIMEOUT_S, f"process {pid} to be gone")


def marker(folder: Path, stop: str) -> Path:
    """The file that a container writes when it runs."""
    return folder / stop.replace(":", "-")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:] or STOPS)
