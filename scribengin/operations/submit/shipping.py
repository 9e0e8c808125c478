"""What a dataflow takes along to where it runs, and the launcher of its first master.

What belongs to YARN is imported when a dataflow asks for it: it needs a JVM.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.dataflow.config import DataflowConfig
from scribengin.launcher.contract import ContainerPlace
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.operations.submit.package import pack_package, ship_package


def launching_place(config: DataflowConfig, home: Path, clock: Clock = SYSTEM_CLOCK) -> ContainerPlace:
    """The same, for the first master of a dataflow whose config is `shipped`. Raises ConfigInvalid, LauncherError."""
    if config.launcher == "local":
        return LocalLauncher(home, clock)
    from scribengin.launcher.yarn.client.applications import YarnApplications
    from scribengin.launcher.yarn.shipping.shipping import Shipping

    kit = Shipping(config.yarn, home).kit(config.package)
    if config.launcher == "yarn":
        return YarnApplications(config.yarn, kit, clock)
    from scribengin.launcher.skein.applications import SkeinApplications
    from scribengin.launcher.skein.spec import WorkerSize

    return SkeinApplications(config.yarn, kit, WorkerSize(config.container.memory_mb, config.container.cores), clock)


def shipped(config: DataflowConfig, home: Path, *, uploads: bool = True) -> DataflowConfig:
    """The config with its package, and whatever else its containers need, where they find it. SQL needs no package.

    What is there already stays as it is; without `uploads` it is only said where it would be. Raises PackageInvalid,
    ConfigInvalid, LauncherError.
    """
    packaged = config.transformation is not None and config.package is not None
    directory = Path(config.package or "") if packaged else None
    if config.launcher == "local":
        package = None if directory is None else str(ship_package(directory, home))
        return config.model_copy(update={"package": package})
    from scribengin.launcher.yarn.shipping.shipping import Shipping

    shipping = Shipping(config.yarn, home, uploads=uploads)
    url = config.package if packaged else None
    if directory is not None and not urlsplit(str(url)).scheme:
        url = shipping.put(pack_package(directory, home))
    return config.model_copy(update={"package": url, "yarn": shipping.shipped()})
