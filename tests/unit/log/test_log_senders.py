"""Which numbers of senders are in a log: what is decided of a request, and what a mark says."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.errors import LogClosed, LogError, SenderUnknown
from scribengin.log import DLSN
from scribengin.log.format.entry import read_body
from scribengin.log.format.records import keep_alive_entry
from scribengin.log.format.sender_marks import GroupRow, SenderMark, SentRun, mark_entry, read_mark
from scribengin.log.write.results import SlotRange
from scribengin.log.write.senders import Senders, SenderTable

A, B = b"a" * 16, b"b" * 16


def run(sender: bytes, number: int, entry: int, records: int = 1, slot: int = 0) -> SentRun:
    return SentRun(sender, number, DLSN(1, entry, slot), records)


def said(table: tuple[SentRun, ...], group: tuple[GroupRow, ...]) -> SenderMark | None:
    entry = mark_entry(table, group, 7)
    header = entry.place(entry=0, group_index=0, sequence=0, epoch=1)
    body = b"".join(bytes(memoryview(buffer)) for buffer in entry.buffers)
    read = read_body(header, pa.py_buffer(body))
    assert isinstance(read, pa.RecordBatch)
    return read_mark(read)


rows = st.tuples(
    st.binary(min_size=16, max_size=16),
    st.integers(1, 2**62),
    st.integers(0, 2**40),
    st.integers(0, 2**31 - 1),
    st.integers(1, 2**31 - 1),
)


@given(st.lists(rows, max_size=5), st.lists(rows, max_size=5))
def test_a_mark_says_what_it_was_told(table: list[tuple], group: list[tuple]) -> None:  # type: ignore[type-arg]
    runs = tuple(SentRun(who, n, DLSN(3, e, slot), k) for who, n, e, slot, k in table)
    of_group = tuple(GroupRow(*row) for row in group)
    assert said(runs, of_group) == SenderMark(runs, of_group)


def test_a_keep_alive_is_no_mark() -> None:
    entry = keep_alive_entry(7)
    header = entry.place(entry=0, group_index=0, sequence=0, epoch=1)
    read = read_body(header, pa.py_buffer(b"".join(bytes(memoryview(buffer)) for buffer in entry.buffers)))
    assert isinstance(read, pa.RecordBatch)
    assert read_mark(read) is None


def test_what_is_sent_first_is_new_and_what_is_sent_again_is_known() -> None:
    senders = Senders("l", SenderTable())
    assert senders.admit(A, 1, 3, 0) == 0
    first = senders.sent(A, 1, 3)
    assert senders.admit(A, 1, 3, 0) == 3, "it is on its way"
    again = senders.sent(A, 1, 3)
    assert senders.admit(A, 2, 4, 0) == 2, "two of four are"
    senders.written([run(A, 1, 0, 3)])
    assert first.result(0) == again.result(0) == (SlotRange(DLSN(1, 0, 0), 3),)
    assert senders.admit(A, 2, 1, 0) == 1
    assert senders.sent(A, 2, 1).result(0) == (SlotRange(DLSN(1, 0, 1), 1),)


def test_senders_are_told_apart() -> None:
    senders = Senders("l", SenderTable())
    senders.sent(A, 1, 1)
    assert senders.admit(B, 1, 1, 0) == 0


def test_a_gap_is_refused_and_so_is_who_has_had_answers_that_nobody_knows_of() -> None:
    senders = Senders("l", SenderTable())
    with pytest.raises(SenderUnknown, match="the log knows of 0 of that sender"):
        senders.admit(A, 2, 1, 1)
    senders.written([run(A, 1, 0)])
    with pytest.raises(SenderUnknown):
        senders.admit(A, 3, 1, 0)
    assert senders.admit(A, 2, 1, 1) == 0


@pytest.mark.parametrize(
    ("sender", "number", "records", "answered"), [(b"short", 1, 1, 0), (A, 0, 1, 0), (A, 1, 0, 0), (A, 1, 1, 1)]
)
def test_what_no_sender_sends_is_refused(sender: bytes, number: int, records: int, answered: int) -> None:
    with pytest.raises(LogError, match="numbers its records from 1 on"):
        Senders("l", SenderTable()).admit(sender, number, records, answered)


def test_what_was_answered_is_forgotten_but_for_the_last() -> None:
    table = SenderTable()
    for number in range(1, 6):
        table.add(run(A, number, number))
    table.answered(A, 3)
    assert [one.number for one in table.runs()] == [4, 5]
    with pytest.raises(SenderUnknown, match="where is forgotten"):
        table.find(A, 3, 4)
    table.answered(A, 5)
    assert ([one.number for one in table.runs()], table.last(A)) == ([5], 5)


def test_a_part_of_a_run_is_found() -> None:
    table = SenderTable()
    table.add(run(A, 1, 4, records=10, slot=20))
    table.add(run(A, 11, 5, records=10))
    assert table.find(A, 9, 12) == [run(A, 9, 4, records=2, slot=28), run(A, 11, 5, records=2)]


def test_the_sender_that_wrote_longest_ago_is_forgotten_first() -> None:
    table = SenderTable(senders_max=2)
    for sender in (A, B, A, b"c" * 16):
        table.add(run(sender, table.last(sender) + 1, 0))
    assert (table.last(A), table.last(B), len(table)) == (2, 0, 2)


def test_the_table_is_made_again_from_what_it_says() -> None:
    table = SenderTable(senders_max=2)
    for sender in (A, B, A):
        table.add(run(sender, table.last(sender) + 1, 0))
    again = SenderTable(senders_max=2)
    for one in table.runs():
        again.add(one)
    for each in (table, again):
        each.add(run(b"c" * 16, 1, 1))
    assert list(table.runs()) == list(again.runs())


def test_whoever_waits_hears_of_the_end_also_who_comes_later() -> None:
    senders = Senders("l", SenderTable())
    waiting = senders.sent(A, 1, 1)
    senders.written([run(B, 1, 0)])
    senders.fail(LogClosed("the end"))
    for future in (waiting, senders.sent(A, 1, 1)):
        with pytest.raises(LogClosed, match="the end"):
            future.result(0)
    assert senders.sent(B, 1, 1).result(0), "that is in the log all the same"
