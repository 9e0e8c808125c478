"""What a power failure may leave of a disk: crash states, built from the operations that no fsync had made durable.

The model is the weakest one that applications are told to expect (as in ALICE), so every file system's behaviour is
among its states:

- Written bytes are durable once their file is synced; a name (made, renamed, removed) once its directory is. A rename
  happens as a whole or not, and is durable once the directory is that it leads to.
- Of the names that were not synced, any subset of the changes has happened, in their order.
- Of the bytes that were not synced, every sector of 512 bytes holds any of its versions since the last sync, whatever
  the others hold. A sector that was never written reads as zeros, or as noise (an old block of somebody else).
- A file's size is any that it has had since the last sync, or between two of them. A file may be longer than its data,
  and data may be there that the size does not reach.
- A sector is written whole or not at all, except that the size may end inside of it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

DIRECTORY = -1
"""Stands for an inode where a name is that of a directory."""


@dataclass(frozen=True)
class Link:
    """The name `path` came to be: a new file `inode`, or a directory."""

    path: str
    inode: int


@dataclass(frozen=True)
class Unlink:
    """The name `path` went."""

    path: str


@dataclass(frozen=True)
class Rename:
    """What was named `path` is named `target`, in place of what had that name."""

    path: str
    target: str


@dataclass(frozen=True)
class Write:
    """Bytes written to a file. `path` is the name it was opened by."""

    inode: int
    offset: int
    data: bytes
    path: str


@dataclass(frozen=True)
class Truncate:
    """A file was cut, or grown with zeros."""

    inode: int
    size: int
    path: str


@dataclass(frozen=True)
class Sync:
    """What was written to a file was made durable."""

    inode: int
    path: str


@dataclass(frozen=True)
class SyncDirectory:
    """The names in a directory were made durable."""

    path: str


@dataclass(frozen=True)
class Outside:
    """Something that was said or done outside of the disk: an acknowledgement, a registry transaction."""

    event: object


NameChange = Link | Unlink | Rename
DataChange = Write | Truncate
Operation = NameChange | DataChange | Sync | SyncDirectory | Outside
SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""
Tree = dict[str, bytes | None]
"""Paths below the disk's root: a file's bytes, or None for a directory."""


@dataclass
class _File:
    """An inode: what is durable of it, and what was done to it since."""

    durable: bytes = b""
    pending: list[DataChange] = field(default_factory=list)

    def versions(self) -> list[bytes]:
        """Its content as it was when it was last synced, and after every change since."""
        content = bytearray(self.durable)
        versions = [bytes(content)]
        for change in self.pending:
            _change(content, change)
            versions.append(bytes(content))
        return versions


@dataclass
class Disk:
    """A disk on which operations happen, one after the other: what is durable, and what is not yet."""

    files: dict[int, _File] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    """Those that are durable."""
    pending: list[NameChange] = field(default_factory=list)

    @classmethod
    def of(cls, tree: Tree) -> Disk:
        """A disk on which all of `tree` is durable, with the inodes that a RecordedDisk gives it."""
        disk = cls()
        for path in sorted(tree):
            content = tree[path]
            disk.names[path] = DIRECTORY if content is None else len(disk.files) + 1
            if content is not None:
                disk.files[disk.names[path]] = _File(content)
        return disk

    def apply(self, operation: Operation) -> None:
        """Let one operation happen."""
        if isinstance(operation, Write | Truncate):
            self.files[operation.inode].pending.append(operation)
        elif isinstance(operation, Sync):
            file = self.files[operation.inode]
            self.files[operation.inode] = _File(file.versions()[-1])
        elif isinstance(operation, SyncDirectory):
            left: list[NameChange] = []
            for change in self.pending:
                if _parent(_name(change)) == operation.path:
                    _rename(self.names, change)
                else:
                    left.append(change)
            self.pending = left
        elif not isinstance(operation, Outside):
            if isinstance(operation, Link) and operation.inode != DIRECTORY:
                self.files[operation.inode] = _File()
            if isinstance(operation, Rename):
                self.pending = [_moved_along(change, operation) for change in self.pending]
            self.pending.append(operation)

    def whole(self) -> Tree:
        """What is there while the power stays on."""
        return self._tree(self.pending, {inode: file.versions()[-1] for inode, file in self.files.items()})

    def unsynced(self, suffix: str) -> bool:
        """Whether bytes of a file of that kind are not durable."""
        return any(file.pending[-1].path.endswith(suffix) for _inode, file in self._uncertain())

    def states(self, chosen: random.Random, at_most: int) -> Iterator[Tree]:
        """What a power failure just now may leave: all of it if that is not much, else the corners and some of the
        rest."""
        names = list(_subsets(self.pending, chosen, at_most))
        contents = [
            dict(pairs)
            for pairs in _products(
                [[(inode, content) for content in _contents(file, chosen)] for inode, file in self._uncertain()],
                chosen,
                at_most,
            )
        ]
        combinations = [(subset, content) for subset in names for content in contents]
        if len(combinations) > at_most:
            corners = [(names[-1], contents[0]), (names[-1], contents[-1]), (names[0], contents[-1])]
            combinations = corners + chosen.sample(combinations, max(0, at_most - len(corners)))
        for subset, content in combinations:
            yield self._tree(subset, {inode: file.durable for inode, file in self.files.items()} | content)

    def fail(self, chosen: random.Random) -> None:
        """Lose power: what is left is one of the states that `states` knows of, and is durable from now on."""
        likely = chosen.choice((0.0, 0.5, 0.9, 1.0))
        for change in self.pending:
            if chosen.random() < likely:
                _rename(self.names, change)
        self.pending = []
        self.names = {path: inode for path, inode in sorted(self.names.items()) if self._has_directory(path)}
        kept = {inode: self.files[inode] for inode in self.names.values() if inode != DIRECTORY}
        self.files = {inode: _File(_one_of(file, chosen)) for inode, file in sorted(kept.items())}

    def _has_directory(self, path: str) -> bool:
        above = _parent(path)
        return above == "." or (above in self.names and self._has_directory(above))

    def _uncertain(self) -> Iterable[tuple[int, _File]]:
        reachable = {*self.names.values(), *(change.inode for change in self.pending if isinstance(change, Link))}
        return [(inode, file) for inode, file in self.files.items() if file.pending and inode in reachable]

    def _tree(self, changes: Iterable[NameChange], contents: dict[int, bytes]) -> Tree:
        names = dict(self.names)
        for change in changes:
            _rename(names, change)
        tree: Tree = {}
        for path, inode in sorted(names.items()):
            if "/" not in path or _parent(path) in tree:  # what has no directory cannot be found
                tree[path] = None if inode == DIRECTORY else contents[inode]
        return tree


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _name(change: NameChange) -> str:
    """The name that a change makes or takes away."""
    return change.target if isinstance(change, Rename) else change.path


def _rename(names: dict[str, int], change: NameChange) -> None:
    if isinstance(change, Link):
        names[change.path] = change.inode
    elif isinstance(change, Unlink):
        names.pop(change.path, None)
    elif change.path in names:
        names[change.target] = names.pop(change.path)
        for path in [path for path in names if path.startswith(f"{change.path}/")]:
            names[change.target + path.removeprefix(change.path)] = names.pop(path)


def _moved_along(change: NameChange, rename: Rename) -> NameChange:
    """A change that is not durable, in a directory that is renamed."""
    above = f"{rename.path}/"
    names = {
        key: rename.target + name.removeprefix(rename.path)
        for key, name in vars(change).items()
        if key != "inode" and name.startswith(above)
    }
    return replace(change, **names) if names else change


def _change(content: bytearray, change: DataChange) -> None:
    if isinstance(change, Truncate):
        content[change.size :] = bytes(max(0, change.size - len(content)))
        return
    content.extend(bytes(max(0, change.offset - len(content))))
    content[change.offset : change.offset + len(change.data)] = change.data


def _subsets(changes: Sequence[NameChange], chosen: random.Random, at_most: int) -> Iterator[list[NameChange]]:
    """Subsets, each in order: none first, all last."""
    if 2 ** len(changes) <= at_most:
        for taken in itertools.product((False, True), repeat=len(changes)):
            yield list(itertools.compress(changes, taken))
        return
    yield []
    for end in chosen.sample(range(1, len(changes)), min(len(changes) - 1, 4)):
        yield list(changes[:end])
    for _ in range(4):
        yield [change for change in changes if chosen.random() < 0.5]
    yield list(changes)


def _products(
    columns: list[list[tuple[int, bytes]]], chosen: random.Random, at_most: int
) -> Iterator[tuple[tuple[int, bytes], ...]]:
    """One of each column: all combinations, or the first and last of all and some of the rest."""
    total = 1
    for column in columns:
        total *= len(column)
    if total <= at_most:
        yield from itertools.product(*columns)
        return
    yield tuple(column[0] for column in columns)
    for _ in range(at_most - 2):
        yield tuple(chosen.choice(column) for column in columns)
    yield tuple(column[-1] for column in columns)


def _one_of(file: _File, chosen: random.Random) -> bytes:
    return chosen.choice(_contents(file, chosen)) if file.pending else file.durable


def _contents(file: _File, chosen: random.Random) -> list[bytes]:
    """What a file may hold: what is durable first, all that was written last, in between no content twice."""
    versions = file.versions()
    size = max(len(version) for version in versions)
    sectors = range(0, size, SECTOR_BYTES)
    first, last = versions[0], versions[-1]
    differing = [at for at in sectors if any(_sector(version, at) != _sector(first, at) for version in versions)]
    contents = [first, *versions[1:-1]]
    if len(differing) <= 3:
        for picked in itertools.product(versions, repeat=len(differing)):
            contents.append(_mixed(first, dict(zip(differing, picked, strict=True)), size))
    else:
        contents.extend(_sampled(versions, differing, size, chosen))
    for cut in _cuts(first, last, chosen):
        contents += [last[:cut], last[:cut] + bytes(len(last) - cut), last[:cut] + chosen.randbytes(len(last) - cut)]
    return [content for content in dict.fromkeys(contents) if content != last] + [last]


def _sampled(versions: list[bytes], differing: list[int], size: int, chosen: random.Random) -> Iterator[bytes]:
    first, last = versions[0], versions[-1]
    for at in {differing[0], differing[-1], *chosen.sample(differing, min(len(differing), 4))}:
        yield _mixed(first, {at: last}, size)
        yield _mixed(last, {at: first}, size)
        block = range(at // 4096 * 4096, at // 4096 * 4096 + 4096, SECTOR_BYTES)
        yield _mixed(last, dict.fromkeys(block, first), size)
        new = [sector for sector in block if sector in differing and sector >= len(first)]
        yield _mixed(last, dict.fromkeys(new, chosen.randbytes(size)), size)
    for _ in range(6):
        mixed = _mixed(first, {at: chosen.choice(versions) for at in differing}, size)
        yield mixed
        yield mixed[: chosen.randint(min(len(first), len(last)), size)]


def _cuts(first: bytes, last: bytes, chosen: random.Random) -> set[int]:
    """Sizes between the durable and the last one: some bytes, and some sectors' ends."""
    low, high = sorted((len(first), len(last)))
    if low == high:
        return set()
    some = {chosen.randint(low, high) for _ in range(2)} | {chosen.randint(low, high) // SECTOR_BYTES * SECTOR_BYTES}
    return {cut for cut in some if low <= cut}


def _sector(content: bytes, at: int) -> bytes:
    return content[at : at + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")


def _mixed(base: bytes, picked: dict[int, bytes], size: int) -> bytes:
    """`base`, grown to `size`, with the sectors at some places taken from others."""
    content = bytearray(base.ljust(size, b"\0"))
    for at, source in picked.items():
        content[at : at + SECTOR_BYTES] = _sector(source, at)
    return bytes(content[:size])
