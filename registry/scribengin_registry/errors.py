"""The root of every exception of the project, and those of the registry.

    ScribenginError
    ├── JavaMissing               no Java runtime of a usable version on this machine; exit code 2
    ├── ReferenceMissing          ${env:...} or ${file:...} names what this process does not have; exit code 2
    └── RegistryError
        ├── ServerFailed          the embedded ZooKeeper did not start; carries the end of its log
        ├── RegistryUnreachable   no server answered in time
        ├── OutcomeUnknown        the connection broke after a write was sent: it may or may not have been applied
        ├── SessionLost           the session expired: its ephemeral nodes are gone
        ├── RegistryClosed        used after close()
        ├── NodeMissing           the node does not exist
        ├── NodeExists            the node exists already
        ├── NodeNotEmpty          delete() of a node that has children
        ├── VersionConflict       somebody else changed the node: compare-and-set failed
        ├── RestoreUnfinished     the nodes are being restored from a backup, or that was cut short
        └── NotAuthorised         the node's ACL does not let this user in

`scribengin.errors` draws the rest of the tree. Every message says what happened, to which thing, and what to do next.
"""

from __future__ import annotations

import errno

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What the system says where a disk or a quota is full."""


class ScribenginError(Exception):
    """Anything that Scribengin raises on purpose. `exit_code` is what a command line ends with."""

    exit_code = 1


class JavaMissing(ScribenginError):
    """No Java runtime of a usable version. The message names what was looked at, and how to get one."""

    exit_code = 2


class ReferenceMissing(ScribenginError):
    """`${env:...}` or `${file:...}` names what this process does not have."""

    exit_code = 2


class RegistryError(ScribenginError):
    """Something about the ZooKeeper registry."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class ServerFailed(RegistryError):
    """The embedded ZooKeeper did not start, or its data directory is in use."""

    exit_code = 2


class RegistryUnreachable(RegistryError):
    """No ZooKeeper server answered in time."""

    exit_code = 2


class OutcomeUnknown(RegistryError):
    """The connection broke after a write was sent. Settle it (sync, then read) before anything else is done."""


class SessionLost(RegistryError):
    """The session expired: ephemeral nodes and watches are gone, and somebody else may own what was ours."""


class RegistryClosed(RegistryError):
    """The registry client was used after close()."""


class NodeMissing(RegistryError):
    """The node does not exist."""


class NodeExists(RegistryError):
    """The node exists already."""


class NodeNotEmpty(RegistryError):
    """The node has children."""


class VersionConflict(RegistryError):
    """Somebody else changed the node since it was read."""


class RestoreUnfinished(RegistryError):
    """The registry is being restored from a backup, or that was cut short: what is there is not whole."""


class NotAuthorised(RegistryError):
    """The node's access control list does not let this user in."""

    exit_code = 2
