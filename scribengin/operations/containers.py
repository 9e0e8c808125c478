"""The containers of a dataflow, for whoever ends dataflows or reads their output."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.containers import place_of
from scribengin.errors import ContainerUnreachable, LauncherError
from scribengin.launcher.contract import ContainerDescriptor
from scribengin.launcher.local.launcher import LocalLauncher

_ROUNDS_MAX = 20


def kill_containers(
    registry: str, dataflow: str, home: Path, config: DataflowConfig | None = None
) -> list[ContainerDescriptor]:
    """Kill everything that runs for a dataflow where its config says (default: on this machine), and return what that
    was. On YARN that is its applications.

    Masters go first, for they replace what dies; and one may have launched another container just before: so it is
    looked again until nothing is left. Raises ConfigInvalid, LauncherError; ContainerUnreachable once all were told
    to end.
    """
    killed: list[ContainerDescriptor] = []
    unsure: list[str] = []
    with LocalLauncher(home) if config is None else place_of(config, home) as place:
        for _round in range(_ROUNDS_MAX):
            running = place.containers(registry, dataflow)
            if not running and unsure:
                raise ContainerUnreachable("; ".join(unsure))
            if not running:
                return killed
            for container in sorted(running, key=lambda container: not container.name.startswith("master")):
                try:
                    place.kill(container)
                except ContainerUnreachable as error:
                    unsure.append(str(error))
                killed.append(container)
    raise LauncherError(f"processes of dataflow '{dataflow}' keep coming back: see `scribengin logs {dataflow}`")


def masters_running(registry: str, dataflow: str, home: Path, config: DataflowConfig) -> list[str]:
    """The master processes of a dataflow on this machine, or its applications on YARN that have not ended: each may
    still be on its way to its election, or to the next one. Raises ConfigInvalid, LauncherError."""
    with place_of(config, home) as place:
        found = place.containers(registry, dataflow)
    return [c.name for c in found if config.launcher != "local" or c.name.startswith("master")]


def running_for_other_registries(registry: str, dataflow: str, home: Path) -> list[str]:
    """The registries other than this one for which a dataflow of that name runs here: perhaps the same one, spelled
    differently."""
    with closing(LocalLauncher(home)) as launcher:
        others = {c.registry for c in launcher.all_containers(dataflow) if c.registry != registry}
        return sorted(other for other in others if launcher.containers(other, dataflow))


def names_of(containers: Sequence[ContainerDescriptor]) -> str:
    """For people."""
    return ", ".join(container.name for container in containers)
