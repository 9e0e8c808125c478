"""A file that a planned batch has to read again, wherever it is by then."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scribengin.connectors.files.formats.reading import mark_of
from scribengin.connectors.files.source.again import ReadFile
from scribengin.errors import DataflowError
from scribengin.filesystems.local import LocalFileSystem

READ = b"a\nb\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "in" / "0.log"
    file.parent.mkdir()
    file.write_bytes(READ)
    return file


def read(file: Path) -> ReadFile:
    """All of what it has now."""
    [info] = LocalFileSystem().find(str(file))
    data = file.read_bytes()
    return ReadFile(str(file), info.identity, mark_of(data), len(data), 0, len(data))


def test_one_that_was_brought_back_from_a_copy_is_the_same_and_may_have_grown(file: Path, tmp_path: Path) -> None:
    one = read(file)
    shutil.copy(file, tmp_path / "backup")
    file.unlink()
    with pytest.raises(DataflowError, match=r"0[.]log is gone, .*: put it back to go on"):
        one.to_read()
    (tmp_path / "another").write_bytes(b"")  # so that the copy does not get the number of what was there
    shutil.copy(tmp_path / "backup", file)
    with file.open("ab") as more:
        more.write(b"c\n")
    found = one.to_read()
    assert (found.url, found.read(0, len(READ))) == (str(file), READ)


@pytest.mark.parametrize("other", [b"a\nc\n", b"a\n"], ids=["another", "shorter"])
def test_another_file_of_the_name_is_none(file: Path, tmp_path: Path, other: bytes) -> None:
    one = read(file)
    (tmp_path / "other").write_bytes(other)
    (tmp_path / "other").replace(file)
    with pytest.raises(DataflowError, match="is gone, or is another file"):
        one.to_read()


def test_a_file_that_was_rotated_goes_before_one_of_its_name_that_begins_alike(file: Path) -> None:
    one = read(file)
    rotated = file.rename(file.with_name("0.log.1"))
    file.write_bytes(READ)
    assert one.to_read().url == str(rotated)
