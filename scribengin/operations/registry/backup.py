"""A backup of the registry's nodes in one file, and the way back.

The file is gzip of lines of JSON: a header, a line for each node, parents first, and a last line that says how many
there are. Ephemeral nodes are left out: they belong to processes, not to the data.

Nodes are read one after the other while others write. A log's list of segments is read as it was at one moment; the
rest is as consistent as what was stopped meanwhile.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scribengin.base.model import from_node_name
from scribengin.base.names import LOCKS
from scribengin.base.process.private import replacing
from scribengin.errors import ConfigInvalid, DescriptorUnreadable, LogNotFound
from scribengin.log.inspect import LogMetadata, segment_nodes
from scribengin_registry.client import REQUEST_BYTES_MAX, batches
from scribengin_registry.contract import Check, Create, Delete, Node, Operation, Registry, Set
from scribengin_registry.errors import NodeExists, NodeMissing, RegistryError, RestoreUnfinished
from scribengin_registry.opening import RESTORING, refuse_half_restored

_FORMAT = {"format": "scribengin-registry-backup", "version": 1}
_SERVERS_OWN = "/zookeeper"
_OWNER = f"{RESTORING}/owner"
_MARKS = (RESTORING, _OWNER)

Saved = tuple[str, bytes]


def back_up(registry: Registry, file: Path) -> int:
    """Write every node to `file`, which is replaced at the end, and return how many. Raises as `replacing`, and what
    the registry raises; RestoreUnfinished: what is there is not whole."""
    with replacing(file, 0o600) as raw, gzip.open(raw, "wt", encoding="ascii") as lines:
        lines.write(json.dumps(_FORMAT) + "\n")
        count = 0
        for path, data in _nodes(registry, "/"):
            lines.write(json.dumps({"path": path, "data": base64.b64encode(data).decode()}) + "\n")
            count += 1
        lines.write(json.dumps({"nodes": count}) + "\n")
        refuse_half_restored(registry)
    return count


def restore(registry: Registry, file: Path, *, replace: bool) -> int:
    """Make the registry what it was when `file` was written, and return how many nodes that are.

    Raises ConfigInvalid: the file is no whole backup, a node of it is too large, somebody is connected, or there are
    nodes already and not `replace`. Raises RestoreUnfinished: a part of it is done, as after a crash. Nobody else opens
    the registry then, and the same call with `replace` begins again.
    """
    saved = list(_read(file))
    _refuse_no_tree(saved, file)
    _refuse_too_large(saved)
    _look(registry, replace=replace)
    with _shut(registry) as shut:
        there = _look(registry, replace=replace)  # and who came before it was shut
        try:
            shut.for_good(there.stores)
            shut.commit(_changes(there, saved))
            shut.open()
        except RegistryError as error:
            raise RestoreUnfinished(
                f"the registry {registry.hosts} is not restored to its end ({error}), and nobody can open it: do it "
                "again with --replace",
                path=RESTORING,
            ) from error
    return len(saved)


@dataclass(slots=True)
class _There:
    """What a registry holds.

    `stores` are nodes below which BookKeeper has its own in the same ZooKeeper: its ledgers, or which of them are which
    segment. They are no copies of anything, and what they do not name bookies delete. So they stay as they are.
    """

    nodes: list[str]
    """All others, parents first."""
    stores: list[str]


def _changes(there: _There, saved: Iterable[Saved]) -> list[Operation]:
    """What makes `saved` of what is there."""
    within = tuple(f"{store}/" for store in there.stores)
    above = {"/", *(store[:at] for store in there.stores for at in range(1, len(store)) if store[at] == "/")}
    changes: list[Operation] = [Delete(path) for path in reversed(there.nodes) if path not in above]
    for path, data in saved:
        if f"{path}/".startswith(within):
            continue
        if path not in above:
            changes.append(Create(path, data))
        elif data:
            changes.append(Set(path, data))
    return changes


def _look(registry: Registry, *, replace: bool) -> _There:
    """Raises ConfigInvalid: somebody is connected, or there are nodes and not `replace`."""
    there, finds = _There([], []), True
    mark = registry.find(RESTORING)
    if mark is not None and not mark.owner_session:  # one was begun: what looks like a store may be half restored
        there.stores, finds = json.loads(mark.data or b"[]"), False
    ours = {(path, registry.session_id) for path in _MARKS}
    for path, owner in _paths(registry, "/", there.stores, finds=finds):
        if owner and (path, owner) not in ours:
            raise ConfigInvalid(
                f"{path} belongs to a process that is connected: stop dataflows, masters, writers and readers first"
            )
        if path not in ("/", *_MARKS):
            there.nodes.append(path)
    if there.nodes and not replace:
        raise ConfigInvalid(
            f"the registry {registry.hosts} has {len(there.nodes):,} nodes already: restore into an empty one, or say "
            "--replace, which deletes them"
        )
    return there


class _Shut:
    """A registry that nobody opens, but for one session: by a node that goes with that session until something is
    changed, and stays from then on. Each change holds that it is still that session's."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._own = _OWNER if registry.find(RESTORING) is not None else RESTORING
        registry.create(self._own, ephemeral=True)

    def for_good(self, stores: Sequence[str]) -> None:
        """From here on it is opened by `open` alone. What stays is written down for who begins again."""
        if self._own == RESTORING:
            said = json.dumps(stores).encode()
            self._registry.commit([Delete(RESTORING), Create(RESTORING, said), Create(_OWNER, ephemeral=True)])
            self._own = _OWNER

    def commit(self, operations: Sequence[Operation]) -> None:
        """Do that, in as many transactions as it takes."""
        ours = Check(self._own, 0)
        for batch in batches(operations):
            match batch:
                case [Create(path, data)]:  # as large as a node may be, which a transaction has no room for
                    self._registry.commit([ours])
                    self._registry.create(path, data)
                case _:
                    self._registry.commit([ours, *batch])

    def open(self) -> None:
        """It is whole."""
        self._registry.commit([Delete(_OWNER), Delete(RESTORING)])

    def take_back(self) -> None:
        """Nothing was changed."""
        self._registry.delete(self._own)


