"""The containers of a dataflow, for whoever ends dataflows or reads their output."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from scribengin.dataflow.config import DataflowConfig
from scribengin.errors import ContainerUnreachable, LauncherError
from scribengin.launcher.contract import ContainerDescriptor
from scribengin.launcher.local import LocalLauncher
from scribengin.master.places import place_of

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


def runs_elsewhere(registry: str, dataflow: str, home: Path, config: DataflowConfig) -> list[str]:
    """The applications of a dataflow that have not ended, whether or not their masters have come up: on this machine,
    none. Raises ConfigInvalid, LauncherError."""
    if config.launcher == "local":
        return []
    with place_of(config, home) as place:
        return [container.name for container in place.containers(registry, dataflow)]


def master_runs(registry: str, dataflow: str, home: Path, config: DataflowConfig) -> bool:
    """Whether a master of the dataflow runs on this machine, or its application on YARN: it may be on its way to its
    election. Raises ConfigInvalid, LauncherError."""
    with place_of(config, home) as place:
        return any(c.name.startswith("master") for c in place.containers(registry, dataflow))


def running_for_other_registries(registry: str, dataflow: str, home: Path) -> list[str]:
    """The registries other than this one for which a dataflow of that name runs here: perhaps the same one, spelled
    differently."""
    with closing(LocalLauncher(home)) as launcher:
        others = {c.registry for c in launcher.all_containers(dataflow) if c.registry != registry}
        return sorted(other for other in others if launcher.containers(other, dataflow))


def names_of(containers: Sequence[ContainerDescriptor]) -> str:
    """For people."""
    return ", ".join(container.name for container in containers)
