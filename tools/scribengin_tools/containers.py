"""The containers of a dataflow on this machine, for whoever ends dataflows or reads their output."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from scribengin.errors import LauncherError
from scribengin.launcher.contract import ContainerDescriptor
from scribengin.launcher.local import LocalLauncher

_ROUNDS_MAX = 20


def kill_containers(registry: str, dataflow: str, home: Path) -> list[ContainerDescriptor]:
    """Kill everything that runs for a dataflow on this machine, and return what that was.

    Masters go first, for they replace what dies; and one may have launched another container just before: so it is
    looked again until nothing is left. Raises LauncherError.
    """
    killed: list[ContainerDescriptor] = []
    with LocalLauncher(home) as launcher:
        for _round in range(_ROUNDS_MAX):
            running = launcher.containers(registry, dataflow)
            if not running:
                return killed
            for container in sorted(running, key=lambda container: not container.name.startswith("master")):
                launcher.kill(container)
                killed.append(container)
    raise LauncherError(f"processes of dataflow '{dataflow}' keep coming back: see {home / 'containers'}")


def running_for_other_registries(registry: str, dataflow: str, home: Path) -> list[str]:
    """The registries other than this one for which a dataflow of that name runs here: perhaps the same one, spelled
    differently."""
    with closing(LocalLauncher(home)) as launcher:
        others = {c.registry for c in launcher.all_containers(dataflow) if c.registry != registry}
        return sorted(other for other in others if launcher.containers(other, dataflow))


def names_of(containers: Sequence[ContainerDescriptor]) -> str:
    """For people."""
    return ", ".join(container.name for container in containers)
