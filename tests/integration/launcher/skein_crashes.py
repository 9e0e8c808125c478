"""A skein application whose master dies in the middle of a launch, at another step each time: `skein_crashes.py
REGISTRY FOLDER`. Each next master looks at what the one before has left. The application's last words are `held`, or
why not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from yarn_crashes import CODE, RECORDS, left_behind, look_at_started, marker, verdict

from scribengin.launcher.contract import ContainerDescriptor, ContainerExit
from scribengin.launcher.skein.client import SkeinApplication
from scribengin.launcher.skein.fleet import SkeinFleet
from scribengin.launcher.skein.spec import PYTHON_VARIABLE
from scribengin.launcher.yarn.application_master.launcher import YarnLauncher
from scribengin.launcher.yarn.container_records import ContainerRecords
from scribengin.launcher.yarn.launching import Kit
from scribengin.testing.waiting import wait_until
from scribengin_registry.opening import connect

STOPS = ("skein.add:before", "skein.add:after", "skein.trace_place:before", "yarn.trace_end:before")
RUNS = "skein.trace_place:after"
_TIMEOUT_S = 120.0


def main(hosts: str, folder: Path) -> None:
    """Be the application's master, or die on the way."""
    with connect(hosts, session_timeout_s=60) as registry:
        before = left_behind(registry)
        application = SkeinApplication()
        fleet = SkeinFleet(application, ContainerRecords(registry, RECORDS), print)
        with YarnLauncher(fleet, Kit(python=os.environ[PYTHON_VARIABLE])) as launcher:
            stops = (*STOPS, RUNS)
            words = verdict(registry, launcher, stops, lambda stop: look(launcher, before, stop, folder), folder)
        fleet.close()
        application.shutdown(succeeded=words == "held", message=words)


def look(launcher: YarnLauncher, left: dict[str, ContainerDescriptor], stop: str, folder: Path) -> None:
    """Compare what became of the container with what must have."""
    assert stop in left, f"no trace was left at {stop}"
    told: list[ContainerExit] = []
    launcher.on_exit(lambda container, how: told.append(how) if container.name == stop else None)
    launcher.attach(left[stop])
    if stop == RUNS:
        assert launcher.poll(left[stop]) is None, "a worker that ran was lost with its master"
    if stop.startswith("skein"):
        look_at_started(launcher, left[stop], told, folder)
    else:
        wait_until(lambda: told, _TIMEOUT_S, f"word of the container of {stop}")
        assert (told[0].kind, told[0].code) == ("exited", CODE), f"the exit was lost at {stop}: {told[0]}"
    if stop == "skein.add:before":
        assert not marker(folder, stop).exists(), f"something was started although its master died at {stop}"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
