"""The one door to a registry: whoever wants a session comes through here, and knows of no client."""

from __future__ import annotations

from scribengin_registry.contract import ProtectedRegistry
from scribengin_registry.credentials import AUTH_VARIABLE

__all__ = ["AUTH_VARIABLE", "connect"]


def connect(
    hosts: str, *, session_timeout_s: float = 10.0, connect_timeout_s: float = 10.0, auth: str | None = None
) -> ProtectedRegistry:
    """Open a session with the ensemble at `hosts` (`host:port,host:port/chroot`); a missing chroot is created.

    With `auth` (as in `zookeeper/auth.py`, by default from SCRIBENGIN_REGISTRY_AUTH) the session is that user's. Nodes
    that it creates can be changed by that user only, and read by anyone; an empty `auth` is nobody. `${env:...}` and
    `${file:...}` in it are what they name. The server may shorten or lengthen `session_timeout_s` to what it allows.
    Raises RegistryUnreachable, RegistryError when `hosts` or `auth` cannot be understood, NotAuthorised,
    ReferenceMissing.
    """
    from scribengin_registry.zookeeper import registry  # only who connects needs the client

    return registry.connect(hosts, session_timeout_s=session_timeout_s, connect_timeout_s=connect_timeout_s, auth=auth)
