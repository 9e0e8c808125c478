"""Where a namespace is: from a URI to a registry session, and what its node says of its store."""

from __future__ import annotations

from scribengin.effect import effect
from scribengin.errors import ConfigInvalid, NamespaceNotBound
from scribengin.log.filestore import FileSegmentStore
from scribengin.log.metadata import ATTEMPTS_MAX, NamespaceDescriptor
from scribengin.log.names import NamespaceUri
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
        from scribengin_registry.kazoo_registry import connect  # only who connects needs the client

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


def bind(registry: Registry, path: str, wanted: NamespaceDescriptor) -> None:
    """Make the namespace's node, its store's directory, and the node its logs stand below. Idempotent.

    Raises NamespaceNotBound (it is bound to another directory), LogWriteFailed.
    """
    FileSegmentStore(wanted.location).create_log("")  # the directory itself
    for _attempt in range(ATTEMPTS_MAX):
        try:
            node = registry.find(path)
            if node is None:
                with effect("log.bind_create"):
                    registry.create(path, wanted.to_bytes(), parents=True)
            elif not node.data:
                with effect("log.bind_set"):
                    registry.set(path, wanted.to_bytes(), node.version)
            elif (there := NamespaceDescriptor.from_bytes(node.data, path=path)) != wanted:
                raise NamespaceNotBound(f"{path} is bound to {there.location} already; use that, or another path")
            else:
                break
        except (NodeExists, NodeMissing, VersionConflict, OutcomeUnknown):
            registry.sync()  # somebody else binds it, or our reply was lost: look again
    try:
        with effect("log.bind_logs"):
            registry.create(f"{path}/logs")
    except NodeExists:
        return
