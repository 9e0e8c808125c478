"""Starting dataflows: what stands in the registry before there is a master, and the launch of the first one.

`spec_of` shows what skein would be given: nothing is uploaded, and no server is asked.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors import Environment
from scribengin.connectors.contract import Guarantee
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.containers import master_request
from scribengin.dataflow.edits import plan_edit
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.config_node import half_deleted
from scribengin.dataflow.registry.descriptors import FINAL_STATES, DataflowStatus, Origin
from scribengin.dataflow.registry.numbers import keep_numbers
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView, new_master_name
from scribengin.errors import DataflowNotFound
from scribengin.launcher.contract import ContainerDescriptor
from scribengin.launcher.skein.spec import WorkerSize, application_spec
from scribengin.launcher.yarn.shipping.shipping import Shipping
from scribengin.operations.submit.memory import planned, with_room
from scribengin.operations.submit.origins import remember_origin
from scribengin.operations.submit.shipping import Say, launching_place, shipped, with_environment
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown, RegistryError

STANDBYS = 1
FIRST_MASTER = "master-1"


def submit(
    registry: Registry,
    config: DataflowConfig,
    home: Path,
    *,
    standbys: int = STANDBYS,
    clock: Clock = SYSTEM_CLOCK,
    author: str | None = None,
) -> ContainerDescriptor:
    """Start a dataflow on behalf of `author`, and return its first master's container. The processes outlive this one.

    Whether the dataflow can run at all is for `explain` to say before. Raises DataflowExists, ResourceTaken,
    PackageInvalid, LauncherError and what connectors raise; then what was made is gone again, but for a
    copy of the package and empty sink streams.
    """
    packaged = config.package
    given = shipped(config, home)
    view = DataflowView(registry, given.name)
    environment = Environment(registry=registry, clock=clock, dataflow=given.name, nodes=STREAM_NODES)
    with (
        OpenedDataflow(given, environment) as resources,
        launching_place(config := planned(given, resources.with_jvms()), home, clock) as place,
    ):
        tasks = resources.tasks()
        claims = _claims(registry, [sink.resource for sink in resources.sinks.values()])
        _create(view, config, list(claims), resources.guarantees(), clock.now_ms(), author)
        try:
            for name, sink in resources.sinks.items():
                sink.create([stream for task in tasks for stream in task.sinks if stream.sink == name])
            if packaged is not None and config.package is not None:
                view.set_origin(Origin(package=packaged, host=socket.gethostname()))
                remember_origin(home, registry.hosts, config.name, packaged)
            first = f"master-{view.placement_head().value.first_master}"
            return place.launch(master_request(config, first, registry.hosts, home, standbys))
        except BaseException as error:
            _undo(view, claims, error)
            raise


def launch_master(
    registry: Registry, dataflow: str, home: Path, *, standbys: int = STANDBYS, clock: Clock = SYSTEM_CLOCK
) -> ContainerDescriptor:
    """Launch one more master: for a dataflow that has lost all of them, or that has ended and is to go on.

    What its config desires is what it will do; an ended one counts as starting again. Raises DataflowNotFound,
    DataflowBusy (it is being deleted), LauncherError.
    """
    view = DataflowView(registry, dataflow)
    config = _next_config(view)
    name = new_master_name(view)
    view.change_status(_starting_again)
    with launching_place(config, home, clock) as place:
        return place.launch(master_request(config, name, registry.hosts, home, standbys))


def _starting_again(status: DataflowStatus) -> DataflowStatus | None:
    if status.state == "deleting":
        raise half_deleted(status.dataflow)
    if status.state not in FINAL_STATES:
        return None
    return status.model_copy(update={"state": "starting", "error": None, "tasks": ()})


def _next_config(view: DataflowView) -> DataflowConfig:
    """What the next master will go by: the config as it was edited, or the one in force if it would refuse that."""
    in_force, edited = view.config_in_force().value, view.config_to_edit().value
    refused = plan_edit(in_force, edited, running=view.has_workers()).refusal
    return edited if refused is None else in_force


def _claims(registry: Registry, resources: list[str]) -> dict[str, bytes | None]:
    """What each sink's node holds now; None where there is none."""
    nodes = {resource: registry.find(paths.sink_resource(resource)) for resource in resources}
    return {resource: None if node is None else node.data for resource, node in nodes.items()}


def _create(
    view: DataflowView,
    config: DataflowConfig,
    resources: list[str],
    guarantees: Mapping[str, Guarantee],
    now_ms: int,
    author: str | None,
) -> None:
    try:
        view.submit(config, resources, now_ms, guarantees, author)
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
        keep_numbers(view.registry, view.dataflow, view.numbers_reached())  # a master may have been launched
        for resource, before in claims.items():
            if before is None:
                view.registry.delete(paths.sink_resource(resource), recursive=True)
            else:
                view.registry.set(paths.sink_resource(resource), before)
        view.registry.delete(view.paths.root, recursive=True)
    except RegistryError as trouble:
        error.add_note(f"and taking it back failed ({trouble}): run `scribengin kill {view.dataflow}`")


def spec_of(config: DataflowConfig, registry: Registry, home: Path, say: Say) -> dict[str, Any]:
    """What `launcher: skein` submits for this registry. Packs the Python environment where that is to be
    shipped, for its name is its content's. Raises ConfigInvalid, PackageInvalid, LauncherError."""
    config = with_room(registry, config.model_copy(update={"launcher": "skein"}))
    config = shipped(with_environment(config, home, say, uploads=False), home, uploads=False)
    kit = Shipping(config.yarn, home, uploads=False).kit(config.package)
    worker = WorkerSize(config.container.memory_mb, config.container.cores)
    master = master_request(config, FIRST_MASTER, registry.hosts, home, standbys=0)
    return application_spec(config.yarn, kit, master, worker)
