"""A writer that opens a log looks at what was announced last, not at all files: unless that cannot be relied on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from scribengin.errors import Fenced, LogWriteFailed
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.log.clients import recover_log
from scribengin.log.store import file
from scribengin.log.store.contract import SegmentName
from scribengin.log.store.file import FileSegmentStore
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, forge_segments, payload_batch, payloads_read
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry
from tests.dying import Stopped, stop_here
from tests.registry_copies import restore, saved

LOG = "flüge/0"
SMALL = LogConfig(segment_bytes_max=4096)


@pytest.fixture
def registry() -> Registry:
    return MemoryEnsemble().connect()


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=SMALL)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The logs' directories whose files were listed, from now on."""
    directories: list[str] = []
    names = FileSegmentStore.names

    def noted(store: FileSegmentStore, directory: str) -> list[SegmentName]:
        if not directory.endswith("/aside"):
            directories.append(directory)
        return names(store, directory)

    monkeypatch.setattr(FileSegmentStore, "names", noted)
    return directories


@pytest.fixture
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_no_umask")
def test_nobody_else_can_look_into_logs_whatever_the_umask_is(namespace: LogNamespace) -> None:
    fill(namespace, 2)
    store = Path(namespace.descriptor.location)
    directories = [store, *(path for path in store.rglob("*") if path.is_dir())]
    assert len(directories) >= 3
    assert [path for path in directories if path.stat().st_mode & 0o777 != 0o700] == []


def directory_of(namespace: LogNamespace) -> Path:
    return Path(namespace.descriptor.location) / namespace.info(LOG).log.directory


def files(namespace: LogNamespace) -> list[str]:
    return sorted(path.name for path in directory_of(namespace).glob("*.log"))


def fill(namespace: LogNamespace, segments: int) -> list[bytes]:
    """Write so many segments, of a record each, as one writer."""
    payloads = [os.urandom(5000) for _ in range(segments)]
    with namespace.open_writer(LOG) as writer:
        for payload in payloads:
            writer.write_bulk(payload_batch([payload])).result(120)
    return payloads


def look(namespace: LogNamespace) -> None:
    """Become the writer, who writes nothing."""
    namespace.open_writer(LOG, steal=True).close()


def set_aside(namespace: LogNamespace) -> list[str]:
    """Files that the registry does not name; all of them were set aside."""
    found = namespace.inspect(LOG).unnamed()
    assert all(name.directory.endswith("/aside") for name in found)
    return [f"{name.segment:018d}-{name.epoch}.log" for name in found]


def test_a_log_is_opened_without_a_look_at_its_files(namespace: LogNamespace, listed: list[str]) -> None:
    fill(namespace, 9)
    listed.clear()
    for _ in range(2):
        look(namespace)
    written = fill(namespace, 1)
    look(namespace)
    assert listed == []
    assert payloads_read(namespace, LOG)[-1:] == written


def test_what_an_older_engine_wrote_is_looked_at_once(namespace: LogNamespace, listed: list[str]) -> None:
    """It announces nothing."""
    fill(namespace, 9)
    shutil.rmtree(directory_of(namespace) / ".made")
    listed.clear()
    look(namespace)
    assert len(listed) == 1
    look(namespace)
    assert len(listed) == 1


