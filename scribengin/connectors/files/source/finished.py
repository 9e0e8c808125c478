"""Which files were read to their ends, when their names are too many for a commit: nodes beside the commit log.

    <stream>/finished/<fold>-<hash>     {"files": {"<directory>": {"<name>": [<what is known of it>], ...}, ...}}

A *fold* takes the names out of the position and puts them into such nodes, **before** the commit whose position names
the nodes. A node never changes. Its name holds the number of its fold and the hash of its content: a fold that is made
again writes the same node. What a crash leaves:

| before the end of | what                                    | then                                                   |
|-------------------|-----------------------------------------|--------------------------------------------------------|
| writing           | some nodes that no position names       | the same fold names them, or the next sweep takes them |
| the commit        | the same                                | the same                                               |
| the sweep         | nodes of folds before, named no more    | the next owner's first sweep takes them                |

**Why the sweep is safe beside another owner.** It starts from a committed position of fold k, and deletes nodes of
folds <= k that this position does not name. Whatever is committed after that position has kept some of its nodes and
made others under numbers > k. So a stale owner never deletes what a successor needs, however late it comes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

from scribengin.base.failpoints import failpoint
from scribengin.base.model import plain_path
from scribengin.connectors.files.source.position import FilePosition, SeenFile
from scribengin.errors import DataflowError
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeExists, NodeMissing

NODE_BYTES_MAX = 256 * 1024
"""A registry takes nodes of up to about a megabyte."""
_HASH_CHARACTERS = 20
_PUNCTUATION_BYTES = 13


class FinishedFiles:
    """The nodes of one source stream. Used by one thread."""

    def __init__(self, registry: Registry, node: str) -> None:
        """`node` is the registry path of the stream's `finished` node, which may not be there yet."""
        self._registry = registry
        self._node = node
        self._read = lru_cache(maxsize=1024)(self._read_node)

    def load(self, names: Sequence[str]) -> dict[str, SeenFile]:
        """What the nodes hold together: files and what is known of them. Raises DataflowError."""
        files: dict[str, SeenFile] = {}
        for name in names:
            files.update(self._read(name))
        return files

    def write(self, fold: int, files: Mapping[str, SeenFile]) -> list[str]:
        """Put files into new nodes: their names. Raises OutcomeUnknown; to do it again is fine then."""
        return [self._create(fold, content) for content in _pieces(files)]

    def sweep(self, fold: int, named: Iterable[str]) -> None:
        """Delete the nodes of folds up to `fold` that are not named. To be called with a committed position's."""
        try:
            there = self._registry.children(self._node)
        except NodeMissing:
            return
        for name in set(there).difference(named):
            if int(name.partition("-")[0]) <= fold:
                try:
                    with failpoint("files.finished_sweep"):
                        self._registry.delete(f"{self._node}/{name}")
                except NodeMissing:
                    continue  # somebody else has swept, too

    def _create(self, fold: int, content: bytes) -> str:
        name = f"{fold:09d}-{hashlib.sha256(content).hexdigest()[:_HASH_CHARACTERS]}"
        try:
            with failpoint("files.finished_write"):
                self._registry.create(f"{self._node}/{name}", content, parents=True)
        except NodeExists:
            return name  # this very content, from when the round was planned before
        return name

    def _read_node(self, name: str) -> Mapping[str, SeenFile]:
        path = f"{self._node}/{name}"
        try:
            directories = json.loads(self._registry.get(path).data)["files"]
            return {
                f"{directory}{file}": SeenFile.parse(seen)
                for directory, files in directories.items()
                for file, seen in files.items()
            }
        except NodeMissing:
            raise DataflowError(
                f"{plain_path(path)} is gone: it said which files were read. Its task has another owner, or somebody "
                "deleted it: then restore it, or submit the dataflow under another name to read everything again"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DataflowError(f"{plain_path(path)} does not hold the names of files; restore it") from None


def _pieces(files: Mapping[str, SeenFile]) -> list[bytes]:
    """The contents of nodes that hold all the files, in order of their names: deterministic."""
    pieces: list[bytes] = []
    directories: dict[str, dict[str, list[int | str]]] = {}
    size = 0
    for name, seen in sorted(files.items(), key=itemgetter(0)):
        directory, slash, file = name.rpartition("/")
        cost = entry_bytes(name, seen)
        if size + cost > NODE_BYTES_MAX:
            pieces.append(_content(directories))
            directories, size = {}, 0
        directories.setdefault(directory + slash, {})[file] = seen.to_json()
        size += cost
    if directories:
        pieces.append(_content(directories))
    return pieces


def _content(directories: Mapping[str, Mapping[str, list[int | str]]]) -> bytes:
    return json.dumps({"files": directories}, ensure_ascii=False, separators=(",", ":")).encode()


def entry_bytes(name: str, seen: SeenFile) -> int:
    """About what a file costs in a node."""
    known = len(str(seen.read)) + len(str(seen.modified_ms)) + len(seen.mark) + len(seen.identity)
    return len(name.encode()) + known + _PUNCTUATION_BYTES


def fold(position: FilePosition, store: FinishedFiles) -> FilePosition:
    """The same position with its finished files in nodes: new ones, and those that hold enough and nothing dropped."""
    kept: list[str] = []
    files: dict[str, SeenFile] = {}
    for node in position.nodes:
        held = store.load([node])
        live = {n: seen for n, seen in held.items() if n not in position.dropped and n not in position.finished}
        if len(live) == len(held) and sum(entry_bytes(*entry) for entry in held.items()) >= NODE_BYTES_MAX // 2:
            kept.append(node)
        else:
            files.update(live)
    files.update(position.finished)
    return position.folded([*kept, *store.write(position.fold + 1, files)])
