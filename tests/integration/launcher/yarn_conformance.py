"""An application on YARN that holds the launcher against its contract: `yarn_conformance.py REGISTRY FOLDER`. Its last
words are `held`, or why not.

Each launcher is another object on the one fleet of this master; what a second master finds is tested with whole
dataflows, where a master is killed.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from scribengin.errors import LauncherError
from scribengin.launcher.contract import ContainerRequest
from scribengin.launcher.yarn.application_master.fleet import Fleet
from scribengin.launcher.yarn.application_master.launcher import YarnLauncher, kit_from_environment
from scribengin.launcher.yarn.application_master.resource_manager import ApplicationMaster
from scribengin.launcher.yarn.config import YarnConfig
from scribengin.launcher.yarn.container_records import ContainerRecords
from scribengin.testing.conformance.launcher import check_launcher
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.waiting import wait_until
from scribengin_registry.opening import connect

CONTRACT_ALONE = "contract"
"""A word for a program as this one that is to leave out what the suite does not have."""
LARGE_MB = 4096
"""The most that a container may have on the YARN of the tests: none of its two nodes has room for two."""


def main(hosts: str) -> None:
    """Be the application."""
    with connect(hosts, session_timeout_s=30) as registry:
        registry.create("/conformance")
        master = ApplicationMaster(YarnConfig())
        over: list[str] = []
        fleet = Fleet(master, ContainerRecords(registry, "/conformance/containers"), over.append)
        # YARN itself would refuse every heartbeat with such a request in it.
        words = verdict(
            lambda: YarnLauncher(fleet, kit_from_environment()),
            lambda launcher: what_nobody_has_room_for_is_refused(launcher, 1_000_000),
            what_waits_for_room_is_told,
            lambda launcher: what_nobody_has_foreseen_ends_the_master(launcher, over),  # the last thing it does
        )
        fleet.close()
        master.unregister(succeeded=words == "held", message=words)


def verdict(make: Callable[[], YarnLauncher], *more: Callable[[YarnLauncher], None]) -> str:
    """`held`, or why not: the contract, and what else is checked."""
    try:
        check_launcher(make)
        for check in more:
            check(make())
    except (AssertionError, LauncherError):
        return traceback.format_exc()
    return "held"


def what_nobody_has_room_for_is_refused(launcher: YarnLauncher, memory_mb: int) -> None:
    """At once, and it is not waited for."""
    said = "accepted"
    try:
        launcher.launch(ContainerRequest("here:1", "conformance", "huge", ["true"], memory_mb=memory_mb))
    except LauncherError as error:
        said = str(error)
    assert f"{memory_mb} MB" in said, f"a container that nobody has room for: {said}"
    assert not [c for c in launcher.containers("here:1", "conformance") if c.name == "huge"], "and it is waited for"


def what_waits_for_room_is_told(launcher: YarnLauncher) -> None:
    """Until there is room, or it is given up."""
    requests = [ContainerRequest("here:1", "conformance", f"large-{n}", ["sleep", "600"], LARGE_MB) for n in range(4)]
    launched = [launcher.launch(request) for request in requests]
    wait_until(lambda: 0 < len(launcher.waiting()) < len(launched), 60, "some to have room, and some to wait for it")
    for container in reversed(launched):  # first those that wait
        launcher.kill(container)
    assert not launcher.waiting()


def what_nobody_has_foreseen_ends_the_master(launcher: YarnLauncher, over: list[str]) -> None:
    """When a container is started; else YARN would take its room back in ten minutes, and nobody know why."""

    def fail(_stop: str) -> None:
        raise ZeroDivisionError("as an example")

    with at_failpoint("yarn.start:before", fail):
        launcher.launch(ContainerRequest("here:1", "conformance", "odd", ["true"], 256))
        wait_until(lambda: over, 60, "the master to be told that it cannot go on")
    assert "as an example" in over[0], over


if __name__ == "__main__":
    main(sys.argv[1])
