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
from pathlib import Path

from scribengin.base.model import from_node_name
from scribengin.base.names import LOCKS
from scribengin.base.process.private import replacing
from scribengin.errors import ConfigInvalid, LogNotFound
from scribengin.log.inspect import LogMetadata, segment_nodes
from scribengin_registry.client import REQUEST_BYTES_MAX, batches
from scribengin_registry.contract import Check, Create, Delete, Operation, Registry, Set
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
    _refuse_used(registry, replace=replace)
    with _shut(registry) as shut:
        there = _refuse_used(registry, replace=replace)  # who came before it was shut
        try:
            shut.for_good()
            shut.commit([Delete(path) for path in reversed(there)])
            root = next((data for path, data in saved if path == "/"), b"")
            shut.commit([Set("/", root)] if root else [])
            shut.commit([Create(path, data) for path, data in saved if path != "/"])
            shut.open()
        except RegistryError as error:
            raise RestoreUnfinished(
                f"the registry {registry.hosts} is not restored to its end ({error}), and nobody can open it: do it "
                "again with --replace",
                path=RESTORING,
            ) from error
    return len(saved)


def _refuse_used(registry: Registry, *, replace: bool) -> list[str]:
    """The nodes that would be deleted, parents first."""
    found = list(_paths(registry, "/"))
    ours = {(mark, registry.session_id) for mark in _MARKS}
    held = next((path for path, owner in found if owner and (path, owner) not in ours), None)
    if held is not None:
        raise ConfigInvalid(
            f"{held} belongs to a process that is connected: stop dataflows, masters, writers and readers first"
        )
    there = [path for path, _owner in found if path not in ("/", *_MARKS)]
    if there and not replace:
        raise ConfigInvalid(
            f"the registry {registry.hosts} has {len(there):,} nodes already: restore into an empty one, or say "
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

    def for_good(self) -> None:
        """From here on it is opened by `open` alone."""
        if self._own == RESTORING:
            self._registry.commit([Delete(RESTORING), Create(RESTORING), Create(_OWNER, ephemeral=True)])
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
        except LogNotFound:  # it is being deleted: what is left of it stays that
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


def _paths(registry: Registry, path: str) -> Iterator[tuple[str, int]]:
    """Every node's path, parents first, and the session that keeps it."""
    node = registry.find(path)
    if node is None:
        return
    yield path, node.owner_session
    if not node.children_count:
        return
    for child in registry.children(path):
        below = f"{path.rstrip('/')}/{child}"
        if below != _SERVERS_OWN:
            yield from _paths(registry, below)


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
