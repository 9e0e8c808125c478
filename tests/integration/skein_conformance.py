"""A skein application whose master holds the launcher against its contract: `skein_conformance.py REGISTRY FOLDER`. The
application's last words are `held`, or why not.

All promises are held: a master that dies leaves its workers. What no promise of the suite speaks of is the death of
skein's own application master, with which they all die: that is tested with whole dataflows.
"""

from __future__ import annotations

import os
import sys

from yarn_conformance import verdict, what_nobody_has_room_for_is_refused

from scribengin.launcher.skein.client import SkeinApplication
from scribengin.launcher.skein.fleet import SkeinFleet
from scribengin.launcher.skein.spec import PYTHON_VARIABLE
from scribengin.launcher.yarn.launcher import YarnLauncher
from scribengin.launcher.yarn.launching import Kit
from scribengin.launcher.yarn.trace import Traces
from scribengin_registry.kazoo_registry import connect


def main(hosts: str) -> None:
    """Be the application's master."""
    with connect(hosts, session_timeout_s=30) as registry:
        registry.create("/conformance")
        application = SkeinApplication()
        fleet = SkeinFleet(application, Traces(registry, "/conformance/containers"), print)
        kit = Kit(python=os.environ[PYTHON_VARIABLE])
        # An application's workers have one size for its life.
        words = verdict(
            lambda: YarnLauncher(fleet, kit), lambda launcher: what_nobody_has_room_for_is_refused(launcher, 100_000)
        )
        fleet.close()
        application.shutdown(succeeded=words == "held", message=words)


if __name__ == "__main__":
    main(sys.argv[1])
