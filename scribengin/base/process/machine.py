"""Which machine this is: what is kept on one disk must not be taken for what another machine has at the same path."""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path

from scribengin.base.model import Part

MACHINE_VARIABLE = "SCRIBENGIN_MACHINE"
"""The identity of this machine, where namespaces in directories are bound to one. Default: what `/etc/machine-id` says,
else the host's name. Containers that are made anew set it, and those that share a disk of one host have the same."""
_MACHINE_ID = Path("/etc/machine-id")


class MachineIdentity(Part):
    """A machine: what tells it from others, and what people call it."""

    id: str
    name: str

    def is_this(self) -> bool:
        """Whether this process runs there."""
        return self.id == this_machine().id


def this_machine() -> MachineIdentity:
    """The one that this process runs on."""
    host = socket.gethostname()
    said = os.environ.get(MACHINE_VARIABLE, "").strip()
    if said:
        return MachineIdentity(id=said, name=said)
    kept = ""
    with suppress(OSError):
        kept = _MACHINE_ID.read_text(encoding="ascii", errors="replace").strip()
    if not kept:
        return MachineIdentity(id=host, name=host)
    # systemd asks that the number itself is shown to nobody
    return MachineIdentity(id=hashlib.sha256(f"scribengin {kept}".encode()).hexdigest()[:32], name=host)


def this_process() -> str:
    """What people are told of this process: its host and number."""
    return f"{socket.gethostname()}:{os.getpid()}"
