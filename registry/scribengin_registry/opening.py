"""The one door to a registry: whoever wants a session comes through here, and knows of no client."""

from __future__ import annotations

from scribengin_registry.contract import ProtectedRegistry, Registry
from scribengin_registry.credentials import AUTH_VARIABLE
from scribengin_registry.errors import RestoreUnfinished

__all__ = ["AUTH_VARIABLE", "RESTORING", "connect", "refuse_half_restored"]

RESTORING = "/restoring"
"""The node that stands while not all nodes of a backup are there again."""


def connect(
    hosts: str,
    *,
    session_timeout_s: float = 10.0,
    connect_timeout_s: float = 10.0,
    auth: str | None = None,
    half_restored: bool = False,
) -> ProtectedRegistry:
    """Open a session with the ensemble at `hosts` (`host:port,host:port/chroot`); a missing chroot is created.

    With `auth` (as in `zookeeper/auth.py`, by default from SCRIBENGIN_REGISTRY_AUTH) the session is that user's. Nodes
    that it creates can be changed by that user only, and read by anyone; an empty `auth` is nobody. `${env:...}` and
    `${file:...}` in it are what they name. The server may shorten or lengthen `session_timeout_s` to what it allows.
    One that is not restored to its end is for whoever says `half_restored`.
    Raises RegistryUnreachable, RegistryError when `hosts` or `auth` cannot be understood, NotAuthorised,
    ReferenceMissing, RestoreUnfinished.
    """
    from scribengin_registry.zookeeper import registry  # only who connects needs the client

    opened = registry.connect(
        hosts, session_timeout_s=session_timeout_s, connect_timeout_s=connect_timeout_s, auth=auth
    )
    if not half_restored:
        try:
            refuse_half_restored(opened)
        except BaseException:
            opened.close()
            raise
    return opened


def refuse_half_restored(registry: Registry) -> None:
    """Raises RestoreUnfinished, and what the registry raises."""
    if registry.find(RESTORING) is not None:
        raise RestoreUnfinished(
            f"the registry {registry.hosts} is being restored from a backup, or that was cut short, and what is there "
            "is not whole: wait for its end, or do it again with `scribengin registry restore FILE --replace`",
            path=RESTORING,
        )
