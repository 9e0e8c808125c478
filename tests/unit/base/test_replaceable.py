"""What a written file may take the place of, and how."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.base.process.private import replaceable
from scribengin.errors import ConfigInvalid, ScribenginError
from scribengin.operations.registry.backup import back_up
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_tools.logs.dump import write_records

Writer = Callable[[Path], object]
OTHER_USER = 4321


def backup(place: Path) -> object:
    with MemoryEnsemble().connect() as registry:
        return back_up(registry, place)


def dump(place: Path) -> object:
    return write_records(iter(()), "text", place)


@pytest.fixture(params=[backup, dump])
def write(request: pytest.FixtureRequest) -> Writer:
    found: Writer = request.param
    return found


def belongs_to_somebody_else(link: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not root cannot give a link away, and becomes somebody else."""
    if os.geteuid() == 0:
        os.lchown(link, OTHER_USER, OTHER_USER)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: OTHER_USER)


def test_a_pipe_or_a_device_is_refused_and_stays(tmp_path: Path, write: Writer) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for place in (pipe, link, tmp_path):
        with pytest.raises(ConfigInvalid, match=f"^{place} is there, and is no file"):
            write(place)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_an_open_pipe_or_a_file_without_a_name_is_refused(tmp_path: Path, write: Writer) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb") as pipe, (tmp_path / "gone").open("wb") as gone:
        (tmp_path / "gone").unlink()
        for opened in (pipe, gone):
            place = Path(f"/dev/fd/{opened.fileno()}")
            with pytest.raises(ConfigInvalid, match=f"^{place} is there, and is no file"):
                write(place)
        pipe.close()
        assert reader.read() == b""
    assert not os.listdir(tmp_path)


def test_what_a_link_names_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    folder, file, link, folders = (tmp_path / name for name in ("folder", "folder/file", "link", "folders"))
    folder.mkdir()
    link.symlink_to("folders/../folder/./file")
    folders.symlink_to(folder)
    assert replaceable(link) == file, "it may come into being"
    assert replaceable(folders / "file") == file
    file.write_text("before")
    write_records(iter(()), "text", link)
    assert link.is_symlink()
    assert file.read_text() == ""
    assert os.listdir(folder) == ["file"]


def test_what_no_file_can_be_called_is_refused_in_one_line(tmp_path: Path, write: Writer) -> None:
    file, loop = tmp_path / "file", tmp_path / "loop"
    file.write_text("mine")
    loop.symlink_to(loop)
    for place in (tmp_path / ("x" * 300), loop, loop / "x", tmp_path / "a\0b", file / "x", tmp_path / "no" / "folder"):
        with pytest.raises(ConfigInvalid, match=r" cannot be written: .*; name another place$"):
            write(place)
    assert file.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]


def test_a_link_of_another_user_is_refused_wherever_it_stands(
    tmp_path: Path, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, planted, folders = (tmp_path / name for name in ("keys", "planted", "folders"))
    keys.write_text("mine")
    planted.symlink_to(keys)
    folders.symlink_to(tmp_path)
    for link, place in ((planted, planted), (folders, folders / "keys")):
        belongs_to_somebody_else(link, monkeypatch)
        with pytest.raises(ConfigInvalid, match=f"{link} is a link of another user"):
            write(place)
    assert keys.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["folders", "keys", "planted"]


def test_a_place_that_is_another_one_at_the_end_is_refused(tmp_path: Path) -> None:
    file, keys, link = (tmp_path / name for name in ("file", "keys", "link"))
    keys.write_text("mine")
    link.symlink_to(file)

    def planted_meanwhile() -> Iterator[pa.RecordBatch]:
        link.unlink()
        link.symlink_to(keys)
        yield from ()

    with pytest.raises(ConfigInvalid, match=f"^{link} has become another place meanwhile"):
        write_records(planted_meanwhile(), "text", link)
    assert keys.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["keys", "link"]


def test_a_folder_that_is_another_one_at_the_end_is_refused_and_nothing_is_left_in_either(tmp_path: Path) -> None:
    folder, moved = tmp_path / "folder", tmp_path / "moved"
    folder.mkdir()

    def swapped_meanwhile() -> Iterator[pa.RecordBatch]:
        folder.rename(moved)
        folder.mkdir()
        yield from ()

    with pytest.raises(ConfigInvalid, match=f"^{folder / 'file'} has become another place meanwhile"):
        write_records(swapped_meanwhile(), "text", folder / "file")
    assert (os.listdir(folder), os.listdir(moved)) == ([], [])


def test_what_was_written_has_its_name_after_a_power_failure(
    tmp_path: Path, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((os.fstat(file).st_ino, (tmp_path / "file").exists())))
    write(tmp_path / "file")
    assert synced == [((tmp_path / "file").stat().st_ino, False), (tmp_path.stat().st_ino, True)]


def test_nothing_is_written_into_a_folder_that_takes_the_place_of_another_one(
    tmp_path: Path, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, mine, moved = (tmp_path / name for name in ("folder", "mine", "moved"))
    folder.mkdir()
    mine.mkdir()
    (mine / "file").write_text("mine")

    def planted_meanwhile(_bytes: int) -> str:
        folder.rename(moved)
        folder.symlink_to(mine)
        return "known"

    monkeypatch.setattr(secrets, "token_hex", planted_meanwhile)
    with pytest.raises(ConfigInvalid, match="cannot be written"):
        write(folder / "file")
    assert (os.listdir(mine), (mine / "file").read_text()) == (["file"], "mine")


def test_nothing_is_written_through_what_stands_where_the_new_file_is_made(
    tmp_path: Path, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, keys = tmp_path / "file", tmp_path / "keys"
    keys.write_text("mine")
    guesses = [tmp_path / f"file.{os.getpid()}.part", tmp_path / f".file.{os.getpid()}.part"]
    for guess in guesses:
        guess.symlink_to(keys)
    write(file)
    assert (file.is_symlink(), keys.read_text()) == (False, "mine")
    file.unlink()
    monkeypatch.setattr(secrets, "token_hex", lambda _bytes: "guessed")
    (tmp_path / ".scribengin-guessed.part").symlink_to(keys)
    with pytest.raises(ConfigInvalid, match="cannot be written: File exists"):
        write(file)
    assert (file.exists(), keys.read_text()) == (False, "mine")


def test_a_backup_is_for_its_user_and_a_dump_for_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        backup(tmp_path / "backup")
        dump(tmp_path / "dump")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("backup", "dump")] == [0o600, 0o644]


def test_a_disk_without_room_is_no_mistake_of_whoever_named_the_file(
    write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left on device") as error:
        write(tmp_path / "out")
    assert error.value.filename == str(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC])
def test_what_was_written_and_may_lose_its_name_is_told_as_that(
    write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "fsync", fail)
    place = tmp_path / "out"
    with pytest.raises(ScribenginError) as told:
        write(place)
    said = f"{place} was written, but its name may not survive a power failure: {os.strerror(reason)}; write it again"
    assert str(told.value) == said
    assert told.value.exit_code == 1, "what was named is no mistake"
    assert list(tmp_path.iterdir()) == [place]
