"""The files in memory against the local ones: the same random history on both, the same answers, the same record.

The local ones stand on a disk that keeps a record, and of that record the model of a power failure is known to hold
(`tests/crash`). Both do the same operations in the same order, so what the model says of one disk is true of the other:
and what a crash of the files in memory leaves is drawn from that very model, whose every state some seed draws.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from scribengin.errors import DataflowError, OutOfRoom, ScribenginError, SystemUnreachable
from scribengin.filesystems.contract import DurableFileSystem, NewFile
from scribengin.filesystems.local import LocalFileSystem
from scribengin.filesystems.paths import durable_file_system
from scribengin.testing.conformance.files import contents, write_file
from scribengin.testing.memory.disk_states import Disk, Operation, Tree
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.memory.registry import Loss
from tests.crash.disk_recorder import RecordedDisk

STEPS = 120
DIRECTORIES = ("", "/a", "/a/b", "/_hidden", "/c")
NAMES = ("f", "g", ".h", "a", "b")
STATES_MAX = 2000
DRAWS = 4000


class Side:
    """One file system, its open files, and a way to do random things to it."""

    def __init__(self, files: DurableFileSystem, root: str, *, careful: bool = True) -> None:
        """`careful`: leave out what fails although the record of a disk holds it as done."""
        self.files = files
        self._careful = careful
        self.root = root
        self.open: list[NewFile] = []
        self.identities: dict[str, int] = {}

    def act(self, chance: random.Random) -> object:
        """The next step of a history, and what came of it, with this side's own root and identities made neutral."""
        path, to = self._path(chance), self._path(chance)
        directory = self.root + chance.choice(DIRECTORIES)
        data = bytes(chance.randrange(256) for _ in range(chance.choice((0, 1, 30, 700))))
        start, depth = chance.randrange(40), chance.choice((None, 1, 2))
        acts: list[Callable[[], object]] = [
            *[lambda: self._create(path)] * 3,
            *[lambda: self._with_open(chance, lambda file: file.append(data))] * 4,
            *[lambda: self._with_open(chance, NewFile.sync)] * 2,
            lambda: self._with_open(chance, NewFile.close),
            *[lambda: self.files.make_directories(directory)] * 2,
            *[lambda: self._rename(path, to)] * 3,
            lambda: self._remove(path),
            *[lambda: self.files.sync_directory(directory)] * 2,
            lambda: self.files.names(directory),
            lambda: None if self.files.is_directory(path) else self.files.size(path),
            lambda: self.files.is_directory(path),
            lambda: self._found(directory, depth),
            lambda: self.files.read(path, start, start + 50),
            lambda: contents(self.files, path),
            lambda: self._followed(path, to),
        ]
        try:
            return chance.choice(acts)()
        except (FileExistsError, FileNotFoundError) as error:
            return type(error).__name__
        except DataflowError as error:
            return type(error).__name__, str(error).replace(self.root, "")

    def tree(self) -> object:
        """All that can be found."""
        return self._found(self.root, None)

    def _path(self, chance: random.Random) -> str:
        return f"{self.root}{chance.choice(DIRECTORIES)}/{chance.choice(NAMES)}"

    def _create(self, path: str) -> None:
        if not self._careful or self.files.is_directory(path.rpartition("/")[0]):
            self.open.append(self.files.create(path))

    def _rename(self, path: str, to: str) -> None:
        moved = not self.files.is_directory(path)  # directories are never moved
        if moved and (not self._careful or self.files.is_directory(to.rpartition("/")[0])):
            self.files.rename(path, to)

    def _remove(self, path: str) -> None:
        if not self._careful or not self.files.is_directory(path):
            self.files.remove(path)

    def _with_open(self, chance: random.Random, act: Callable[[NewFile], object]) -> None:
        if self.open:
            file = self.open[chance.randrange(len(self.open))]
            if file._open:
                act(file)

    def _found(self, path: str, depth: int | None) -> object:
        """Times are not compared; identities are, by which files have the same one."""
        found = self.files.find(path, depth)
        same = [(self.identities.setdefault(info.identity, len(self.identities)), info) for info in found]
        return [(number, info.name, info.size_bytes) for number, info in same]

    def _followed(self, path: str, to: str) -> object:
        """A file by its identity, asked for at two names."""
        (info, *_) = self.files.find(path, 1) or [None]
        if info is None or self.files.is_directory(path):
            return None
        found = self.files.path_of(path, info.identity)
        named = found and found.removeprefix(self.root)
        return named, self.files.is_complete(path, info), self.files.read_same(to, info.identity, 0, 10)


def below_root(operation: Operation) -> list[Operation]:
    """An operation below `/disk`, as a record of that directory has it; none that is above."""
    names = {key: value for key, value in vars(operation).items() if key in ("path", "target")}
    below = {key: "." if name == "disk" else name.removeprefix("disk/") for key, name in names.items()}
    return [replace(operation, **below)] if all(name.startswith("disk") for name in names.values()) else []


def same_answers(real: Side, unreal: Side, seed: int) -> None:
    """The same random history on both."""
    chances = random.Random(seed), random.Random(seed)
    for step in range(STEPS):
        answers = real.act(chances[0]), unreal.act(chances[1])
        assert answers[0] == answers[1], f"step {step}"
    assert real.tree() == unreal.tree()
    for file in real.open:
        file.close()


@pytest.mark.parametrize("seed", range(25))
def test_the_same_history_has_the_same_answers(seed: int, tmp_path: Path) -> None:
    memory = MemoryFiles()
    memory.make_directories("/disk")
    same_answers(Side(LocalFileSystem(), str(tmp_path), careful=False), Side(memory, "/disk", careful=False), seed)


