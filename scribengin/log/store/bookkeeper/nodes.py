"""Which ledger is which segment: nodes of the ZooKeeper that the bookies use, below the one of a namespace.

<root>/.namespace                         the token of the namespace
      /logs/<directory>/made              the segment that was announced last: `<epoch> <segment>`
                       /segments/<name>   the ledgers of a segment, or of a copy: `<18 digits>-<epoch>.<copy>`

A ledger is made before the node that names it, and deleted before that node is. So a node never promises bytes that
were not there, and what a crash leaves between is a ledger that no node names.

A server of ZooKeeper may be behind by seconds. A segment that was not seen would not be fenced, nor set aside: so what
is listed, and what was not found, is looked at once the server has caught up.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress

from scribengin.base.model import Descriptor, from_node_name, node_name
from scribengin.log.store.contract import SegmentName
from scribengin_registry.compare_and_set import compare_and_set, win_race
from scribengin_registry.contract import Create, Delete, Node, Registry
from scribengin_registry.errors import NodeExists, NodeMissing, OutcomeUnknown, VersionConflict
from scribengin_registry.opening import connect

_TOKEN = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"(\d{18})-(\d+)(?:\.([a-z0-9-]+))?")
_MADE = re.compile(r"(\d+) (\d+)")


class SegmentLedgers(Descriptor):
    """The ledgers of one segment: its bytes, its tails, and its indexes, where they are kept."""

    log: int
    tail: int
    positions: int | None = None
    keys: int | None = None

    @property
    def beside(self) -> list[int]:
        """All but that of its bytes."""
        return [ledger for ledger in (self.tail, self.positions, self.keys) if ledger is not None]


class SegmentNodes:
    """The nodes of one namespace. Raises RegistryErrors."""

    def __init__(self, hosts: str, root: str) -> None:
        self._hosts = hosts
        self._root = root

    def mark(self) -> str | None:
        """Make the namespace's node, and its token if it has none: what stands there. None: no token."""
        path = f"{self._root}/.namespace"
        with suppress(NodeExists):  # whoever came first has said it
            self._registry.create(path, uuid.uuid4().hex.encode("ascii"), parents=True)
        return self.token()

    def token(self) -> str | None:
        """What the namespace holds; None: there is none."""
        node = self._found(f"{self._root}/.namespace")
        text = "" if node is None else node.data.decode("ascii", "replace")
        return text if _TOKEN.fullmatch(text) else None

    def unmark(self) -> None:
        """The namespace holds no token any more. Idempotent."""
        with suppress(NodeMissing):
            self._registry.delete(f"{self._root}/.namespace")

    def make_log(self, directory: str) -> None:
        """Idempotent."""
        with suppress(NodeExists):
            self._registry.create(self._segments(directory), parents=True)

    def is_log(self, directory: str) -> bool:
        """Whether it was made."""
        return self._registry.find(self._segments(directory)) is not None

    def delete_log(self, directory: str) -> None:
        """With all that is below it. Idempotent."""
        with suppress(NodeMissing):
            self._registry.delete(self._log(directory), recursive=True)

    def logs(self) -> list[str]:
        """The directories of all logs, and those within them, which come first."""
        registry = self._up_to_date()
        try:
            kept = map(from_node_name, registry.children(f"{self._root}/logs"))
        except NodeMissing:
            return []
        return sorted(kept, reverse=True)

    def names(self, directory: str) -> list[SegmentName]:
        """Of its segments and copies, sorted by number. Empty if the log is gone."""
        registry = self._up_to_date()
        try:
            found = map(_NAME.fullmatch, registry.children(self._segments(directory)))
        except NodeMissing:
            return []
        return sorted(SegmentName(directory, int(m[1]), int(m[2]), m[3] or "") for m in found if m is not None)

    def add(self, name: SegmentName, ledgers: SegmentLedgers) -> None:
        """Name the ledgers of a segment that is not there. Raises NodeExists, NodeMissing: the log is gone."""
        try:
            self._registry.create(self._segment(name), ledgers.to_bytes())
        except OutcomeUnknown:
            self._registry.sync()
            if self.find(name) != ledgers:
                raise

    def find(self, name: SegmentName) -> SegmentLedgers | None:
        """The ledgers of a segment; None: there is no such segment."""
        node = self._found(self._segment(name))
        return None if node is None else SegmentLedgers.from_bytes(node.data, path=self._segment(name))

    def change(self, name: SegmentName, changed: Callable[[SegmentLedgers], SegmentLedgers]) -> SegmentLedgers:
        """Name other ledgers, and return those that were named before. Raises NodeMissing."""
        path = self._segment(name)
        registry = self._registry

        def revised(data: bytes) -> bytes:
            return changed(SegmentLedgers.from_bytes(data, path=path)).to_bytes()

        before = win_race(
            lambda: compare_and_set(lambda: registry.get(path), registry, path, revised), races=(VersionConflict,)
        )
        return SegmentLedgers.from_bytes(before, path=path)

    def remove(self, name: SegmentName) -> None:
        """Idempotent."""
        with suppress(NodeMissing):
            self._registry.delete(self._segment(name))

    def move(self, name: SegmentName, to: SegmentName) -> None:
        """Idempotent."""
        node = self._found(self._segment(name))
        if node is not None:
            self._registry.commit(
                [Create(self._segment(to), node.data), Delete(self._segment(name), version=node.version)]
            )

    def announce(self, name: SegmentName) -> None:
        """Unless a later one was. Raises NodeMissing: the log is gone."""
        path = f"{self._log(name.directory)}/made"
        said = b"%d %d" % (name.epoch, name.segment)
        registry = self._registry

        def say() -> None:
            node = registry.find(path)
            if node is None:
                registry.create(path, said)
            elif _announced(node.data) < (name.epoch, name.segment):
                registry.set(path, said, node.version)

        win_race(say, races=(NodeExists, VersionConflict), registry=registry)

    def announced(self, directory: str) -> tuple[int, int]:
        """Epoch and number of the last; (0, 0): none was."""
        node = self._up_to_date().find(f"{self._log(directory)}/made")
        return (0, 0) if node is None else _announced(node.data)

    def ledgers(self) -> set[int]:
        """All that some segment of the namespace has."""
        found: set[int] = set()
        for log in self.logs():
            for name in self.names(log):
                ledgers = self.find(name)
                if ledgers is not None:
                    found.update([ledgers.log, *ledgers.beside])
        return found

    def _log(self, directory: str) -> str:
        return f"{self._root}/logs/{node_name(directory)}"

    def _segments(self, directory: str) -> str:
        return f"{self._log(directory)}/segments"

    def _segment(self, name: SegmentName) -> str:
        return f"{self._segments(name.directory)}/{str(name).rpartition('/')[2]}"

    def _found(self, path: str) -> Node | None:
        """A node. Where none is seen this session's server may be behind: what is not found is looked for again."""
        return self._registry.find(path) or self._up_to_date().find(path)

    def _up_to_date(self) -> Registry:
        """The session, whose server has seen all that others have done before."""
        registry = self._registry
        registry.sync()
        return registry

    @property
    def _registry(self) -> Registry:
        with _connecting:
            if self._hosts not in _sessions:
                _sessions[self._hosts] = connect(self._hosts)
            return _sessions[self._hosts]


_connecting = threading.Lock()
_sessions: dict[str, Registry] = {}
"""Those of this process, by hosts. One is for all namespaces there, for as long as the process lives."""


def leave(hosts: str) -> None:
    """End this process's session there, if it has one. For whoever knows that this ZooKeeper goes, and is not to come
    back: a session looks for its servers for ever."""
    with _connecting:
        session = _sessions.pop(hosts, None)
    if session is not None:
        session.close()


def _announced(data: bytes) -> tuple[int, int]:
    match = _MADE.fullmatch(data.decode("ascii", "replace"))
    return (int(match[1]), int(match[2])) if match is not None else (0, 0)
