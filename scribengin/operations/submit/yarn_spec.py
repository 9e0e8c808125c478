"""A dataflow's specification for skein, as it would be submitted: nothing is uploaded, and no server is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.containers import master_request
from scribengin.launcher.skein.spec import WorkerSize, application_spec
from scribengin.launcher.yarn.shipping.shipping import Shipping
from scribengin.operations.submit.shipping import shipped
from scribengin.operations.submit.submit import FIRST_MASTER
from scribengin.operations.submit.yarn_environment import Say, with_environment


def spec_of(config: DataflowConfig, hosts: str, home: Path, say: Say) -> dict[str, Any]:
    """What `launcher: skein` submits for the registry at `hosts`. Packs the Python environment where that is to be
    shipped, for its name is its content's. Raises ConfigInvalid, PackageInvalid, LauncherError."""
    config = config.model_copy(update={"launcher": "skein"})
    config = shipped(with_environment(config, home, say, uploads=False), home, uploads=False)
    kit = Shipping(config.yarn, home, uploads=False).kit(config.package)
    worker = WorkerSize(config.container.memory_mb, config.container.cores)
    return application_spec(config.yarn, kit, master_request(config, FIRST_MASTER, hosts, home, standbys=0), worker)