@pytest.mark.parametrize("seed", range(25))
def test_the_same_history_has_the_same_record(seed: int, tmp_path: Path) -> None:
    memory, operations = MemoryFiles(), list[Operation]()
    memory.make_directories("/disk")
    memory.hook = lambda operation: operations.extend(below_root(operation))
    with RecordedDisk(tmp_path) as disk:
        same_answers(Side(LocalFileSystem(), str(tmp_path)), Side(memory, "/disk"), seed)
    assert operations == disk.operations


def history(files: MemoryFiles, seed: int) -> list[Operation]:
    """A few operations that leave a little undecided."""
    operations: list[Operation] = []
    files.hook = operations.append
    chance, side = random.Random(seed), Side(files, "")
    while len(operations) < 9:
        side.act(chance)
    return operations


def tree_of(files: MemoryFiles) -> Tree:
    """What stands there, hidden or not, as the model has it."""

    def below(directory: str) -> Tree:
        found: Tree = {}
        for name in files.names(directory or "/"):
            path = f"{directory}/{name}"
            if files.is_directory(path):
                found |= {path[1:]: None, **below(path)}
            else:
                found[path[1:]] = contents(files, path)[0]
        return found

    return below("")


def drawn(seed: int, draw: int) -> frozenset[tuple[str, bytes | None]]:
    """What a crash leaves of a history."""
    files = MemoryFiles()
    history(files, seed)
    files.crash(draw)
    return frozenset(tree_of(files).items())


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.full) for seed in range(6, 40)] + [0, 1, 2, 3])
def test_every_state_that_the_model_of_a_power_failure_has_is_what_some_crash_leaves(seed: int) -> None:
    disk = Disk()
    for operation in history(MemoryFiles(), seed):
        disk.apply(operation)
    states = list(disk.states(random.Random(1), STATES_MAX))
    missing = {frozenset(state.items()) for state in states if not _noisy(disk, state)}
    draws = iter(range(DRAWS))
    while missing:
        missing.discard(drawn(seed, next(draws)))


def _noisy(disk: Disk, state: Tree) -> bool:
    """Whether noise stands where nothing was written: a seed's own, which no other draws."""
    written = b"".join(version for file in disk.files.values() for version in file.versions()) + bytes(1024)
    return any(content[at : at + 64] not in written for content in state.values() if content for at in (0, 512))


# -- what only the files in memory can be told to do


def test_what_was_synced_outlives_every_crash_and_what_was_open_is_not_any_more() -> None:
    for seed in range(50):
        files = MemoryFiles()
        files.make_directories("/d")
        write_file(files, "/d/safe", b"safe")
        files.sync_directory("/d")
        identity = files.find("/d")[0].identity
        file = files.create("/d/open")
        file.append(b"x" * 2000)
        reader = files.snapshots(["/d/safe"])[0]
        files.crash(seed)
        assert contents(files, "/d/safe") == [b"safe"]
        assert files.find("/d/safe")[0].identity == identity
        for act in (lambda file=file: file.append(b"y"), file.sync, lambda reader=reader: list(reader)):
            with pytest.raises(SystemUnreachable, match="the power failed since"):
                act()
        file.close()


def test_a_system_that_is_away_is_unreachable_until_it_is_back() -> None:
    files = MemoryFiles()
    write_file(files, "/f", b"f")
    files.away = True
    asked: list[Callable[[], object]] = [
        lambda: files.size("/f"),
        lambda: files.is_directory("/"),
        lambda: files.find("/"),
        lambda: files.snapshots(["/f"]),
        lambda: files.rename("/f", "/g"),
    ]
    for ask in asked:
        with pytest.raises(SystemUnreachable, match="away"):
            ask()
    files.away = False
    assert contents(files, "/f") == [b"f"]


def test_a_full_system_takes_what_it_has_room_for_and_says_that_it_is_full() -> None:
    files = MemoryFiles()
    write_file(files, "/old", b"12345")
    files.room_bytes = 3
    file = files.create("/f")
    with pytest.raises(OutOfRoom, match="No space left"):
        file.append(b"12345")
    file.close()
    assert contents(files, "/f") == [b"123"]
    files.remove("/old")
    write_file(files, "/new", b"12345")
    assert files.room_bytes == 0


def test_a_file_that_is_replaced_gives_its_room_back() -> None:
    files = MemoryFiles()
    write_file(files, "/old", b"12345")
    files.room_bytes = 3
    write_file(files, "/new", b"123")
    files.replace("/new", "/old")
    assert files.room_bytes == 5
    files.replace("/old", "/other")
    files.replace("/other", "/other")
    assert files.room_bytes == 5
    assert contents(files, "/other") == [b"123"]


@pytest.mark.parametrize("loss", ["request", "reply"])
def test_a_lost_request_was_not_done_and_a_lost_reply_was(loss: Loss) -> None:
    files = MemoryFiles()
    write_file(files, "/f", b"f")
    files.lose = lambda act, _path: loss if act == "rename" else None
    with pytest.raises(SystemUnreachable, match=f"a {loss} was lost"):
        files.rename("/f", "/g")
    assert files.names("/") == (["f"] if loss == "request" else ["g"])


def test_a_protocol_means_the_files_while_the_block_lasts() -> None:
    files = MemoryFiles()
    with files.opened_by("sim") as url:
        found, path = durable_file_system(f"{url}a/b/")
        assert (found, path) == (files, "/a/b")
        with pytest.raises(ValueError, match="means other files"), MemoryFiles().opened_by("sim"):
            pass
    with pytest.raises(ScribenginError, match="'sim://' cannot be opened here"):
        durable_file_system(f"{url}a/b/")
