"""Whether others may change what we run by: whoever writes the registry runs code as the user of its dataflows."""

from __future__ import annotations

import ipaddress

from scribengin.base.names import DATAFLOWS, DEFAULT_NAMESPACE, LOCKS, ROOT
from scribengin.errors import ConfigInvalid
from scribengin_registry.contract import ProtectedRegistry
from scribengin_registry.opening import AUTH_VARIABLE

INSECURE_VARIABLE = "SCRIBENGIN_REGISTRY_INSECURE"
"""`1`: the same as `--insecure`. Dataflows start in a registry on other machines that has no user."""
_OURS = (ROOT, DATAFLOWS, LOCKS, DEFAULT_NAMESPACE)
"""What is looked at: below a node that is open there are others."""


def is_local(hosts: str) -> bool:
    """Whether all of a registry's servers are on this machine's loopback address."""
    return all(_is_loopback(server) for server in hosts.partition("/")[0].split(","))


def openness(registry: ProtectedRegistry) -> str | None:
    """What is open to others in a registry, as a line for people; None, if nothing is. A registry of this machine alone
    that has no user is nothing to tell of. Raises what the registry raises."""
    if not registry.has_user:
        return None if is_local(registry.hosts) else _nobodys(registry.hosts)
    found = next((path for path in _OURS if registry.is_open(path)), None)
    if found is None:
        return None
    return (
        f"anybody may change {found} of this registry, which was made without a user: `scribengin registry protect` "
        "makes all of it yours"
    )


def refuse_nobodys(registry: ProtectedRegistry) -> None:
    """Raises ConfigInvalid for a registry on other machines in which the session is nobody's."""
    if not registry.has_user and not is_local(registry.hosts):
        raise ConfigInvalid(f"{_nobodys(registry.hosts)}; --insecure ({INSECURE_VARIABLE}=1) starts dataflows anyway")


def _nobodys(hosts: str) -> str:
    return (
        f"the registry {hosts} is used without a user: whoever reaches it runs code here; set {AUTH_VARIABLE} to "
        "user:password, or to ${file:PATH} of that"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to that address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_loopback(server: str) -> bool:
    return is_loopback(server.strip().rpartition(":")[0] or server.strip())
