"""Where a server runs: on this machine, or on one that was made here (machines.py)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scribengin_registry.java.process import LOOPBACK


@dataclass(frozen=True, slots=True)
class Host:
    """A machine as its servers see it. They listen at `address`, and their clients dial it."""

    address: str
    name: str = "localhost"
    """What others that run there, or on machines beside it, call it."""
    entering: tuple[str, ...] = ()
    """What stands before a command that is to run there."""
    folder: Path | None = None
    """Where its servers keep things. None: in the folders of their systems."""

    def place(self, folder: Path) -> Path:
        """Where a server of this host keeps what its system would keep in `folder`; made when it is not there."""
        found = folder if self.folder is None else self.folder / folder.name
        found.mkdir(parents=True, exist_ok=True)
        return found


THIS_HOST = Host(LOOPBACK)
"""This machine, at its loopback interface."""
