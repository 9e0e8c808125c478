"""Where a reader of files stands: what is unread from there, and which of the files that are there it has read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from scribengin.connectors.files.matching import Match, Question, match
from scribengin.connectors.files.source import position as module
from scribengin.connectors.files.source.position import FilePosition, SeenFile
from scribengin.errors import DataflowError
from scribengin.filesystems.contract import FileInfo

NONE: Mapping[str, SeenFile] = {}


def files(**sizes: int) -> list[FileInfo]:
    """Files that nobody has changed, each with its name as its identity."""
    return [FileInfo(name, size, 0, name) for name, size in sizes.items()]


def seen(read: int, identity: str, records: int | None = None) -> SeenFile:
    return SeenFile(read, 0, "", identity, records)


def known(**reads: int) -> dict[str, SeenFile]:
    return {name: seen(read, name) for name, read in reads.items()}


def held(position: FilePosition, infos: list[FileInfo], **answers: Any) -> Match:
    ask: dict[str, Any] = {
        "is_same": lambda info, seen: True,
        "grows": lambda name: True,
        "beside": list,
        "is_settled": lambda info: False,
        "elsewhere": list,
        "what": "in",
        **answers,
    }
    folded = ask.pop("folded", NONE)
    return match(position, folded, infos, Question(**ask))


def unread(position: FilePosition, infos: list[FileInfo], **answers: Any) -> list[tuple[str, int]]:
    found = held(position, infos, **answers)
    return [(f.info.name, f.offset) for f in found.position.unread(found.infos, answers.get("folded", NONE))]


def test_open_files_come_first_then_those_that_have_grown_and_the_others_by_name() -> None:
    position = FilePosition(1, finished=known(b=5, d=7), open=known(c=2))
    assert unread(position, files(a=1, b=5, c=9, d=8, e=0)) == [("c", 2), ("d", 7), ("a", 0)]


def test_a_file_is_finished_when_it_was_read_to_its_end_and_open_when_it_was_not() -> None:
    position = FilePosition(1).moved(known(a=4, b=3), {"a": 4, "b": 9, "c": 1})
    assert (position.finished, position.open) == (known(a=4), known(b=3))
    later = position.moved(known(b=9), {"a": 4, "b": 9, "c": 1})
    assert (later.finished, later.open) == (known(a=4, b=9), {})


def test_a_finished_file_that_has_grown_keeps_its_place_until_it_is_read_on() -> None:
    position = FilePosition(1, finished=known(a=4)).moved(known(b=1), {"a": 6, "b": 1})
    assert position.finished == known(a=4, b=1)
    assert unread(position, files(a=6, b=1)) == [("a", 4)]


def test_finished_files_may_be_moved_away_and_are_forgotten() -> None:
    position = FilePosition(1, finished=known(a=4, b=5))
    assert unread(position, files(b=5, c=3)) == [("c", 0)]
    assert position.moved(known(c=3), {"b": 5, "c": 3}, gone={"a"}).finished == known(b=5, c=3)
    assert position.moved(known(c=3), {"b": 5, "c": 3}).finished == known(a=4, b=5, c=3), "one listing may miss a file"


def test_an_open_file_that_is_gone_is_an_error() -> None:
    with pytest.raises(DataflowError, match="in: c is gone, and only 2 bytes of it were read; put it back"):
        held(FilePosition(1, open=known(c=2)), files(a=1))


@pytest.mark.parametrize("position", [FilePosition(1, finished=known(a=4)), FilePosition(1, open=known(a=4))])
def test_a_file_that_was_cut_is_an_error(position: FilePosition) -> None:
    with pytest.raises(DataflowError, match="in: a has 3 bytes, and 4 of them were read: it was cut, as by copying"):
        held(position, files(a=3))


def test_a_position_survives_json() -> None:
    position = FilePosition(3, finished={"ä/b.txt": SeenFile(4, 5, "6", "7")}, open={"c": SeenFile(2, 1, "x", "=y", 3)})
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
        {"streams": 1, "finished": {"a": 4}, "open": {}},
        {"streams": 1, "finished": {"a": ["x", 0, "", ""]}, "open": {}},
        {"streams": 1, "finished": {}, "open": {"a": [1, 0, 5, ""]}},
    ],
)
def test_something_else_is_no_position(value: dict[str, object]) -> None:
    with pytest.raises(DataflowError, match="is no position of files"):
        FilePosition.parse(value, streams=1, what="in")


def test_a_position_that_is_too_large_to_be_committed_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POSITION_BYTES_MAX", 100)
    with pytest.raises(DataflowError, match=r"20 files are half read, and 0 were read whole: .* use more streams"):
        FilePosition(1, open={f"file-{n}": SeenFile(n) for n in range(20)}).to_position(what="in")


# -- names in nodes


def test_what_nodes_say_counts_until_the_position_says_otherwise() -> None:
    folded = known(a=4, b=5, c=6, d=7)
    position = FilePosition(1, finished=known(b=8), open=known(c=7), fold=1, nodes=("1",), dropped=frozenset({"d"}))
    assert unread(position, files(a=4, b=8, c=9, d=7), folded=folded) == [("c", 7), ("d", 0)]


def test_a_file_of_a_node_that_is_gone_is_dropped_and_read_anew_when_it_comes_back() -> None:
    position = FilePosition(1, fold=1, nodes=("1",))
    later = position.moved(known(b=1), {"b": 1}, gone=["a"])
    assert later.dropped == {"a"}
    assert unread(later, files(a=9, b=1), folded=known(a=9)) == [("a", 0)]


def test_a_position_with_nodes_survives_json() -> None:
    position = FilePosition(2, known(a=1), {"b": SeenFile(2), "c.gz": SeenFile(40, 1, "", "", 3)}, 5, ("000000005-x",))
    assert FilePosition.parse(json.loads(json.dumps(position.to_position(what="in"))), streams=2, what="in") == position


def test_a_file_of_a_node_that_was_renamed_or_replaced_is_known_so() -> None:
    position, folded = FilePosition(1, fold=1, nodes=("1",)), known(a=4, b=5)
    infos = [FileInfo("x", 6, 0, "a"), FileInfo("b", 5, 0, "another")]
    found = held(position, infos, folded=folded, is_same=lambda info, seen: info.identity == seen.identity)
    assert found.position.finished == {"x": seen(4, "a")}
    assert found.position.dropped == {"a", "b"}
    assert unread(position, infos, folded=folded, is_same=lambda i, s: i.identity == s.identity) == [("x", 4), ("b", 0)]


# -- whole files


def whole(position: FilePosition, infos: list[FileInfo]) -> list[tuple[str, int]]:
    return unread(position, infos, grows=lambda _: False)


def test_whole_files_are_open_at_a_record_and_finished_at_their_size() -> None:
    half = {"a": seen(500, "a", 10)}
    position = FilePosition(1).moved(half, {"a": 500, "b": 70}, done=known(b=70))
    assert (position.finished, position.open) == (known(b=70), half)
    assert whole(position, files(a=500, b=70)) == [("a", 10)]
    later = position.moved({}, {"a": 500, "b": 70}, done=known(a=500))
    assert (later.finished, later.open, whole(later, files(a=500, b=70))) == (known(a=500, b=70), {}, [])


@pytest.mark.parametrize(
    "position", [FilePosition(1, finished=known(a=4)), FilePosition(1, open={"a": seen(4, "a", 1)})]
)
def test_a_whole_file_that_has_changed_is_an_error(position: FilePosition) -> None:
    with pytest.raises(DataflowError, match=r"in: a has 9 bytes, and had 4 when it was read, .* may not change"):
        whole(position, files(a=9))


# -- renamed, replaced, overwritten


def test_a_chain_of_renames_is_followed() -> None:
    position = FilePosition(1, open={"log": seen(4, "A")}, finished={"log.1": seen(9, "B")})
    infos = [FileInfo("log", 3, 5, "C"), FileInfo("log.1", 6, 5, "A"), FileInfo("log.2", 9, 5, "B")]
    found = held(position, infos)
    assert found.position.open == {"log.1": seen(4, "A")}
    assert found.position.finished == {"log.2": seen(9, "B")}
    assert unread(position, infos) == [("log.1", 4), ("log", 0)]


def test_a_file_that_was_renamed_to_a_name_that_is_not_meant_is_read_to_its_end_and_then_forgotten() -> None:
    for position in (FilePosition(1, open={"log": seen(4, "A")}), FilePosition(1, finished={"log": seen(4, "A")})):
        infos, longer = [FileInfo("log", 3, 5, "C")], [FileInfo("log.1", 6, 5, "A")]
        assert unread(position, infos, beside=lambda found=longer: found) == [("log.1", 4), ("log", 0)]
        read = held(position, infos, beside=lambda: [FileInfo("log.1", 4, 5, "A")], is_settled=lambda info: True)
        assert (read.position.open, read.position.finished, read.infos) == ({}, {}, infos)


def test_two_names_of_one_file_are_two_files() -> None:
    position = FilePosition(1, finished={"a": seen(4, "A")})
    assert unread(position, [FileInfo("a", 4, 0, "A"), FileInfo("b", 4, 0, "A")]) == [("b", 0)]


def test_a_copy_that_was_put_back_is_the_same_file_and_anything_else_is_not() -> None:
    infos = [FileInfo("a", 6, 9, "B")]
    finished, half = FilePosition(1, finished={"a": seen(4, "A")}), FilePosition(1, open={"a": seen(4, "A")})
    for position in (finished, half):
        assert unread(position, infos) == [("a", 4)]
    assert unread(finished, infos, is_same=lambda info, seen: False) == [("a", 0)]
    with pytest.raises(DataflowError, match=r"in: a is another file now, and only 4 bytes of the one before were read"):
        held(half, infos, is_same=lambda info, seen: False)


def test_a_file_that_was_overwritten_in_place_is_an_error() -> None:
    infos = [FileInfo("a", 4, 9, "A")]
    position = FilePosition(1, finished={"a": seen(4, "A")})
    assert unread(position, infos) == []  # only its time was set
    with pytest.raises(DataflowError, match=r"in: a was overwritten in place, as by copying and truncating it"):
        held(position, infos, is_same=lambda info, seen: False)


def test_without_lasting_identities_a_file_is_known_by_its_time_and_its_bytes() -> None:
    position = FilePosition(1, finished={"a": SeenFile(4, 7, "", "~7")})
    moved = [FileInfo("a", 4, 8, "~8"), FileInfo("b", 4, 7, "~7")]
    assert unread(position, moved, is_same=lambda info, seen: info.name == "b") == [("a", 0)]
    assert unread(position, [FileInfo("b", 5, 7, "~7")]) == [("b", 0)]  # of another size: another file
    half = FilePosition(1, open={"a": SeenFile(4, 7, "", "~7")})
    assert unread(half, [FileInfo("b", 9, 7, "~7")]) == [("b", 4)]
    versions = FilePosition(1, finished={"a": SeenFile(4, 7, "", "=v1")})
    assert unread(versions, [FileInfo("b", 4, 7, "=v1")]) == [("b", 0)]  # a copy has the same
    assert unread(versions, [FileInfo("a", 4, 7, "=v2")], is_same=lambda info, seen: False) == [("a", 0)]


def test_a_half_read_file_that_was_renamed_to_another_streams_name_is_told() -> None:
    position = FilePosition(2, open={"a": seen(4, "A")})
    with pytest.raises(DataflowError, match=r"a was renamed to x when only 4 bytes .* is another stream's"):
        held(position, [], elsewhere=lambda: [FileInfo("x", 9, 0, "A")])
