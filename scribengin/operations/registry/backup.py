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
from pathlib import Path

from scribengin.base.model import from_node_name
from scribengin.base.names import LOCKS
from scribengin.base.process.private import replacing
from scribengin.errors import ConfigInvalid, LogNotFound
from scribengin.log.inspect import LogMetadata, segment_nodes
from scribengin_registry.client import REQUEST_BYTES_MAX, batches
from scribengin_registry.contract import Create, Delete, Operation, Registry
from scribengin_registry.errors import NodeMissing

_FORMAT = {"format": "scribengin-registry-backup", "version": 1}
_SERVERS_OWN = "/zookeeper"

Saved = tuple[str, bytes]


def back_up(registry: Registry, file: Path) -> int:
    """Write every node to `file`, which is replaced at the end, and return how many. Raises as `replacing`,
    and what the registry raises."""
    with replacing(file, 0o600) as raw, gzip.open(raw, "wt", encoding="ascii") as lines:
        lines.write(json.dumps(_FORMAT) + "\n")
        count = 0
        for path, data in _nodes(registry, "/"):
            lines.write(json.dumps({"path": path, "data": base64.b64encode(data).decode()}) + "\n")
            count += 1
        lines.write(json.dumps({"nodes": count}) + "\n")
    return count


def restore(registry: Registry, file: Path, *, replace: bool) -> int:
    """Make the registry what it was when `file` was written, and return how many nodes that are.

    Raises ConfigInvalid: the file is no whole backup, a node of it is too large, somebody is connected, or there are
    nodes already and not `replace`. A crash leaves a part of it: the same call with `replace` begins again.
    """
    saved = list(_read(file))
    _refuse_no_tree(saved, file)
    _refuse_too_large(saved)
    there = [path for path, _data in _paths(registry, "/") if path != "/"]
    held = next((path for path, owner in _paths(registry, "/") if owner), None)
    if held is not None:
        raise ConfigInvalid(
            f"{held} belongs to a process that is connected: stop dataflows, masters, writers and readers first"
        )
    if there and not replace:
        raise ConfigInvalid(
            f"the registry {registry.hosts} has {len(there):,} nodes already: restore into an empty one, or say "
            "--replace, which deletes them"
        )
    _commit(registry, [Delete(path) for path in reversed(there)])
    root = next((data for path, data in saved if path == "/"), b"")
    if root:
        registry.set("/", root)
    _commit(registry, [Create(path, data) for path, data in saved if path != "/"])
    return len(saved)


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


def _commit(registry: Registry, operations: Sequence[Operation]) -> None:
    for batch in batches(operations):
        match batch:
            case [Create(path, data)]:  # as large as a node may be, which a transaction has no room for
                registry.create(path, data)
            case _:
                registry.commit(batch)


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
