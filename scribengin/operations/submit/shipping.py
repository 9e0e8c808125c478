"""What a dataflow takes along to where it runs, and the launcher of its first master.

What belongs to YARN is imported when a dataflow asks for it: it needs a JVM.

There, the Python environment is packed and uploaded once, before anything is submitted, and a staging directory knows
which of its files are still wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.text.masking import masked_places
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.view import dataflow_names
from scribengin.launcher.contract import ContainerPlace
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.launcher.yarn.shipping.environment import EnvironmentArchive, build_environment
from scribengin.launcher.yarn.shipping.shipping import Shipping
from scribengin.operations.submit.package import pack_package, ship_package
from scribengin_registry.contract import Registry

Say = Callable[[str], None]
_MIB = 1 << 20


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


def with_environment(config: DataflowConfig, home: Path, say: Say, *, uploads: bool = True) -> DataflowConfig:
    """The dataflow with the archive of this environment, unless it says which Python its containers have.

    Packs and, with `uploads`, uploads what is not there yet. Raises ConfigInvalid, LauncherError.
    """
    python = config.yarn.python
    if python.path is not None or python.archive is not None:
        return config
    say("packing the Python environment (half a minute, the first time) ...")
    archive = build_environment()
    say(told(archive) + ("; uploading it, unless it is there ..." if uploads else ""))
    url = Shipping(config.yarn, home, uploads=uploads).put(archive.path)
    say(f"environment: {url}")
    yarn = config.yarn.model_copy(update={"python": python.model_copy(update={"archive": url})})
    return config.model_copy(update={"yarn": yarn})


def told(archive: EnvironmentArchive) -> str:
    """An archive in one line."""
    size = f"{archive.files} files, {archive.size_bytes / _MIB:.0f} MiB"
    how = f"packed in {archive.duration_s:.0f} s" if archive.built else "packed before, nothing has changed"
    return f"{archive.path.name}: {size}, {how}"


def secrets_in_the_clear(config: DataflowConfig) -> list[str]:
    """The keys whose values look like secrets, and are no references: whoever reaches the registry can read them, and
    of `yarn.environment` whoever may see the application."""
    return masked_places(config.model_dump(mode="json"))


def named_by_dataflows(registry: Registry, urls: Sequence[str]) -> set[str]:
    """Those of `urls` that stand in the configuration of a dataflow of this registry."""
    nodes = [registry.find(paths.DataflowPaths(name).config) for name in dataflow_names(registry)]
    texts = [node.data.decode(errors="replace") for node in nodes if node is not None]
    return {url for url in urls if any(url in text for text in texts)}
