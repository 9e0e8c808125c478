"""Tracking records: what is lost, what comes twice, what comes too late."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from scribengin.operations.verify.tracking import Bits, SinkRecords, tracked, tracking_payload, verdict


def output(**streams: list[int]) -> SinkRecords:
    made = SinkRecords()
    for stream, numbers in streams.items():
        made.add(stream, [tracking_payload("g", "in/0", n) for n in numbers])
    return made


def told(sources: SinkRecords, *outputs: SinkRecords) -> tuple[int, int, int, int, int]:
    (chunk,) = verdict(sources, outputs).chunks
    return chunk.sent, chunk.arrived, chunk.lost, chunk.duplicated, chunk.out_of_order


def test_everything_once_and_in_order_is_good() -> None:
    sent = output(s=list(range(10)))
    assert told(sent, output(a=[0, 2, 4, 6, 8], b=[1, 3, 5, 7, 9])) == (10, 10, 0, 0, 0)
    assert verdict(sent, [output(a=list(range(10)))]).good


def test_what_is_lost_or_twice_or_late_is_counted_each_for_itself() -> None:
    sent = output(s=list(range(10)))
    assert told(sent, output(a=[0, 1, 2, 5, 6, 7, 8])) == (10, 7, 3, 0, 0)
    assert told(sent, output(a=[0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9])) == (10, 10, 0, 2, 0)
    assert told(sent, output(a=[0, 1, 3, 2, 4, 5, 6, 7, 8, 9])) == (10, 10, 0, 0, 1)
    assert told(sent, output(a=list(range(6)), b=list(range(5, 10)))) == (10, 10, 0, 1, 0)
    assert told(sent, output()) == (10, 0, 10, 0, 0)


def test_several_sinks_may_share_the_records_or_have_all_of_them() -> None:
    sent = output(s=list(range(4)))
    assert told(sent, output(a=[0, 2]), output(a=[1, 3])) == (4, 4, 0, 0, 0)
    assert told(sent, output(a=[0, 1, 2, 3]), output(a=[0, 1, 2, 3])) == (4, 4, 0, 0, 0)


def test_what_the_sources_have_given_up_is_known_from_the_outputs() -> None:
    assert told(output(s=[8, 9]), output(a=[0, 1, 2, 3, 4, 5, 6, 7])) == (10, 8, 2, 0, 0)
    assert told(output(), output(a=[0, 1, 3])) == (4, 3, 1, 0, 0)


def test_what_is_no_tracking_record_is_only_counted() -> None:
    made = SinkRecords()
    others = [None, b"", b"x", b'{"sequence": 1}', b'{"generator": 1, "chunk": "c", "sequence": 1}', b'["sequence"]']
    others += [
        b'{"generator": "g", "chunk": "c", "sequence": -1}',
        b'{"generator": "g", "chunk": "c", "sequence": true}',
    ]
    others.append(b'{"generator": "g", "chunk": "c", "sequence": 99999999999999}')
    made.add("a", others)
    assert (made.others, made.chunks) == (len(others), {})
    assert tracked(b'{"more": 1, "sequence": 3, "generator": "g", "chunk": "c"}') == (("g", "c"), 3)
    assert verdict(SinkRecords(), [made]).others == len(others)


@given(st.lists(st.integers(0, 300), max_size=60), st.lists(st.integers(0, 300), max_size=60))
def test_bits_are_a_set_of_numbers(ours: list[int], others: list[int]) -> None:
    bits, more = Bits(), Bits()
    assert [bits.add(n) for n in ours] == [n not in ours[:k] for k, n in enumerate(ours)]
    for n in others:
        more.add(n)
    bits.merge(more)
    assert bits.count == len({*ours, *others})
    assert not any(bits.add(n) for n in {*ours, *others})


@given(st.lists(st.integers(0, 40), max_size=80))
def test_the_verdict_agrees_with_counting(numbers: list[int]) -> None:
    count = Counter(numbers)
    found = told(output(s=list(range(41))), output(a=numbers))
    assert found[:4] == (41, len(count), 41 - len(count), sum(count.values()) - len(count))


def test_what_was_committed_and_nobody_sends_is_told_from_what_is_lost() -> None:
    sent, partly = output(s=list(range(10))), output(a=[0, 1, 2])
    partly.add_unreachable([tracking_payload("g", "in/0", n) for n in (2, 3, 4, 5)] + [None, b"no tracking record"])
    found = verdict(sent, [partly])
    [chunk] = found.chunks
    assert (chunk.arrived, chunk.lost, chunk.unreachable, found.unreachable) == (3, 4, 3, 6)
    whole = output(a=list(range(8)))
    whole.add_unreachable([tracking_payload("g", "in/0", n) for n in (8, 9)])
    found = verdict(sent, [whole])
    assert (found.chunks[0].lost, found.good, found.complete) == (0, False, False)
    untold = output(a=list(range(10)))
    untold.add_unreachable([None])
    assert not verdict(sent, [untold]).complete


def test_what_only_they_have_that_do_not_answer_was_sent() -> None:
    away = output()
    away.add_unreachable([tracking_payload("g", "in/0", n) for n in (0, 1, 2)])
    [chunk] = verdict(output(), [away]).chunks
    assert (chunk.sent, chunk.lost, chunk.unreachable) == (3, 0, 3)
