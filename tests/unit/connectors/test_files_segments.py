"""Segments of a file sink: their names and order, what the merge node says, and when it is time to merge."""

from __future__ import annotations

import pytest

from scribengin.connectors.files.sink import segments as module
from scribengin.connectors.files.sink.segments import (
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


def key(
    round_: int, partition: str = "", *, epoch: int = 1, incarnation: int = 5, part: int = 0, suffix: str = "txt"
) -> SegmentKey:
    return SegmentKey(incarnation, epoch, round_, part, suffix, partition)


def waiting(*sizes: int, age_s: float = 0) -> list[Waiting]:
    return [Waiting(key(number), size, age_s) for number, size in enumerate(sizes)]


def chosen(segments: list[Waiting], **settings: object) -> list[SegmentKey]:
    values = {"merge_bytes": 100, "merge_age_s": 5.0, "idle": False, **settings}
    return due(segments, **values)  # type: ignore[arg-type]  # the settings of one test


def merged(segments: list[Waiting], **settings: object) -> int:
    found = chosen(segments, **settings)
    assert found == [segment.key for segment in segments[: len(found)]]
    return len(found)


def test_segments_are_ordered_as_they_were_written() -> None:
    names = ["6-000001-000000000-0000", "5-000002-000000000-0000", "5-000001-000000010-0000", "5-000001-000000002-0001"]
    names = [f"{name}.txt" for name in [*names, "5-000001-000000002-0000"]] + [".hidden", "something else"]
    found = segment_keys(names)
    assert found == [key(2), key(2, part=1), key(10), key(0, epoch=2), key(0, incarnation=6)]
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
    state = MergeDescriptor(incarnation=5, merged=key(2).name).begun(pending, 7)
    assert [state.is_final(key(n)) for n in (2, 3, 4, 5)] == [True, False, False, False]
    assert [state.holds(key(n)) for n in (2, 3, 4, 5)] == [True, True, True, False]
    after = state.finished(key(5))
    assert [after.is_final(key(n)) for n in (2, 3, 4, 5)] == [True, True, True, False]
    assert (after.pending, after.sequence) == (None, 8)
    assert MergeDescriptor(incarnation=5).holds(key(0)) is False


def test_a_merged_file_is_abandoned_once_the_node_has_moved_on() -> None:
    names = [merge_name(5, 3, "ab"), merge_name(5, 4, "cd"), merge_name(4, 9, "ef"), merge_name(6, 0, "ab"), "other"]
    assert abandoned_merges(names, 5, 4) == [merge_name(5, 3, "ab"), merge_name(4, 9, "ef")]


def test_final_files_are_told_by_stream_and_number() -> None:
    layout = StreamLayout("/out", "1")
    names = [
        "part-00001-00000010.jsonl",
        "part-00001-00000002.txt",
        "part-00011-00000003.jsonl",
        "part-x",
        "_scribengin",
    ]
    assert layout.final_sequences(names) == {2: names[1], 10: names[0]}
    assert layout.finals([*names, "carrier=AA/part-00001-00000003.txt"]) == [names[1], names[0]]
    assert layout.final_name(2, key(0, suffix="jsonl")) == "part-00001-00000002.jsonl"


def test_final_files_of_partitions_are_told_from_those_of_another_sink_further_down() -> None:
    layout = StreamLayout("/out", "0", ("dt", "hour"))
    ours = ["dt=2013-01-02/hour=00/part-00000-00000001.parquet", "dt=2013-01-01/hour=07/part-00000-00000010.parquet"]
    others = ["part-00000-00000002.parquet", "dt=1/part-00000-00000003.txt", "dt=1/day=2/part-00000-00000004.txt"]
    others += ["dt=1/hour=2/part-00001-00000005.txt", "dt=1/hour=2/x=3/part-00000-00000006.txt", "dt=1/hour=2/other"]
    assert layout.finals([*others, *reversed(ours)]) == ours
    assert layout.final_name(2, key(0, "dt=1/hour=2")) == "dt=1/hour=2/part-00000-00000002.txt"


@pytest.mark.parametrize("partition", ["", "a=1", "dt=2013-01-01/hour=07", "a=100%25/b=x%2Fy", "a=ä b@c.txt", "a=@"])
def test_a_segments_name_tells_its_partition_and_its_format(partition: str) -> None:
    named = key(3, partition, suffix="jsonl.gz")
    assert SegmentKey.parse(named.name) == named
    assert "/" not in named.name
    assert named.name.isascii()


def test_partitions_are_merged_each_for_itself_the_oldest_of_it_first() -> None:
    segments = [Waiting(key(number, "ab"[number % 2]), 30, 0) for number in range(5)]
    assert chosen(segments) == []
    segments += [Waiting(key(number, "b"), 30, 0) for number in (5, 6, 7)]
    assert chosen(segments) == [key(number, "b") for number in (1, 3, 5, 6)]
    assert chosen(segments, idle=True) == [key(number, "a") for number in (0, 2, 4)]
    old = [*segments[:4], Waiting(key(4, "a"), 30, 5.0)]
    assert chosen(old) == [key(number, "a") for number in (0, 2, 4)]


def test_a_file_holds_one_format_and_what_came_before_another_one_is_merged_at_once() -> None:
    segments = [Waiting(key(number, suffix="txt" if number < 2 else "txt.gz"), 1, 0) for number in range(4)]
    assert chosen(segments) == [segments[0].key, segments[1].key]
    assert chosen(segments[2:]) == []


def test_the_oldest_partition_is_merged_when_too_many_are_ahead_of_it() -> None:
    segments = [Waiting(key(0, "slow"), 1, 0), Waiting(key(1, "other"), 1, 0)]
    assert chosen(segments, ahead=module.AHEAD_MAX - 1) == []
    assert chosen(segments, ahead=module.AHEAD_MAX) == [key(0, "slow")]


def test_the_merge_node_names_only_partitions_that_are_ahead_of_one_that_waits() -> None:
    def merge(state: MergeDescriptor, *keys: SegmentKey, waiting: SegmentKey | None) -> MergeDescriptor:
        segments = tuple(k.name for k in keys)
        return state.begun(PendingMerge(file="f", temporary="t", segments=segments, bytes=1), 0).finished(waiting)

    state = merge(MergeDescriptor(incarnation=5), key(1, "b"), key(3, "b"), waiting=key(0, "a"))
    assert (state.merged, state.ahead) == (None, (key(3, "b").name,))
    assert [state.is_final(key(1, p)) for p in "ab"] == [False, True]
    state = merge(state, key(4, "c"), waiting=key(0, "a"))
    assert [state.is_final(key(4, p)) for p in "abc"] == [False, False, True]
    state = merge(state, key(5, "b"), waiting=key(0, "a"))
    assert set(state.ahead) == {key(4, "c").name, key(5, "b").name}
    state = merge(state, key(0, "a"), waiting=key(2, "a"))
    assert (state.merged, len(state.ahead)) == (key(0, "a").name, 2)
    state = merge(state, key(2, "a"), waiting=key(6, "d"))
    assert (state.merged, state.ahead) == (key(5, "b").name, ())
    assert all(state.is_final(key(4, p)) for p in "abcd")
    state = merge(state, key(6, "d"), waiting=None)
    assert (state.merged, state.ahead) == (key(6, "d").name, ())
