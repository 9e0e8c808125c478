"""Many records in one frame: what is written, what is refused, and who gets it."""

from __future__ import annotations

import random
import tracemalloc

import pyarrow as pa
import pytest

from scribengin.dafka.state.audience import Audience
from scribengin.dafka.state.kept import KeptRecords
from scribengin.dafka.wire import (
    DirectBatch,
    DirectRecord,
    Head,
    LiveBatch,
    LiveRecord,
    Subscription,
    decode,
    encode,
    groups,
    packed_groups,
    topic_prefix,
    within,
)
from scribengin.dafka.wire.batches import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, GROUP_BYTES, GROUP_RECORDS, pack, unpack
from scribengin.errors import FrameInvalid

PRODUCER, CONSUMER, OTHER = "AA" * 16, "BB" * 16, "CC" * 16
RECORDS, BATCHES = topic_prefix(LiveRecord, "hello"), topic_prefix(LiveBatch, "hello")
C_CONSUMER, C_STORE = b"Mhello", b"M"
"""What C programs subscribe to."""


def test_a_batch_is_a_records_beginning_a_count_the_lengths_and_the_bytes() -> None:
    first, content = encode(LiveBatch("hello", PRODUCER, "hello", 258, [b"ab", b"", b"c"]))
    name = b"\x20" + PRODUCER.encode() + b"\x05hello"
    assert first == b"Nhello\0\x01" + name + (258).to_bytes(8, "big") + b"\0\0\0\x03"
    assert content == b"\0\0\0\x02\0\0\0\0\0\0\0\x01abc"
    direct, same = encode(DirectBatch(CONSUMER, PRODUCER, "hello", 258, [b"ab", b"", b"c"]))
    assert direct == b"P" + CONSUMER.encode() + b"\0\x01" + name + (258).to_bytes(8, "big") + b"\0\0\0\x03"
    assert same == content


def test_no_c_program_subscribes_to_a_batch() -> None:
    frames = [encode(LiveBatch("hello", PRODUCER, "hello", 0, [b"a"])), encode(DirectBatch("", "", "", 0, [b"a"]))]
    for letter in b"MDFKHEGWL":  # all that their programs know
        assert not any(frame[0].startswith(bytes([letter])) for frame in frames)


@pytest.mark.parametrize(
    ("packed", "records"),
    [
        (b"", 0),
        (b"", 1),
        (b"\0\0\0\x01", 1),
        (b"\0\0\0\x01ab", 1),
        (b"\0\0\0\x01a", 2),
        (b"\xff\xff\xff\xff" * 2, 2),
        (b"\0" * 4 * (BATCH_RECORDS_MAX + 1), BATCH_RECORDS_MAX + 1),
        (b"", 2**32 - 1),
        (b"\x00\xff\xff\xfd" + bytes(BATCH_BYTES_MAX), 1),
    ],
)
def test_a_content_that_is_not_what_it_says_is_refused_and_costs_nothing(packed: bytes, records: int) -> None:
    tracemalloc.start()
    with pytest.raises(FrameInvalid):
        unpack(packed, records)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 1024


@pytest.mark.parametrize("contents", [[], [b""] * (BATCH_RECORDS_MAX + 1), [bytes(BATCH_BYTES_MAX)]])
def test_nobody_writes_what_nobody_reads(contents: list[bytes]) -> None:
    with pytest.raises(FrameInvalid):
        encode(LiveBatch("t", PRODUCER, "t", 0, contents))


def test_sequences_of_a_batch_end_where_sequences_end() -> None:
    last = LiveBatch("t", PRODUCER, "t", 2**64 - 2, [b"a", b"b"])
    assert decode(encode(last)) == last
    with pytest.raises(FrameInvalid):
        encode(last._replace(sequence=2**64 - 1))
    first, content = encode(last)
    with pytest.raises(FrameInvalid, match="sequences end with"):
        decode([first[:-12] + b"\xff" * 8 + first[-4:], content])


def contents_of(sizes: list[int]) -> list[bytes]:
    return [bytes([n % 256]) * size for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([10**6], [1]),
        ([5, 10**6, 5, 5], [1, 1, 2]),
        ([GROUP_BYTES, 1], [1, 1]),
        ([GROUP_BYTES - 1, 1, 0, 1], [3, 1]),
        ([0] * (2 * GROUP_RECORDS + 1), [GROUP_RECORDS, GROUP_RECORDS, 1]),
    ],
)
def test_groups_are_bounded_and_what_is_large_goes_alone(sizes: list[int], expected: list[int]) -> None:
    contents = contents_of(sizes)
    found = list(groups(contents))
    assert [len(group) for group in found] == expected
    assert [content for group in found for content in group] == contents


