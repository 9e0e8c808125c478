"""Where a namespace is: from a URI to a registry session, and what its node says of its store."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from scribengin.base.failpoints import failpoint
from scribengin.errors import ConfigInvalid, LogWriteFailed, NamespaceNotBound
from scribengin.log.metadata.names import NamespaceUri
from scribengin.log.metadata.segments import ATTEMPTS_MAX, NamespaceDescriptor
from scribengin.log.store.directories import make_directory, sync_directory
from scribengin.log.store.mark import MARK, check_mark, read_mark
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeExists, NodeMissing, OutcomeUnknown, VersionConflict


def session_for(uri: str, registry: Registry | None) -> tuple[Registry, str, bool]:
    """A registry session for `uri`, the namespace's path in it, and whether the session is the caller's to close.

    Raises ConfigInvalid, RegistryUnreachable.
    """
    parsed = NamespaceUri.parse(uri)
    if registry is None:
        if not parsed.hosts:
            raise ConfigInvalid(f"'{uri}' names no ZooKeeper hosts; write distributedlog-file://<hosts>{uri}")
        from scribengin_registry.zookeeper.registry import connect  # only who connects needs the client

        return connect(parsed.hosts), parsed.path, True
    if not parsed.hosts:
        return registry, parsed.path, False
    hosts, _slash, root = registry.hosts.partition("/")
    root = f"/{root}" if root else ""
    if not set(parsed.hosts.split(",")) & set(hosts.split(",")):
        raise ConfigInvalid(f"'{uri}' lies in another ensemble than the registry {registry.hosts}; use one for both")
    if root and not parsed.path.startswith(f"{root}/"):
        raise ConfigInvalid(f"'{uri}' lies outside {root}, which is all that the registry {registry.hosts} can see")
    return registry, parsed.path.removeprefix(root), False


def bound(registry: Registry, path: str, uri: str) -> NamespaceDescriptor:
    """What the namespace is bound to. Raises NamespaceNotBound."""
    node = registry.find(path)
    if node is None or not node.data:
        raise NamespaceNotBound(f"{uri} is bound to no store: bind it with LogNamespace.bind, or run a sandbox")
    return NamespaceDescriptor.from_bytes(node.data, path=path)


def bind(registry: Registry, path: str, location: str) -> NamespaceDescriptor:
    """Make the namespace's node, its store's directory with its mark, and the node its logs stand below. Idempotent.

    Raises NamespaceNotBound (it is bound to another directory), StoreNotMounted (to this one, which is another one on
    this machine), LogWriteFailed.
    """
    for _attempt in range(ATTEMPTS_MAX):
        node = registry.find(path)
        if node is not None and node.data:
            there = NamespaceDescriptor.from_bytes(node.data, path=path)
            break
        token = mark_directory(Path(location))  # first, so that a node never names a directory that has no mark
        wanted = NamespaceDescriptor(store="file", location=location, token=token)
        try:
            if node is None:
                with failpoint("log.bind_create"):
                    registry.create(path, wanted.to_bytes(), parents=True)
            else:
                with failpoint("log.bind_set"):
                    registry.set(path, wanted.to_bytes(), node.version)
        except (NodeExists, NodeMissing, VersionConflict, OutcomeUnknown):
            registry.sync()  # somebody else binds it, or our reply was lost: look again
    else:
        raise NamespaceNotBound(f"{path} keeps changing and could not be bound; see who else binds it, and try again")
    if there.location != location:
        raise NamespaceNotBound(f"{path} is bound to {there.location} already; use that, or another path")
    check_mark(Path(location), there.token)
    with suppress(NodeExists), failpoint("log.bind_logs"):
        registry.create(f"{path}/logs")
    return there


def mark_directory(directory: Path) -> str:
    """Make the directory, and its mark if it has none; the token that stands there. Raises LogWriteFailed.

    Whoever finds none adds a line, the first whole one counts: so all who do it at once get the same token. What is
    there is synced, too: whoever wrote it may have died before that.
    """
    try:
        make_directory(directory)
        with failpoint("log.mark"):
            file = os.open(directory / MARK, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                if read_mark(directory) is None:
                    os.write(file, f"\n{uuid.uuid4().hex}\n".encode("ascii"))
                os.fsync(file)
            finally:
                os.close(file)
        sync_directory(directory)
        token = read_mark(directory)
    except OSError as error:
        raise LogWriteFailed(f"cannot mark {directory} as the directory of a namespace: {error.strerror}") from error
    if token is None:
        raise LogWriteFailed(f"cannot mark {directory}: what was written to {MARK} is not there; look at its disk")
    return token
