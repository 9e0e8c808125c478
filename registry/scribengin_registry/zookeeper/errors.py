"""kazoo's exceptions as ours: which error, and what it tells a person to do."""

from __future__ import annotations

from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError

from scribengin_registry.errors import (
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NotAuthorised,
    RegistryClosed,
    RegistryError,
    SessionLost,
    VersionConflict,
)

BROKEN = (ConnectionLoss, OperationTimeoutError, SessionMovedError, KazooTimeoutError)
"""There was no reply. The request may have been carried out all the same."""

BYSTANDER = (RolledBackError, RuntimeInconsistency)
"""How a transaction's result marks the operations that did not fail, and were undone or not tried."""

NO_RIGHT = (
    "this user has no right to; set SCRIBENGIN_REGISTRY_AUTH to the user who created it (`scribengin sandbox` has "
    "printed the line for what is its own)"
)
_TRANSLATIONS: dict[type[Exception], tuple[type[RegistryError], str]] = {
    NoNodeError: (NodeMissing, "there is no such node, or no parent for it; create that first"),
    NodeExistsError: (NodeExists, "it exists already; read it, or choose another name"),
    NotEmptyError: (NodeNotEmpty, "it has children; delete them first"),
    BadVersionError: (VersionConflict, "somebody else changed it since it was read; read it again"),
    NoAuthError: (NotAuthorised, NO_RIGHT),
    AuthFailedError: (NotAuthorised, "the registry refused the user's credentials; check them"),
    SessionExpiredError: (SessionLost, "the session expired, and nothing was done; wait for the new session"),
    ConnectionClosedError: (RegistryClosed, "this registry client is closed; connect again"),
    NoChildrenForEphemeralsError: (RegistryError, "its parent is ephemeral and cannot have children"),
}


def translated(error: KazooException, act: str, path: str) -> RegistryError:
    """What to raise when kazoo answered `error` to the wish to `act` on `path`."""
    kind, why = _TRANSLATIONS.get(type(error), (RegistryError, f"ZooKeeper answered {type(error).__name__}"))
    return kind(f"cannot {act} {path}: {why}", path=path)
