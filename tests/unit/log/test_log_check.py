"""A log's metadata held against itself: every contradiction is named, and a sound list has none."""

from __future__ import annotations

from typing import Any

import pytest

from scribengin.log.metadata.check import contradictions
from scribengin.log.metadata.segments import SegmentDescriptor, SegmentsHead

DIRECTORY = "log-1"


def completed(number: int, records: int = 10, **changes: Any) -> SegmentDescriptor:
    """Segment `number` of a log whose segments hold ten records each, with transaction ids equal to sequence ids."""
    start = 10 * (number - 1)
    return SegmentDescriptor(
        segment=number,
        epoch=number,
        directory=DIRECTORY,
        start_sequence=start,
        created_ms=0,
        completed_ms=1,
        bytes=640,
        entries=1,
        records=records,
        last_txid=start + records - 1,
    ).model_copy(update=changes)


def unfinished(number: int, **changes: Any) -> SegmentDescriptor:
    """The same, not complete yet."""
    empty = {"completed_ms": None, "bytes": 0, "entries": 0, "records": 0, "last_txid": -999}
    return completed(number).model_copy(update={**empty, **changes})


def head(max_segment: int, **changes: Any) -> SegmentsHead:
    """Of a log with that many completed segments."""
    said = SegmentsHead(
        directory=DIRECTORY,
        epoch=max_segment,
        max_segment=max_segment,
        next_sequence=10 * max_segment,
        last_txid=10 * max_segment - 1,
    )
    return said.model_copy(update=changes)


WRITING = head(3, in_progress=True, next_sequence=20, last_txid=19)


def told(said: SegmentsHead, segments: list[SegmentDescriptor]) -> list[str]:
    return [str(finding) for finding in contradictions(said, segments)]


@pytest.mark.parametrize(
    ("said", "segments"),
    [
        (SegmentsHead(directory=DIRECTORY), []),
        (head(3), [completed(1), completed(2), completed(3)]),
        (WRITING, [completed(1), completed(2), unfinished(3)]),
        (head(3, first_segment=2, begin=2), [completed(2), completed(3)]),
        (head(3, first_segment=3, first_entry=1), [completed(1), completed(2), completed(3)]),
        (head(3, first_segment=4), []),
        (head(3, first_segment=4, begin=3, end_of_stream=True), [completed(3)]),
        (head(1, in_progress=True, next_sequence=0, last_txid=-999), [unfinished(1)]),
        (head(2), [completed(1), completed(2, epoch=1)]),
    ],
)
def test_a_sound_list_has_no_contradiction(said: SegmentsHead, segments: list[SegmentDescriptor]) -> None:
    assert told(said, segments) == []


@pytest.mark.parametrize(
    ("said", "segments", "finding"),
    [
        (
            head(3),
            [completed(1), completed(3)],
            "metadata: segment 2 is missing between segments 1 and 3",
        ),
        (head(5), [completed(1), completed(5)], "metadata: 3 segments are missing between segments 1 and 5"),
        (
            head(3),
            [completed(1), completed(2)],
            "metadata: the head says that segment 3 is the last, the list ends with 2",
        ),
        (head(2), [], "metadata: the first record kept is in segment 1, the list is empty"),
        (
            head(3),
            [completed(2), completed(3)],
            "metadata: the first record kept is in segment 1, the list begins with 2",
        ),
        (
            head(1, first_segment=5),
            [completed(1)],
            "metadata: the first record kept is DLSN{logSegmentSequenceNo=5, entryId=0, slotId=0}, "
            "behind the last segment 1",
        ),
        (head(1, given_up_entry=1), [completed(1)], "metadata: records were given up to DLSN{logSegmentSequenceNo=1, "),
        (
            WRITING,
            [completed(1), completed(2), completed(3), unfinished(3)],
            "segment 3: there are two segments of this number",
        ),
        (
            WRITING,
            [completed(1), unfinished(2), unfinished(3)],
            "metadata: the head says that segment 3 is in progress; in progress are: 2, 3",
        ),
        (
            head(2, in_progress=True),
            [completed(1), completed(2)],
            "metadata: the head says that segment 2 is in progress; in progress are: none",
        ),
        (
            head(2),
            [completed(1), unfinished(2)],
            "metadata: the head says that no segment is in progress; in progress are: 2",
        ),
        (
            WRITING.model_copy(update={"end_of_stream": True}),
            [completed(1), completed(2), unfinished(3)],
            "metadata: the log is sealed and has a segment in progress",
        ),
        (
            head(2),
            [completed(1), completed(2, start_sequence=12)],
            "segment 2: segment 1 ends before sequence id 10, it begins with 12",
        ),
        (
            head(2, next_sequence=7),
            [completed(1), completed(2)],
            "metadata: segment 2 ends before sequence id 20, what follows it begins with 7",
        ),
        (
            head(2, last_txid=3),
            [completed(1), completed(2)],
            "metadata: segment 2 ends with transaction id 19, the head says 3",
        ),
        (head(2), [completed(1, epoch=2), completed(2, epoch=1)], "segment 2: its epoch is 1, that of the segment"),
        (head(2, epoch=1), [completed(1), completed(2)], "segment 2: its epoch is 2, the log's 1"),
        (head(2), [completed(1), completed(2, directory="else")], "segment 2: it lies in else, the log in log-1"),
    ],
)
def test_every_contradiction_is_named(said: SegmentsHead, segments: list[SegmentDescriptor], finding: str) -> None:
    assert any(line.startswith(finding) for line in told(said, segments)), told(said, segments)


def test_all_of_them_are_named_and_not_the_first_only() -> None:
    said = head(9, first_segment=12)
    assert len(told(said, [completed(1), completed(3, start_sequence=5), completed(4, directory="else")])) >= 4
