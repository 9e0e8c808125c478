"""Where a reader of files stands: what is unread from there, and what is an error."""

from __future__ import annotations

import pytest

from scribengin.connectors.files import position as module
from scribengin.connectors.files.position import FilePosition
from scribengin.connectors.files.system import FileInfo
from scribengin.errors import DataflowError


def files(**sizes: int) -> list[FileInfo]:
    return [FileInfo(name, size, 0) for name, size in sizes.items()]


def unread(position: FilePosition, infos: list[FileInfo]) -> list[tuple[str, int]]:
    return [(file.info.name, file.offset) for file in position.unread(infos, what="in")]


def test_open_files_come_first_and_the_others_by_name() -> None:
    position = FilePosition(1, finished={"b": 5, "d": 7}, open={"c": 2})
    assert unread(position, files(a=1, b=5, c=9, d=8, e=0)) == [("c", 2), ("a", 0), ("d", 7)]


def test_a_file_is_finished_when_it_was_read_to_its_end_and_open_when_it_was_not() -> None:
    position = FilePosition(1).moved({"a": 4, "b": 3}, files(a=4, b=9, c=1))
    assert (position.finished, position.open) == ({"a": 4}, {"b": 3})
    later = position.moved({"b": 9}, files(a=4, b=9, c=1))
    assert (later.finished, later.open) == ({"a": 4, "b": 9}, {})


def test_a_finished_file_that_has_grown_keeps_its_place_until_it_is_read_on() -> None:
    position = FilePosition(1, finished={"a": 4}).moved({"b": 1}, files(a=6, b=1))
    assert position.finished == {"a": 4, "b": 1}
    assert unread(position, files(a=6, b=1)) == [("a", 4)]


def test_finished_files_may_be_moved_away_and_are_forgotten() -> None:
    position = FilePosition(1, finished={"a": 4, "b": 5})
    assert unread(position, files(b=5, c=3)) == [("c", 0)]
    assert position.moved({"c": 3}, files(b=5, c=3)).finished == {"b": 5, "c": 3}


def test_an_open_file_that_is_gone_is_an_error() -> None:
    with pytest.raises(DataflowError, match="in: c is gone, and only 2 bytes of it were read; put it back"):
        FilePosition(1, open={"c": 2}).unread(files(a=1), what="in")


@pytest.mark.parametrize("position", [FilePosition(1, finished={"a": 4}), FilePosition(1, open={"a": 4})])
def test_a_file_that_was_cut_is_an_error(position: FilePosition) -> None:
    with pytest.raises(DataflowError, match="in: a has 3 bytes, and 4 of them were read: it was cut or replaced"):
        position.unread(files(a=3), what="in")


def test_a_position_survives_json() -> None:
    position = FilePosition(3, finished={"ä/b.txt": 4}, open={"c": 2})
    assert FilePosition.parse(position.to_position(what="in"), streams=3, what="in") == position


def test_a_position_of_another_number_of_streams_is_an_error() -> None:
    position = FilePosition(3).to_position(what="in")
    with pytest.raises(DataflowError, match="read as 3 streams and are configured as 4; go back to streams: 3"):
        FilePosition.parse(position, streams=4, what="in")


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"streams": 1},
        {"streams": 1, "finished": ["a"], "open": {}},
        {"streams": 1, "finished": {"a": "x"}, "open": {}},
    ],
)
def test_something_else_is_no_position(value: dict[str, object]) -> None:
    with pytest.raises(DataflowError, match="is no position of files"):
        FilePosition.parse(value, streams=1, what="in")


def test_a_position_that_is_too_large_to_be_committed_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POSITION_BYTES_MAX", 100)
    with pytest.raises(DataflowError, match=r"the names of the 20 files it has read .* move files that were read away"):
        FilePosition(1, finished={f"file-{n}": n for n in range(20)}).to_position(what="in")
