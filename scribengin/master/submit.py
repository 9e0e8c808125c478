"""Starting dataflows: what stands in the registry before there is a master, and the launch of the first one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scribengin.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors import Environment
from scribengin.dataflow import paths
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.descriptors import FINAL_STATES
from scribengin.dataflow.resources import Resources
from scribengin.dataflow.view import DataflowView
from scribengin.errors import DataflowNotFound
from scribengin.launcher.contract import ContainerDescriptor
from scribengin.launcher.local import LocalLauncher
from scribengin.master.containers import master_request
from scribengin.master.package import ship_package
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown, RegistryError, VersionConflict

STANDBYS = 1
FIRST_MASTER = "master-1"


def submit(
    registry: Registry, config: DataflowConfig, home: Path, *, standbys: int = STANDBYS, clock: Clock = SYSTEM_CLOCK
) -> ContainerDescriptor:
    """Start a dataflow, and return its first master's container. The processes outlive this one.

    Whether the dataflow can run at all is for `scribengin.dataflow.explain` to say before. Raises DataflowExists,
    ResourceTaken, PackageInvalid, LauncherError and what connectors raise; then what was made is gone again, but for a
    copy of the package and empty sink streams.
    """
    config = _shipped(config, home)
    view = DataflowView(registry, config.name)
    environment = Environment(registry=registry, clock=clock, dataflow=config.name)
    with Resources(config, environment) as resources, LocalLauncher(home, clock) as launcher:
        tasks = resources.tasks()
        claims = _claims(registry, [sink.resource for sink in resources.sinks.values()])
        _create(view, config, list(claims), clock.now_ms())
        try:
            for name, sink in resources.sinks.items():
                sink.create([stream for task in tasks for stream in task.sinks if stream.sink == name])
            return launcher.launch(master_request(config, FIRST_MASTER, registry.hosts, home, standbys))
        except BaseException as error:
            _undo(view, claims, error)
            raise


def launch_master(
    registry: Registry, dataflow: str, home: Path, *, standbys: int = STANDBYS, clock: Clock = SYSTEM_CLOCK
) -> ContainerDescriptor:
    """Launch one more master: for a dataflow that has lost all of them, or that has ended and is to go on.

    What its config desires is what it will do; an ended one counts as starting again. Raises DataflowNotFound,
    LauncherError.
    """
    view = DataflowView(registry, dataflow)
    config = view.config_in_force().value
    name = _new_master_name(view)
    status = view.status()
    if status.state in FINAL_STATES:
        view.set_status(status.model_copy(update={"state": "starting", "error": None, "tasks": ()}))
    with LocalLauncher(home, clock) as launcher:
        return launcher.launch(master_request(config, name, registry.hosts, home, standbys))


def _shipped(config: DataflowConfig, home: Path) -> DataflowConfig:
    """The config with its package where the workers find it. SQL needs none."""
    if config.transformation is None or config.package is None:
        return config.model_copy(update={"package": None})
    return config.model_copy(update={"package": str(ship_package(Path(config.package), home))})


def _claims(registry: Registry, resources: list[str]) -> dict[str, bytes | None]:
    """What each sink's node holds now; None where there is none."""
    nodes = {resource: registry.find(paths.sink_resource(resource)) for resource in resources}
    return {resource: None if node is None else node.data for resource, node in nodes.items()}


def _create(view: DataflowView, config: DataflowConfig, resources: list[str], now_ms: int) -> None:
    try:
        view.submit(config, resources, now_ms)
    except OutcomeUnknown:
        view.registry.sync()
        try:
            done = view.status().submitted_ms == now_ms
        except DataflowNotFound:
            done = False
        if not done:
            raise


def _undo(view: DataflowView, claims: Mapping[str, bytes | None], error: BaseException) -> None:
    """Take back what `view.submit` made. Positions of a sink that was there before stay as they were."""
    try:
        for resource, before in claims.items():
            if before is None:
                view.registry.delete(paths.sink_resource(resource), recursive=True)
            else:
                view.registry.set(paths.sink_resource(resource), before)
        view.registry.delete(view.paths.root, recursive=True)
    except RegistryError as trouble:
        error.add_note(f"and taking it back failed ({trouble}): run `scribengin kill {view.dataflow}`")


def _new_master_name(view: DataflowView) -> str:
    while True:
        head = view.placement_head()
        taken = head.value.model_copy(update={"next_master": head.value.next_master + 1})
        try:
            view.registry.set(view.paths.workers, taken.to_bytes(), head.version)
        except VersionConflict:
            continue
        return f"master-{head.value.next_master}"