def test_segments_that_were_made_unannounced_make_the_last_announcement_worthless(
    namespace: LogNamespace, registry: Registry, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by an older engine that was brought back for a while."""
    fill(namespace, 3)
    with monkeypatch.context() as older:
        older.setattr(file, "announce", lambda *_what: None)
        fill(namespace, 9)
    listed.clear()
    look(namespace)
    assert len(listed) == 1


@pytest.mark.parametrize("later", [1, 5])
@pytest.mark.parametrize("writers", [1, 3])
def test_files_that_an_older_registry_does_not_name_are_found(
    namespace: LogNamespace, registry: Registry, writers: int, later: int
) -> None:
    fill(namespace, 4)
    backup = saved(registry)
    before = files(namespace)
    for _ in range(writers):
        fill(namespace, later)
    lost = [name for name in files(namespace) if name not in before]
    restore(registry, backup)
    for _ in range(2):
        look(namespace)
        assert set_aside(namespace) == lost
    assert files(namespace) == before


def test_a_writer_that_wrote_nothing_since_the_backup_hides_nothing(
    namespace: LogNamespace, registry: Registry, listed: list[str]
) -> None:
    fill(namespace, 4)
    backup = saved(registry)
    fill(namespace, 9)
    for _ in range(5):
        look(namespace)
    lost = files(namespace)[4:]
    restore(registry, backup)
    look(namespace)
    assert set_aside(namespace) == lost
    more = fill(namespace, 9)
    listed.clear()
    look(namespace)
    assert listed == []
    assert payloads_read(namespace, LOG)[-9:] == more
    assert set_aside(namespace) == lost


@pytest.mark.parametrize("where", ["log.segment_move", "log.metadata", "log.announce", "log.segment_remove"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_look_that_is_cut_short_is_taken_up(
    namespace: LogNamespace, registry: Registry, where: str, when: str
) -> None:
    fill(namespace, 4)
    backup = saved(registry)
    fill(namespace, 9)
    lost = files(namespace)[4:]
    (directory_of(namespace) / f"{90:018d}-1.log").touch()
    restore(registry, backup)
    with pytest.raises(Stopped), at_failpoint(f"{where}:{when}", stop_here):
        look(namespace)
    look(namespace)
    assert set_aside(namespace) == lost
    assert len(files(namespace)) == 4


@pytest.mark.parametrize(
    "where",
    ["log.announce:before", "log.announce:after", "log.segment_create:after", "log.segment_register:before"],
)
@pytest.mark.parametrize("segments", [0, 2])
def test_a_file_that_was_made_and_never_registered_is_removed(
    namespace: LogNamespace, segments: int, where: str
) -> None:
    fill(namespace, segments)
    before = files(namespace)
    with pytest.raises(Stopped), at_failpoint(where, stop_here):
        fill(namespace, 1)
    look(namespace)
    assert files(namespace) == before
    more = fill(namespace, 1)
    assert payloads_read(namespace, LOG)[-1:] == more


def announced(namespace: LogNamespace) -> tuple[int, int | None]:
    said = FileSegmentStore(namespace.descriptor.location).announced(namespace.info(LOG).log.directory)
    return said.epoch, said.segment


def test_a_writer_that_was_fenced_takes_back_nothing_that_a_later_one_announced(namespace: LogNamespace) -> None:
    stale = namespace.open_writer(LOG)
    stale.write(bytes(5000)).result(120)
    with namespace.open_writer(LOG, steal=True) as owner:
        owner.write(b"x").result(120)
        said = announced(namespace)
        assert said == (owner.epoch, 2)
        with pytest.raises(Fenced):
            stale.write(b"late").result(120)
        stale.abort()
    FileSegmentStore(namespace.descriptor.location).announce(
        SegmentName(namespace.info(LOG).log.directory, 7, said[0] - 1)
    )
    assert announced(namespace) == said


def copied(directory: Path, _registry: Registry) -> None:
    shutil.copytree(directory, directory.with_name("copy"))
    shutil.rmtree(directory)
    directory.with_name("copy").rename(directory)


def emptied(directory: Path, _registry: Registry) -> None:
    for path in (directory / ".made").iterdir():
        path.unlink()


def torn(directory: Path, _registry: Registry) -> None:
    for path in (directory / ".made").iterdir():
        path.write_bytes(bytes(path.stat().st_size))


def littered(directory: Path, _registry: Registry) -> None:
    (directory / ".made" / f"7-{99:018d}").write_bytes(b"whatever")


@pytest.mark.parametrize("damage", [copied, emptied, torn, littered])
def test_an_announcement_that_may_be_another_discs_is_not_believed(
    namespace: LogNamespace, registry: Registry, listed: list[str], damage: Callable[..., None]
) -> None:
    fill(namespace, 9)
    damage(directory_of(namespace), registry)
    listed.clear()
    look(namespace)
    assert len(listed) == 1
    fill(namespace, 3)
    if damage is littered:  # which stands there with the epoch 7
        for _ in range(7):
            look(namespace)
    listed.clear()
    look(namespace)
    assert listed == []


def test_a_copy_that_was_made_while_segments_were_and_is_copied_back(
    namespace: LogNamespace, registry: Registry, tmp_path: Path, listed: list[str]
) -> None:
    """It has the files of later segments, and the announcement of an earlier one."""
    fill(namespace, 3)
    backup, directory = saved(registry), directory_of(namespace)
    shutil.copytree(directory / ".made", tmp_path / "copy")
    fill(namespace, 9)
    lost = files(namespace)[3:]
    for path in (directory / ".made").iterdir():
        path.unlink()
    shutil.copytree(tmp_path / "copy", directory / ".made", dirs_exist_ok=True)
    restore(registry, backup)
    look(namespace)
    assert set_aside(namespace) == lost


def test_after_records_were_taken_back_the_next_writer_looks_at_everything(
    namespace: LogNamespace, registry: Registry, listed: list[str]
) -> None:
    fill(namespace, 3)
    backup = saved(registry)
    lost = fill(namespace, 9)
    restore(registry, backup)
    since = fill(namespace, 3)
    with pytest.raises(Stopped), at_failpoint("log.segment_remove:before", stop_here):
        recover_log(namespace, LOG)
    listed.clear()
    look(namespace)
    assert listed
    recover_log(namespace, LOG)
    assert sorted(payloads_read(namespace, LOG)[3:]) == sorted(since + lost)
    assert set_aside(namespace) == []


def test_a_log_that_was_deleted_is_not_made_again_by_an_announcement(namespace: LogNamespace) -> None:
    fill(namespace, 1)
    name = SegmentName(namespace.info(LOG).log.directory, 2, 9)
    store = FileSegmentStore(namespace.descriptor.location)
    namespace.delete(LOG)
    with pytest.raises(Fenced):
        store.create(name, fsync=True)
    with pytest.raises(LogWriteFailed):
        store.announce(name)
    assert store.announced(name.directory).segment is None
    assert not (Path(namespace.descriptor.location) / name.directory).exists()


@pytest.mark.parametrize("moved", [False, True])
def test_a_segment_that_is_kept_as_a_copy_alone_is_set_aside_with_it(
    namespace: LogNamespace, registry: Registry, moved: bool
) -> None:
    """Also when a power failure has left something of the raw file. A copy that was to go takes nobody's place."""
    backup = saved(registry)
    written = fill(namespace, 1)
    namespace.compress(LOG, "zstd")
    raw, copy = sorted((directory_of(namespace) / name for name in files(namespace)), key=lambda path: len(path.name))
    kept = raw.read_bytes()
    raw.unlink()
    raw.with_suffix(".fence").touch()
    if moved:
        copy.write_bytes(copy.read_bytes()[:99])
        aside = raw.parent / "aside" / raw.name
        aside.parent.mkdir()
        aside.write_bytes(kept)
    restore(registry, backup)
    assert len(namespace.inspect(LOG).unnamed()) == 1
    look(namespace)
    assert set_aside(namespace) == [raw.name]
    assert not namespace.inspect(LOG).strays()
    recover_log(namespace, LOG)
    assert payloads_read(namespace, LOG) == written


class Counted:
    """A registry that counts what it is asked, node by node."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._registry, name)
        if name not in ("find", "find_all", "get", "children", "commit", "set", "create", "delete"):
            return found

        def asked(what: Any, *args: Any, **options: Any) -> Any:
            answer = found(what, *args, **options)
            self.requests += len(what) if name in ("find_all", "commit") else 1
            self.requests += len(answer) if name == "children" else 0
            return answer

        return asked


def costs(directory: Path, segments: int, listed: list[str]) -> dict[str, int]:
    """What each look at a log of so many segments asks of the registry. Only a purge that was asked for lists files."""
    registry = MemoryEnsemble().connect()
    written = bound_namespace(registry, directory, LOG)
    forge_segments(written, registry, LOG, segments)
    with written.open_writer(LOG) as writer:
        writer.write(b"last").result(120)
    counted = Counted(registry)
    namespace = LogNamespace.open("/logs", registry=cast(Registry, counted))
    last = DLSN(segments, 0, 0)
    looks: dict[str, Callable[[], object]] = {
        "open_writer": lambda: namespace.open_writer(LOG).close(),
        "open_reader": lambda: namespace.open_reader(LOG, last).close(),
        "count": lambda: namespace.count(LOG),
        "count from": lambda: namespace.count(LOG, last),
        "info": lambda: namespace.info(LOG),
        "first_dlsn": lambda: namespace.first_dlsn(LOG),
        "end_dlsn": lambda: namespace.end_dlsn(LOG),
        "last_record": lambda: namespace.last_record(LOG),
        "truncate": lambda: namespace.truncate(LOG, DLSN(2, 0, 0)),
        "purge": lambda: namespace.purge(LOG),
    }
    asked = {}
    for name, what in looks.items():
        listed.clear()
        counted.requests = 0
        what()
        asked[name] = counted.requests
        assert listed == [] or name == "purge"
    return asked


def test_no_look_costs_more_than_a_bisection_more_the_more_segments_there_are(
    tmp_path: Path, listed: list[str]
) -> None:
    few, many = (costs(tmp_path / str(segments), segments, listed) for segments in (10, 3000))
    bisected = {"last_record", "truncate"}
    assert {name: asked for name, asked in few.items() if name not in bisected} == {
        name: asked for name, asked in many.items() if name not in bisected
    }
    assert all(0 <= many[name] - few[name] <= (3000).bit_length() for name in bisected)
    assert max(many.values()) < 30
