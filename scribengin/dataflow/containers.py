"""The containers of a dataflow: workers and standby masters as commands, and where they are to be found.

`place_of` is for whoever stands outside and finds or ends a dataflow's processes; a master has a launcher of its own.
What belongs to YARN is imported when a dataflow asks for it: it needs a JVM.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.dataflow.config import DataflowConfig
from scribengin.launcher.contract import HOME_VARIABLE, ContainerPlace, ContainerRequest
from scribengin.launcher.local.launcher import LocalLauncher

_MASTER_MEMORY_MB = 1024


def worker_request(config: DataflowConfig, name: str, hosts: str, home: Path) -> ContainerRequest:
    """A worker of the dataflow, as its config sizes it."""
    argv = [*_module("scribengin.worker", config, hosts), "--worker", name]
    package = package_in_container(config)
    if package is not None:
        argv += ["--package", package]
    container = config.container
    return ContainerRequest(
        hosts, config.name, name, argv, container.memory_mb, container.cores, _environment(config, home)
    )


def master_request(config: DataflowConfig, name: str, hosts: str, home: Path, standbys: int) -> ContainerRequest:
    """A master of the dataflow, which leads when it is elected. On YARN, attempts take the place of standbys."""
    argv = [*_module("scribengin.master", config, hosts), "--name", name, "--launcher", config.launcher]
    if config.launcher == "local":
        argv += ["--home", str(home), "--standbys", str(standbys)]
        return ContainerRequest(hosts, config.name, name, argv, _MASTER_MEMORY_MB, env=_environment(config, home))
    size = config.yarn.master
    return ContainerRequest(hosts, config.name, name, argv, size.memory_mb, size.cores)


def _environment(config: DataflowConfig, home: Path) -> dict[str, str]:
    """Elsewhere than here, a container's home is its own directory, and the launcher's to name."""
    return {HOME_VARIABLE: str(home)} if config.launcher == "local" else {}


def _module(module: str, config: DataflowConfig, hosts: str) -> list[str]:
    timeout = ["--session-timeout-s", str(config.session_timeout_s)]
    return [sys.executable, "-m", module, "--registry", hosts, "--dataflow", config.name, *timeout]


def place_of(config: DataflowConfig, home: Path, clock: Clock = SYSTEM_CLOCK) -> ContainerPlace:
    """Where the containers of a dataflow are, to find and to end them. Raises ConfigInvalid, LauncherError."""
    if config.launcher == "local":
        return LocalLauncher(home, clock)
    from scribengin.launcher.yarn.client.applications import YarnApplications

    return YarnApplications(config.yarn, clock=clock)


def package_in_container(config: DataflowConfig) -> str | None:
    """Where a worker's container has the package, relative to its working directory or absolute."""
    if config.launcher == "local" or config.package is None:
        return config.package
    from scribengin.launcher.yarn.launching import PACKAGE

    return PACKAGE
