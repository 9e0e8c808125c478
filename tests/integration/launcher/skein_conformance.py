"""A skein application whose master holds the launcher against its contract: `skein_conformance.py REGISTRY FOLDER
[contract]`. The application's last words are `held`, or why not. `contract` leaves out what the suite does not have.

All promises are held: a master that dies leaves its workers. What no promise of the suite speaks of is the death of
skein's own application master, with which they all die: that is tested with whole dataflows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from yarn_conformance import CONTRACT_ALONE, verdict, what_nobody_has_room_for_is_refused

from scribengin.base.threads import background
from scribengin.launcher.contract import ContainerDescriptor, ContainerRequest
from scribengin.launcher.skein.client import SkeinApplication
from scribengin.launcher.skein.fleet import SkeinFleet
from scribengin.launcher.skein.spec import EXIT_LOG, PYTHON_VARIABLE
from scribengin.launcher.yarn.application_master.launcher import YarnLauncher
from scribengin.launcher.yarn.client import node_web
from scribengin.launcher.yarn.container_records import ContainerRecords
from scribengin.launcher.yarn.launching import Kit
from scribengin.testing.waiting import wait_until
from scribengin_registry.opening import connect


def main(hosts: str, folder: Path, *, contract_alone: bool) -> None:
    """Be the application's master."""
    with connect(hosts, session_timeout_s=30) as registry:
        registry.create("/conformance")
        application = SkeinApplication()
        fleet = SkeinFleet(application, ContainerRecords(registry, "/conformance/containers"), print)
        kit = Kit(python=os.environ[PYTHON_VARIABLE])
        more: list[Callable[[YarnLauncher], None]] = [
            # An application's workers have one size for its life.
            lambda launcher: what_nobody_has_room_for_is_refused(launcher, 100_000),
            a_node_that_does_not_answer_once_is_asked_again,
            lambda launcher: who_ends_beside_a_killed_one_is_known_to_have_ended(launcher, folder),
        ]
        words = verdict(lambda: YarnLauncher(fleet, kit), *([] if contract_alone else more))
        fleet.close()
        application.shutdown(succeeded=words == "held", message=words)


class _DeafOnce:
    """The way to a node, which does not tell a worker's exit code when it is first asked."""

    def __init__(self) -> None:
        self._open = node_web._DIRECT.open
        self.asked = 0

    def open(self, request: Any, timeout: float) -> Any:
        if f"/logs/{EXIT_LOG}?" in str(request):
            self.asked += 1
            if self.asked == 1:
                raise OSError("as an example")
        return self._open(request, timeout=timeout)


def a_node_that_does_not_answer_once_is_asked_again(launcher: YarnLauncher) -> None:
    """Before it is said that nobody knows how a worker ended."""
    request = ContainerRequest("here:1", "conformance", "told-late", [sys.executable, "-c", "raise SystemExit(3)"], 256)
    with patch.object(node_web, "_DIRECT", deaf := _DeafOnce()):
        container = launcher.launch(request)
        wait_until(lambda: launcher.poll(container), what="word of its end")
    told = launcher.poll(container)
    assert told is not None
    assert (told.kind, told.code, deaf.asked) == ("exited", 3, 2), f"told as {told}, asked {deaf.asked} times"


ENDING = 8
"""Skein hears of YARN at every five seconds at the latest, and they end within eight."""
_WAITS = """
import sys, time
from pathlib import Path
go, number = Path(sys.argv[1]), int(sys.argv[2])
while not go.exists():
    time.sleep(0.1)
time.sleep(number)
raise SystemExit(40 + number)
"""


def who_ends_beside_a_killed_one_is_known_to_have_ended(launcher: YarnLauncher, folder: Path) -> None:
    """Skein hears of both in one heartbeat. When that is, nobody is told: they end one after the other around it.

    Of what YARN tells in one heartbeat, skein 0.8.2 drops all behind a container that its application has stopped at
    its node (-105). It stops none so: those that it kills it gives back to YARN, which tells them otherwise (-100).
    """
    go = folder / "go"

    def launched(name: str, *argv: str) -> ContainerDescriptor:
        return launcher.launch(ContainerRequest("here:1", "conformance", name, [sys.executable, "-c", *argv], 256))

    killed = [launched(f"killed-{number}", "import time; time.sleep(600)") for number in range(2)]
    ending = [launched(f"ending-{number}", _WAITS, str(go), str(number)) for number in range(ENDING)]
    wait_until(lambda: not launcher.waiting(), 120, what="room for all")
    go.touch()
    kills = [background(one.name, partial(launcher.kill, one)) for one in killed]
    for kill in kills:
        kill.start()
    wait_until(lambda: all(launcher.poll(one) is not None for one in ending), 120, what="word of all ends")
    codes = [told.code for one in ending if (told := launcher.poll(one)) is not None]
    assert codes == [40 + number for number in range(ENDING)], f"told {codes}"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), contract_alone=sys.argv[3:] == [CONTRACT_ALONE])