@contextmanager
def _shut(registry: Registry) -> Iterator[_Shut]:
    """Raises ConfigInvalid: somebody else has done it."""
    try:
        shut = _Shut(registry)
    except NodeExists:
        raise ConfigInvalid(
            f"the registry {registry.hosts} is being restored by another process: wait for it"
        ) from None
    try:
        yield shut
    except ConfigInvalid:
        shut.take_back()
        raise


def _refuse_no_tree(saved: Iterable[Saved], file: Path) -> None:
    known = {"/"}
    for path, _data in saved:
        parent, slash, name = path.rpartition("/")
        if path != "/" and (path in known or not slash or not name or (parent or "/") not in known):
            raise ConfigInvalid(f"the backup {file} is damaged ('{path}' cannot be made where it stands); take another")
        known.add(path)


def _refuse_too_large(saved: Iterable[Saved]) -> None:
    for path, data in saved:
        if len(data) > REQUEST_BYTES_MAX:
            raise ConfigInvalid(
                f"{path} has {len(data):,} bytes, and a node that is restored may have {REQUEST_BYTES_MAX:,}: nothing "
                "was changed; make it smaller where it stands, and take another backup"
            )


def _nodes(registry: Registry, path: str) -> Iterator[Saved]:
    """The node and everything below it, parents first."""
    parent, _, name = path.rpartition("/")
    namespace, _, log = parent.rpartition("/logs/")
    if name == "segments" and namespace and "/" not in log:
        try:
            head, segments = segment_nodes(LogMetadata(registry, namespace, from_node_name(log)))
        except (LogNotFound, DescriptorUnreadable):  # it is being deleted, or damaged, or a store's: it stays that
            pass
        else:
            yield path, head.to_bytes()
            yield from ((f"{path}/{segment}", data) for segment, data in segments)
            return
    try:
        node = registry.get(path)
        children = registry.children(path)
    except NodeMissing:
        return
    if node.owner_session:
        return
    yield path, node.data
    for below in sorted((f"{path.rstrip('/')}/{child}" for child in children), key=_turn):
        if below != _SERVERS_OWN:
            yield from _nodes(registry, below)


def _turn(path: str) -> tuple[bool, str]:
    """By name, but streams before dataflows: where a stream was read up to may go from its own node into the
    dataflow's meanwhile, and so stands in one of the two. If in both, its own node counts."""
    return path != LOCKS, path


def _paths(registry: Registry, path: str, stores: list[str], *, finds: bool) -> Iterator[tuple[str, int]]:
    """Every node's path, parents first, and the session that keeps it; but for `stores`, which others join if it
    `finds` them."""
    node = registry.find(path)
    if node is None or path in stores:
        return
    children = registry.children(path) if node.children_count else []
    if finds and path != "/" and _is_stores(node, children):
        stores.append(path)
        return
    yield path, node.owner_session
    for child in children:
        below = f"{path.rstrip('/')}/{child}"
        if below != _SERVERS_OWN:
            yield from _paths(registry, below, stores, finds=finds)


def _is_stores(node: Node, children: Sequence[str]) -> bool:
    """By what stands below it; a namespace's own node says where its store is."""
    return {"INSTANCEID", "LAYOUT"} <= {*children} or (".namespace" in children and not node.data)


def _read(file: Path) -> Iterator[Saved]:
    count, ended = 0, False
    try:
        with gzip.open(file, "rt", encoding="ascii") as lines:
            if json.loads(next(lines, "null")) != _FORMAT:
                raise ConfigInvalid(f"{file} is no backup of a registry that this version reads")
            for line in lines:
                said = json.loads(line)
                if "nodes" in said:  # read on: only at the end of the file its checksum is looked at
                    ended = said["nodes"] == count
                    continue
                count, ended = count + 1, False
                yield str(said["path"]), base64.b64decode(said["data"], validate=True)
    except OSError as error:
        raise ConfigInvalid(f"the backup {file} cannot be read: {error}; take another") from error
    except (ValueError, KeyError, TypeError, EOFError, binascii.Error, zlib.error) as error:
        raise ConfigInvalid(f"the backup {file} is damaged ({error}); take another") from error
    if not ended:
        raise ConfigInvalid(f"the backup {file} ends before its end; take another")
