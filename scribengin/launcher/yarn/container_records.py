"""What stands in the registry of a dataflow's containers on YARN: one node each, from before it is asked for.

    <dataflow>/containers/<container>       ContainerRecordDescriptor

A master that dies leaves its records; the next one goes by them. Each is changed by compare-and-set, so that a master
that was replaced changes nothing any more.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict

from scribengin.base.model import Descriptor
from scribengin.errors import LauncherError
from scribengin.launcher.contract import ContainerDescriptor, ContainerExit, ExitKind
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeExists, NodeMissing, OutcomeUnknown, VersionConflict


class ExitDescriptor(Descriptor):
    """`ContainerExit`, as it stands in the registry."""

    kind: ExitKind
    code: int | None
    reason: str


class ContainerRecordDescriptor(Descriptor):
    """A container and what became of it: asked for (no `yarn_id` yet), given room (`yarn_id`), ended (`exit`).

    `node` is the NodeManager as host:port, `web` its address for logs.
    """

    container: ContainerDescriptor
    yarn_id: str | None = None
    node: str | None = None
    web: str | None = None
    exit: ExitDescriptor | None = None

    def placed(self, yarn_id: str, node: str, web: str) -> ContainerRecordDescriptor:
        """YARN has given it room there."""
        return self.model_copy(update={"yarn_id": yarn_id, "node": node, "web": web})

    def ended(self, how: ContainerExit) -> ContainerRecordDescriptor:
        """It has ended so."""
        return self.model_copy(update={"exit": ExitDescriptor(kind=how.kind, code=how.code, reason=how.reason)})

    @property
    def how_ended(self) -> ContainerExit | None:
        """How it ended, or None."""
        return None if self.exit is None else ContainerExit(self.exit.kind, self.exit.code, self.exit.reason)


class ContainerRecords:
    """The records below one node, which is made when it is needed; its parent is not: a dataflow that was deleted stays
    deleted."""

    def __init__(self, registry: Registry, path: str) -> None:
        self._registry = registry
        self._path = path
        self._versions: dict[str, int] = {}
        self._unknown: defaultdict[str, set[bytes]] = defaultdict(set)
        """What was written of a container since it was last known, where nobody knows whether it will be there."""

    def all(self) -> list[ContainerRecordDescriptor]:
        """Every record, oldest first. Raises RegistryUnreachable, DescriptorUnreadable."""
        try:
            names = self._registry.children(self._path)
        except NodeMissing:
            return []
        found = []
        for name in names:
            node = self._registry.find(f"{self._path}/{name}")
            if node is not None:
                self._versions[name] = node.version
                found.append(ContainerRecordDescriptor.from_bytes(node.data, path=f"{self._path}/{name}"))
        return sorted(found, key=lambda record: (record.container.launched_ms, record.container.id))

    def create(self, record: ContainerRecordDescriptor) -> None:
        """Leave the first record of a container. Raises NodeMissing (there is no such dataflow), RegistryUnreachable,
        OutcomeUnknown: it may be there."""
        name = record.container.id
        if self._registry.find(self._path) is None:
            with contextlib.suppress(NodeExists):
                self._registry.create(self._path)
        self._registry.create(f"{self._path}/{name}", record.to_bytes())
        self._versions[name] = 0

    def write(self, record: ContainerRecordDescriptor) -> None:
        """Replace a record. Raises LauncherError when somebody else has changed it, RegistryUnreachable,
        OutcomeUnknown: then call it again."""
        name = record.container.id
        path = f"{self._path}/{name}"
        data = record.to_bytes()
        try:
            self._versions[name] = self._set(path, name, data)
        except OutcomeUnknown:
            self._unknown[name].add(data)
            if not self._has_arrived(path, name):
                raise
        except VersionConflict as error:
            raise LauncherError(f"container {name} is another master's by now") from error
        except NodeMissing as error:
            raise LauncherError(f"container {name} was forgotten by somebody ({path} is gone)") from error
        self._unknown.pop(name, None)

    def _set(self, path: str, name: str, data: bytes) -> int:
        """The new version. What an earlier call has left without knowing may have arrived late: it is ours, too."""
        try:
            return self._registry.set(path, data, self._versions.get(name, -1))
        except VersionConflict:
            if not self._has_arrived(path, name):
                raise
            return self._registry.set(path, data, self._versions[name])

    def _has_arrived(self, path: str, name: str) -> bool:
        """Whether the record is what we have written without knowing; then its version is known."""
        if name not in self._unknown:
            return False
        self._registry.sync()
        node = self._registry.find(path)
        if node is None or node.data not in self._unknown[name]:
            return False
        self._versions[name] = node.version
        return True

    def forget(self, container: str) -> None:
        """Delete the record of one that has ended."""
        self._versions.pop(container, None)
        self._unknown.pop(container, None)
        try:
            self._registry.delete(f"{self._path}/{container}")
        except NodeMissing:
            return
