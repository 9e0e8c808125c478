"""`python -m scribengin.master`: what `submit` launches, and every leading master once more behind itself."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.diagnostics import configure_logging, tagged
from scribengin.base.process.lifetime import connect_patiently, run_process
from scribengin.errors import ScribenginError
from scribengin.launcher.local.launcher import LocalLauncher, scribengin_home
from scribengin.launcher.local.output import rotation_of_own_files
from scribengin.master.leadership import MasterSettings
from scribengin.master.process import run_master

_LOG = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Parse the command line and be a master. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="scribengin.master", description="A master of one dataflow.")
    parser.add_argument("--registry", required=True, help="host:port,host:port/path of the registry")
    parser.add_argument("--dataflow", required=True)
    parser.add_argument("--name", required=True, help="this master's name, also its container's")
    parser.add_argument("--home", type=Path, default=None, help="default: $SCRIBENGIN_HOME, else ~/.scribengin")
    parser.add_argument("--standbys", type=int, default=1, help="how many masters wait behind the one that leads")
    parser.add_argument(
        "--launcher", choices=("local", "yarn", "skein"), default="local", help="what runs this process"
    )
    parser.add_argument("--session-timeout-s", type=float, default=6.0)
    options = parser.parse_args(arguments)
    # On YARN nobody stands between this process and the files that were opened for it.
    rotate = None if options.launcher == "local" else rotation_of_own_files()
    configure_logging(rotate=rotate, dataflow=options.dataflow, master=options.name)
    try:
        with connect_patiently(options.registry, options.session_timeout_s) as registry:
            if options.launcher == "yarn":
                from scribengin.master.on_yarn import lead_application

                return lead_application(registry, options.dataflow, options.name, SYSTEM_CLOCK)
            if options.launcher == "skein":
                from scribengin.master.on_skein import lead_skein_application

                return lead_skein_application(registry, options.dataflow, options.name, SYSTEM_CLOCK)
            home = options.home or scribengin_home()
            settings = MasterSettings(options.dataflow, options.name, home, options.standbys)
            with LocalLauncher(home) as launcher:
                run_master(registry, launcher, settings, SYSTEM_CLOCK)
    except ScribenginError as error:
        _LOG.warning(f"{options.name} ended: {error}", extra=tagged("master_failed"))
        return error.exit_code
    return 0


if __name__ == "__main__":
    run_process(main)
