"""Segments of a file sink: their names and order, what the merge node says, and when it is time to merge."""

from __future__ import annotations

import pytest

from scribengin.connectors.files import segments as module
from scribengin.connectors.files.segments import (
    MergeDescriptor,
    PendingMerge,
    SegmentKey,
    StreamLayout,
    Waiting,
    abandoned_merges,
    due,
    merge_name,
    segment_keys,
)


def key(round_: int, *, epoch: int = 1, generation: int = 5, part: int = 0) -> SegmentKey:
    return SegmentKey(generation, epoch, round_, part)


def waiting(*sizes: int, age_s: float = 0) -> list[Waiting]:
    return [Waiting(key(number), size, age_s) for number, size in enumerate(sizes)]


def merged(segments: list[Waiting], **settings: object) -> int:
    values = {"merge_bytes": 100, "merge_age_s": 5.0, "idle": False, **settings}
    found = due(segments, **values)  # type: ignore[arg-type]  # the settings of one test
    assert found == [segment.key for segment in segments[: len(found)]]
    return len(found)


def test_segments_are_ordered_as_they_were_written() -> None:
    names = ["6-000001-000000000-0000", "5-000002-000000000-0000", "5-000001-000000010-0000", "5-000001-000000002-0001"]
    names += ["5-000001-000000002-0000", ".hidden", "something else"]
    found = segment_keys(names)
    assert found == [key(2), key(2, part=1), key(10), key(0, epoch=2), key(0, generation=6)]
    assert [SegmentKey.parse(segment.name) for segment in found] == found


def test_few_young_segments_wait() -> None:
    assert merged(waiting(10, 20)) == 0
    assert merged([]) == 0
    assert merged([], idle=True) == 0


def test_enough_segments_are_merged_and_the_rest_waits() -> None:
    assert merged(waiting(60, 60, 60)) == 2
    assert merged(waiting(250, 60, 60)) == 1


def test_nothing_waits_longer_than_the_age_or_when_idle() -> None:
    assert merged(waiting(10, 20, age_s=5)) == 2
    assert merged(waiting(10, 20), idle=True) == 2
    assert merged([*waiting(60, 60), Waiting(key(7), 10, 5.0)]) == 2


def test_so_many_segments_are_merged_whatever_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENTS_A_MERGE_MAX", 3)
    assert merged(waiting(1, 1)) == 0
    assert merged(waiting(1, 1, 1, 1)) == 3


def test_the_merge_node_tells_final_segments_from_those_on_their_way() -> None:
    pending = PendingMerge(file="part", temporary="t", segments=(key(3).name, key(4).name), bytes=1)
    state = MergeDescriptor(generation=5, merged=key(2).name).begun(pending, 7)
    assert [state.is_final(key(n)) for n in (2, 3, 4, 5)] == [True, False, False, False]
    assert [state.holds(key(n)) for n in (2, 3, 4, 5)] == [True, True, True, False]
    after = state.finished()
    assert [after.is_final(key(n)) for n in (2, 3, 4, 5)] == [True, True, True, False]
    assert (after.pending, after.sequence) == (None, 8)
    assert MergeDescriptor(generation=5).holds(key(0)) is False


def test_a_merged_file_is_abandoned_once_the_node_has_moved_on() -> None:
    names = [merge_name(5, 3, "ab"), merge_name(5, 4, "cd"), merge_name(4, 9, "ef"), merge_name(6, 0, "ab"), "other"]
    assert abandoned_merges(names, 5, 4) == [merge_name(5, 3, "ab"), merge_name(4, 9, "ef")]


def test_final_files_are_told_by_stream_and_number() -> None:
    layout = StreamLayout("/out", "1", "jsonl")
    names = [
        "part-00001-00000010.jsonl",
        "part-00001-00000002.txt",
        "part-00011-00000003.jsonl",
        "part-x",
        "_scribengin",
    ]
    assert layout.final_sequences(names) == {2: names[1], 10: names[0]}
    assert layout.final_name(2) == "part-00001-00000002.jsonl"
