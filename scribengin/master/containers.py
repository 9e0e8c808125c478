"""What a master has launched: workers and standby masters, as commands."""

from __future__ import annotations

import sys
from pathlib import Path

from scribengin.dataflow.config import DataflowConfig
from scribengin.launcher.contract import ContainerRequest

MASTER_MEMORY_MB = 1024


def worker_request(config: DataflowConfig, name: str, hosts: str, home: Path) -> ContainerRequest:
    """A worker of the dataflow, as its config sizes it."""
    argv = [
        *_module("scribengin.worker", config, hosts),
        *("--worker", name),
    ]
    return ContainerRequest(
        hosts,
        config.name,
        name,
        argv,
        config.container.memory_mb,
        config.container.cores,
        {"SCRIBENGIN_HOME": str(home)},
    )


def master_request(config: DataflowConfig, name: str, hosts: str, home: Path, standbys: int) -> ContainerRequest:
    """A master of the dataflow, which leads when it is elected."""
    argv = [
        *_module("scribengin.master", config, hosts),
        *("--name", name, "--home", str(home), "--standbys", str(standbys)),
    ]
    return ContainerRequest(hosts, config.name, name, argv, MASTER_MEMORY_MB, env={"SCRIBENGIN_HOME": str(home)})


def _module(module: str, config: DataflowConfig, hosts: str) -> list[str]:
    timeout = ["--session-timeout-s", str(config.session_timeout_s)]
    return [sys.executable, "-m", module, "--registry", hosts, "--dataflow", config.name, *timeout]
