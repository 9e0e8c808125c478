"""`python -m scribengin.worker`: what a master launches."""

from __future__ import annotations

import argparse
import logging

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.diagnostics import tagged
from scribengin.base.process.lifetime import connect_patiently, run_process
from scribengin.errors import ScribenginError
from scribengin.worker.process import WorkerSettings, run_worker

_LOG = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Parse the command line and be a worker. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="scribengin.worker", description="A worker of one dataflow.")
    parser.add_argument("--registry", required=True, help="host:port,host:port/path of the registry")
    parser.add_argument("--dataflow", required=True)
    parser.add_argument("--worker", required=True, help="a name that this dataflow never had")
    parser.add_argument("--container", default="", help="what the launcher calls this process (default: the name)")
    parser.add_argument("--package", default=None, help="where this machine has the dataflow's package")
    parser.add_argument("--session-timeout-s", type=float, default=6.0)
    options = parser.parse_args(arguments)
    settings = WorkerSettings(options.dataflow, options.worker, options.container or options.worker, options.package)
    try:
        with connect_patiently(options.registry, options.session_timeout_s) as registry:
            return run_worker(registry, settings, SYSTEM_CLOCK)
    except ScribenginError as error:
        _LOG.warning(str(error), extra=tagged("worker_failed"))
        return error.exit_code


if __name__ == "__main__":
    run_process(main)
