"""A master that is a container of its dataflow's skein application.

There is one at a time and no standby: when it dies, skein starts another, which finds the workers again. When skein's
own application master dies, workers and master die with it; YARN starts that again, and it a master, which has new
workers launched: they go on where the commit logs say.
"""

from __future__ import annotations

import os
from contextlib import closing

from scribengin.base.clock import Clock
from scribengin.dataflow.registry.view import DataflowView, new_master_name
from scribengin.errors import DataflowNotFound
from scribengin.launcher.local.launcher import scribengin_home
from scribengin.launcher.skein.client import SkeinApplication
from scribengin.launcher.skein.fleet import SkeinFleet
from scribengin.launcher.skein.spec import PYTHON_VARIABLE
from scribengin.launcher.yarn.application_master.launcher import YarnLauncher
from scribengin.launcher.yarn.container_records import ContainerRecords
from scribengin.launcher.yarn.launching import Kit
from scribengin.master.leadership import Ending, MasterSettings
from scribengin.master.on_yarn import NEXT_ATTEMPT, end_this_process, last_words
from scribengin.master.process import run_master
from scribengin_registry.contract import Registry


def lead_skein_application(registry: Registry, dataflow: str, first_name: str, clock: Clock) -> int:
    """Be the master of `dataflow` in this application, `first_name` being that of its first one.

    Returns the exit code. Raises LauncherError, RegistryError, what run_master raises: skein starts the next master.
    """
    view = DataflowView(registry, dataflow)
    with closing(SkeinApplication()) as application:
        try:
            size = view.config_in_force().value.yarn.master
        except DataflowNotFound as error:
            application.shutdown(succeeded=False, message=str(error))
            raise
        name = first_name if application.first_master else new_master_name(view)
        settings = MasterSettings(dataflow, name, scribengin_home(), standbys=0)
        fleet = SkeinFleet(application, ContainerRecords(registry, view.paths.containers), end_this_process, clock)
        fleet.sign(registry.hosts, dataflow, name, size.memory_mb, size.cores)
        with closing(fleet), YarnLauncher(fleet, Kit(python=os.environ[PYTHON_VARIABLE]), clock) as launcher:
            ending = run_master(registry, launcher, settings, clock)
        if ending is not Ending.OVER:
            return NEXT_ATTEMPT
        status = view.status()
        application.shutdown(succeeded=status.state != "failed", message=last_words(status))
    return 0
