"""Where a reader of files stands: what is unread from there, and what is an error."""

from __future__ import annotations

import json

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
    position = FilePosition(1).moved({"a": 4, "b": 3}, {"a": 4, "b": 9, "c": 1})
    assert (position.finished, position.open) == ({"a": 4}, {"b": 3})
    later = position.moved({"b": 9}, {"a": 4, "b": 9, "c": 1})
    assert (later.finished, later.open) == ({"a": 4, "b": 9}, {})


def test_a_finished_file_that_has_grown_keeps_its_place_until_it_is_read_on() -> None:
    position = FilePosition(1, finished={"a": 4}).moved({"b": 1}, {"a": 6, "b": 1})
    assert position.finished == {"a": 4, "b": 1}
    assert unread(position, files(a=6, b=1)) == [("a", 4)]


def test_finished_files_may_be_moved_away_and_are_forgotten() -> None:
    position = FilePosition(1, finished={"a": 4, "b": 5})
    assert unread(position, files(b=5, c=3)) == [("c", 0)]
    assert position.moved({"c": 3}, {"b": 5, "c": 3}).finished == {"b": 5, "c": 3}


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
    with pytest.raises(DataflowError, match=r"20 files are half read, and 0 were read whole: .* use more streams"):
        FilePosition(1, open={f"file-{n}": n for n in range(20)}).to_position(what="in")


# -- names in nodes


def test_what_nodes_say_counts_until_the_position_says_otherwise() -> None:
    folded = {"a": 4, "b": 5, "c": 6, "d": 7}
    position = FilePosition(1, finished={"b": 8}, open={"c": 7}, fold=1, nodes=("1",), dropped=frozenset({"d"}))
    there = files(a=4, b=8, c=9, d=7)
    found = [(file.info.name, file.offset) for file in position.unread(there, what="in", folded=folded)]
    assert found == [("c", 7), ("d", 0)]


def test_a_file_of_a_node_that_is_gone_is_dropped_and_read_anew_when_it_comes_back() -> None:
    position = FilePosition(1, fold=1, nodes=("1",))
    later = position.moved({"b": 1}, {"b": 1}, gone=["a"])
    assert later.dropped == {"a"}
    back = files(a=9, b=1)
    assert [(f.info.name, f.offset) for f in later.unread(back, what="in", folded={"a": 9})] == [("a", 0)]


def test_a_position_with_nodes_survives_json() -> None:
    position = FilePosition(2, {"a": 1}, {"b": 2, "c.gz": (3, 40)}, 5, ("000000005-x",), frozenset({"d"}))
    assert FilePosition.parse(json.loads(json.dumps(position.to_position(what="in"))), streams=2, what="in") == position


# -- whole files


def whole(position: FilePosition, infos: list[FileInfo]) -> list[tuple[str, int]]:
    return [(f.info.name, f.offset) for f in position.unread(infos, what="in", grows=lambda _: False)]


def test_whole_files_are_open_at_a_record_and_finished_at_their_size() -> None:
    position = FilePosition(1).moved({"a": (10, 500)}, {"a": 500, "b": 70}, done=["b"])
    assert (position.finished, position.open) == ({"b": 70}, {"a": (10, 500)})
    assert whole(position, files(a=500, b=70)) == [("a", 10)]
    later = position.moved({}, {"a": 500, "b": 70}, done=["a"])
    assert (later.finished, later.open, whole(later, files(a=500, b=70))) == ({"a": 500, "b": 70}, {}, [])


@pytest.mark.parametrize("position", [FilePosition(1, finished={"a": 4}), FilePosition(1, open={"a": (1, 4)})])
def test_a_whole_file_that_has_changed_is_an_error(position: FilePosition) -> None:
    with pytest.raises(DataflowError, match=r"in: a has 9 bytes, and had 4 when it was read: .* may not change"):
        whole(position, files(a=9))
