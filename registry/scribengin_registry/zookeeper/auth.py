"""Who a session is: the forms of SCRIBENGIN_REGISTRY_AUTH, and what kazoo makes of them.

| form | how |
|---|---|
| `user:password` | ZooKeeper's own digest scheme: nothing need be set up on the servers |
| `sasl-digest:user:password` | SASL, DIGEST-MD5: the users of the servers' JAAS file |
| `sasl-gssapi[:service]` | SASL, Kerberos: the ticket of this process; the servers are `service`, else `zookeeper` |

Nodes that the session creates can be changed by that user only, and read by anyone.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from kazoo.security import ACL, Permissions, make_acl, make_digest_acl

from scribengin_registry.errors import RegistryError

_DIGEST, _KERBEROS = "sasl-digest", "sasl-gssapi"
_GSSAPI = "GSSAPI"
_SERVICE = "zookeeper"


@dataclass(frozen=True, slots=True)
class SessionAuth:
    """What kazoo's client takes: the digest scheme's data, or SASL options, and the ACL of new nodes."""

    acl: list[ACL] | None = None
    data: list[tuple[str, str]] | None = None
    sasl: dict[str, str] | None = None


def parse_auth(auth: str | None) -> SessionAuth:
    """Of one of the forms above; None is nobody in particular. Raises RegistryError."""
    if not auth:
        return SessionAuth()
    kind, _, rest = auth.partition(":")
    if kind == _KERBEROS:
        return _sasl({"mechanism": _GSSAPI, "service": rest or _SERVICE})
    if kind == _DIGEST:
        user, password = _user_and_password(rest, f"{_DIGEST}:user:password")
        return _sasl({"mechanism": "DIGEST-MD5", "username": user, "password": password, "service": _SERVICE})
    user, password = _user_and_password(auth, "user:password")
    return SessionAuth([make_digest_acl(user, password, all=True), _READABLE], [("digest", auth)])


def _sasl(options: dict[str, str]) -> SessionAuth:
    if importlib.util.find_spec("puresasl") is None:
        raise RegistryError("SASL for the registry needs pure-sasl: pip install 'scribengin[sasl]'")
    if options["mechanism"] == _GSSAPI and importlib.util.find_spec("kerberos") is None:  # pure-sasl asks for it
        raise RegistryError("Kerberos for the registry needs the package kerberos: pip install kerberos")
    return SessionAuth([make_acl("auth", "", all=True), _READABLE], None, options)  # the server fills in who that is


def _user_and_password(text: str, form: str) -> tuple[str, str]:
    user, colon, password = text.partition(":")
    if not (user and colon and password):
        raise RegistryError(f"the registry's user (SCRIBENGIN_REGISTRY_AUTH) must be given as {form}")
    return user, password


def is_open(acl: ACL) -> bool:
    """Whether it lets anybody do more than read."""
    return acl.id.scheme == "world" and bool(acl.perms & ~Permissions.READ)


_READABLE = make_acl("world", "anyone", read=True)
