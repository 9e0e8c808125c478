"""A master that is the application master of its dataflow on YARN.

There is one at a time and no standby: when it dies, YARN starts another attempt, which finds the workers again and
leads as soon as the registry has given the dead one up. What ends here without the dataflow being over is such a death.
"""

from __future__ import annotations

import logging
import os
import signal
from contextlib import closing

from scribengin.base.clock import Clock
from scribengin.base.diagnostics import tagged
from scribengin.base.jvm import yarn_configuration
from scribengin.dataflow.registry.descriptors import DataflowStatus
from scribengin.dataflow.registry.view import DataflowView, new_master_name
from scribengin.errors import DataflowNotFound
from scribengin.launcher.local.launcher import scribengin_home
from scribengin.launcher.yarn.application_master.fleet import Fleet
from scribengin.launcher.yarn.application_master.launcher import YarnLauncher, kit_from_environment
from scribengin.launcher.yarn.application_master.resource_manager import ApplicationMaster
from scribengin.launcher.yarn.config import YarnConfig
from scribengin.launcher.yarn.container_records import ContainerRecords
from scribengin.launcher.yarn.security import TokenRenewal
from scribengin.master.leadership import Ending, MasterSettings
from scribengin.master.process import run_master
from scribengin_registry.contract import Registry

_LOG = logging.getLogger(__name__)

NEXT_ATTEMPT = 75
"""The exit code of a master that leaves its dataflow to the next attempt."""


def lead_application(registry: Registry, dataflow: str, first_name: str, clock: Clock) -> int:
    """Be the master of `dataflow` as this application, `first_name` being that of its first attempt.

    Returns the exit code. Raises LauncherError, RegistryError, what run_master raises: YARN starts the next attempt.
    """
    view = DataflowView(registry, dataflow)
    try:
        yarn = view.config_in_force().value.yarn
    except DataflowNotFound as error:
        ApplicationMaster(YarnConfig()).unregister(succeeded=False, message=str(error))
        raise
    kit = kit_from_environment()
    master = ApplicationMaster(yarn)
    name = first_name if master.attempt == 1 else new_master_name(view)
    settings = MasterSettings(dataflow, name, scribengin_home(), standbys=0)
    fleet = Fleet(master, ContainerRecords(registry, view.paths.containers), end_this_process)
    renewal = TokenRenewal(yarn_configuration(), yarn.security, yarn.security.file_systems, clock)
    with closing(renewal), YarnLauncher(fleet, kit, clock, renewal.current, renewal.age_max_ms) as launcher:
        ending = run_master(registry, launcher, settings, clock)
    fleet.close()
    if ending is not Ending.OVER:
        return NEXT_ATTEMPT
    status = view.status()
    master.unregister(succeeded=status.state != "failed", message=last_words(status))
    master.close()
    return 0


def end_this_process(why: str) -> None:
    """Called on a thread of the fleet's: the main thread hears of it as of any other wish to end this process."""
    _LOG.warning(why, extra=tagged("application_ended"))
    os.kill(os.getpid(), signal.SIGTERM)


def last_words(status: DataflowStatus) -> str:
    """What the application says at its end."""
    return f"dataflow '{status.dataflow}' is {status.state}" + (f": {status.error}" if status.error else "")