def test_groups_out_of_arrow_are_those_of_objects() -> None:
    random_ = random.Random(3)
    for _ in range(200):
        largest = random_.choice((1, 100, 30_000))
        contents = contents_of([random_.randrange(largest) for _ in range(random_.randrange(1, 50))])
        start = random_.randrange(len(contents))
        column = pa.array(contents, pa.binary()).slice(start)
        expected = [(len(group), pack(group)) for group in groups(contents[start:])]
        assert list(packed_groups(column)) == expected
        assert [one for records, packed in expected for one in unpack(packed, records)] == contents[start:]


def test_an_answer_ends_with_the_record_that_reaches_its_bytes() -> None:
    contents = contents_of([10] * 5)
    assert [len(within(contents, size)) for size in (1, 10, 11, 50, 51)] == [1, 1, 2, 5, 5]


def audience(*prefixes: bytes) -> Audience:
    found = Audience("hello")
    for prefix in prefixes:
        found.heard(Subscription(True, prefix))
    return found


@pytest.mark.parametrize(
    ("prefixes", "takes"),
    [
        ((), True),
        ((RECORDS, BATCHES), True),
        ((b"M", b"N"), True),
        ((RECORDS, BATCHES, b"M", b"N", b"Mhel", b"Nhel"), True),
        ((C_CONSUMER,), False),
        ((C_STORE, RECORDS, BATCHES), False),
        ((RECORDS, BATCHES, C_CONSUMER, b"M", b"N"), False),
        ((b"", RECORDS, BATCHES), False),
        ((topic_prefix(LiveRecord, "hello2"), b"Mhello2", topic_prefix(Head, "hello")), True),
    ],
)
def test_batches_are_for_those_of_whom_everybody_takes_them(prefixes: tuple[bytes, ...], takes: bool) -> None:
    assert audience(*prefixes).takes_batches is takes


def test_who_leaves_does_not_count_any_more() -> None:
    state = audience(C_CONSUMER, RECORDS, BATCHES)
    state.heard(Subscription(False, RECORDS))
    state.heard(Subscription(False, BATCHES))
    assert not state.takes_batches
    state.heard(Subscription(False, C_CONSUMER))
    assert state.takes_batches
    state.heard(Subscription(False, BATCHES))  # of whom it has not heard
    state.heard(Subscription(True, RECORDS))
    assert not state.takes_batches


def test_what_is_fetched_comes_in_batches_to_whoever_listens_to_them() -> None:
    mine, records = (topic_prefix(kind, CONSUMER, exact=False) for kind in (DirectBatch, DirectRecord))
    state = audience(records, mine, topic_prefix(DirectRecord, OTHER, exact=False))
    assert [state.takes_direct_batches(one) for one in (CONSUMER, OTHER)] == [True, False]
    state.heard(Subscription(True, mine))  # connected again, before the end of its first connection is heard of
    state.heard(Subscription(False, mine))
    assert state.takes_direct_batches(CONSUMER)
    state.heard(Subscription(False, mine))
    assert not state.takes_direct_batches(CONSUMER)


def test_whoever_invents_requesters_fills_no_memory() -> None:
    state = audience(*(topic_prefix(DirectBatch, f"{n:032X}", exact=False) for n in range(100_010)))
    assert len(state._requesters) == 100_000


@pytest.mark.parametrize("first", [0, 7, 1_000_000])
def test_what_is_kept_is_found_by_its_sequence_until_it_is_let_go_of(first: int) -> None:
    kept, random_ = KeptRecords(first), random.Random(first)
    expected: dict[int, bytes] = {}
    for _ in range(300):
        added = [b"%d" % (kept.next + n) for n in range(random_.choice((1, 10, 1000, 3000)))]
        expected.update(enumerate(added, kept.next))
        kept.add(added)
        for gone in range(kept.first, random_.randrange(kept.first, kept.next + 1)):
            del expected[gone]
            kept.release(gone + 1)
        assert len(kept) == len(expected)
        for _ in range(3):
            begin = random_.randrange(kept.first, kept.next + 1)
            end = random_.randrange(begin, kept.next + 1)
            assert kept.between(begin, end) == [expected[n] for n in range(begin, end)]
        assert sum(map(len, kept._chunks.values())) < len(kept) + 1024


@pytest.mark.parametrize("step", [1, 7, 1023, 1024, 1500])
def test_what_was_let_go_of_takes_no_memory(step: int) -> None:
    """However large it was: its chunk may stay for long, where little is published."""
    kept = KeptRecords(5)
    contents = contents_of([10] * 3000)
    kept.add(contents)
    for end in (*range(kept.first + step, kept.next, step), kept.next):
        kept.release(end)
        assert sum(len(content) for chunk in kept._chunks.values() for content in chunk) == 10 * len(kept)
        assert kept.between(end, min(end + 3, kept.next)) == contents[end - 5 : end - 2]
    kept.add([b"next"])
    assert kept.between(kept.first, kept.next) == [b"next"]
