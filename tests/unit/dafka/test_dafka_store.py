"""A Dafka store: what it takes, when it acknowledges, and how it answers; none of the C store's mistakes."""

from __future__ import annotations

import pytest

from scribengin.dafka.state import (
    Append,
    DafkaPartition,
    HaltPartition,
    IntakeLimits,
    ReadStored,
    Send,
    StoredRange,
    StoreState,
)
from scribengin.dafka.wire import (
    ConsumerHello,
    DirectBatch,
    DirectHead,
    DirectRecord,
    Fetch,
    GetHeads,
    Head,
    HeadsTold,
    LiveBatch,
    LiveRecord,
    StoreAck,
    StoreHello,
    Subscription,
    Truncated,
    topic_prefix,
)

WRITER, READER, PRODUCER, CONSUMER = "AA" * 16, "AB" * 16, "BB" * 16, "CC" * 16
HELLO, HELLO2 = DafkaPartition("hello", PRODUCER), DafkaPartition("hello2", PRODUCER)


def store(stored: dict[DafkaPartition, StoredRange] | None = None, **options: int) -> StoreState:
    limits = IntakeLimits(gone_tries=1)
    return StoreState(WRITER, READER, stored or {}, limits=limits, heads_interval_s=1000.0, **options)


def live(sequence: int, subject: str = "hello") -> LiveRecord:
    return LiveRecord(subject, PRODUCER, subject, sequence, b"%d" % sequence)


def direct(sequence: int) -> DirectRecord:
    return DirectRecord(WRITER, PRODUCER, "hello", sequence, b"%d" % sequence)


def appended(first: int, end: int, partition: DafkaPartition = HELLO) -> Append:
    return Append(partition, first, [b"%d" % n for n in range(first, end)])


def ack(sequence: int) -> Send:
    return Send(StoreAck(PRODUCER, "hello", sequence))


def test_records_are_acknowledged_once_they_are_durable_and_once_a_group() -> None:
    state = store()
    assert state.messages([live(n) for n in range(5)], 0.0) == [appended(0, 5)]
    assert state.durable(HELLO, 0, 5) == [ack(4)]
    assert state.stored == {HELLO: StoredRange(0, 5)}


def test_partitions_are_written_side_by_side() -> None:
    batch = [live(0), live(0, "hello2"), live(1), live(1, "hello2")]
    assert store().messages(batch, 0.0) == [appended(0, 2), appended(0, 2, HELLO2)]


def test_what_comes_again_is_acknowledged_again() -> None:
    """The C store drops it: a producer that has missed the acknowledgement waits for ever."""
    state = store({HELLO: StoredRange(0, 5)})
    assert state.messages([live(3), live(4)], 0.0) == [ack(4)]
    assert state.messages([Head("hello", PRODUCER, "hello", 4)], 0.0) == [ack(4)]
    assert state.messages([Head("hello", PRODUCER, "hello", 5)], 0.0) == [Send(Fetch(PRODUCER, WRITER, "hello", 5, 1))]


def test_what_comes_again_before_it_is_durable_is_not_acknowledged() -> None:
    state = store({HELLO: StoredRange(0, 5)})
    state.messages([live(5), live(6)], 0.0)
    assert state.messages([live(5), live(6)], 0.0) == [ack(4)]
    new = store()
    new.messages([live(0)], 0.0)
    assert new.messages([live(0), Head("hello", PRODUCER, "hello", 0)], 0.0) == []


def test_a_gap_is_fetched_by_the_writer_and_only_whole_runs_are_written() -> None:
    state = store()
    assert state.messages([live(2)], 0.0) == [Send(Fetch(PRODUCER, WRITER, "hello", 0, 2))]
    assert state.messages([direct(0), direct(1)], 0.0) == [appended(0, 3)]


@pytest.mark.parametrize(("sequence", "records", "read"), [(0, 3, 3), (0, 100_000, 10), (9, 1, 1), (4, 2**32 - 1, 6)])
def test_a_fetch_is_answered_with_exactly_what_was_asked(sequence: int, records: int, read: int) -> None:
    """The C store sends one more."""
    state = store({HELLO: StoredRange(0, 10)})
    asked = Fetch(PRODUCER, CONSUMER, "hello", sequence, records)
    assert state.asked(asked) == [ReadStored(CONSUMER, HELLO, sequence, read)]


@pytest.mark.parametrize(
    "asked",
    [
        Fetch(PRODUCER, CONSUMER, "hello", 10, 5),
        Fetch(PRODUCER, CONSUMER, "hello3", 0, 5),
        Fetch(CONSUMER, CONSUMER, "hello", 0, 5),
        Fetch(PRODUCER, WRITER, "hello", 0, 5),
    ],
)
def test_what_is_not_stored_or_is_its_own_question_is_not_answered(asked: Fetch) -> None:
    assert store({HELLO: StoredRange(0, 10)}).asked(asked) == []


def test_who_asks_for_what_is_not_kept_any_more_is_told() -> None:
    state = store({HELLO: StoredRange(0, 10)})
    state.truncated(HELLO, 4)
    told = [Send(Truncated(CONSUMER, PRODUCER, "hello", 4))]
    assert state.asked(Fetch(PRODUCER, CONSUMER, "hello", 0, 5)) == told
    assert state.asked(Fetch(PRODUCER, CONSUMER, "hello", 4, 5)) == [ReadStored(CONSUMER, HELLO, 4, 5)]


def test_heads_are_told_of_all_topics_that_begin_so() -> None:
    state = store(
        {HELLO: StoredRange(0, 10), HELLO2: StoredRange(3, 5), DafkaPartition("other", PRODUCER): StoredRange(0, 1)}
    )
    heads = [
        Send(DirectHead(CONSUMER, PRODUCER, "hello", 9)),
        Send(DirectHead(CONSUMER, PRODUCER, "hello2", 4)),
        Send(HeadsTold(CONSUMER, READER)),
    ]
    assert state.asked(GetHeads("hello", CONSUMER)) == heads
    assert state.asked(ConsumerHello(READER, CONSUMER, ("hello",))) == heads
    assert state.asked(ConsumerHello(READER, CONSUMER, ())) == heads[2:]
    assert state.asked(ConsumerHello(WRITER, CONSUMER, ("hello",))) == []


def test_a_consumer_that_subscribes_is_greeted() -> None:
    state = store()
    assert state.subscription(Subscription(True, b"L" + CONSUMER.encode())) == [Send(StoreHello(CONSUMER, READER))]
    assert state.subscription(Subscription(False, b"L" + CONSUMER.encode())) == []


def test_a_store_asks_the_others_what_they_have() -> None:
    state = StoreState(WRITER, READER, {}, heads_interval_s=10.0)
    asked = [Send(GetHeads("", WRITER))]
    assert [state.tick(now) for now in (0.0, 0.4, 0.5, 1.4, 1.5)] == [asked, [], asked, [], asked]
    due = [now for now in range(2, 60) if state.tick(now) == asked]
    assert due == [4, 8, 16, 26, 36, 46, 56]
    head = DirectHead(WRITER, PRODUCER, "hello", 3)
    assert state.messages([head], 60.0) == [Send(Fetch(PRODUCER, WRITER, "hello", 0, 4))]
    assert state.asked(GetHeads("", WRITER)) == []


def test_a_store_that_has_nothing_begins_where_the_others_begin() -> None:
    state = store()
    state.messages([live(9), Truncated(WRITER, PRODUCER, "hello", 7)], 0.0)
    state.tick(1.0)
    assert state.tick(1.0) == [Send(Fetch(PRODUCER, WRITER, "hello", 7, 2))]
    assert state.messages([direct(7), direct(8)], 1.0) == [appended(7, 10)]
    assert state.durable(HELLO, 7, 10) == [ack(9)]
    assert state.stored == {HELLO: StoredRange(7, 10)}


def test_a_store_makes_no_hole_in_what_it_has() -> None:
    state = store({HELLO: StoredRange(0, 5)})
    state.messages([live(9), Truncated(WRITER, PRODUCER, "hello", 7)], 0.0)
    assert state.tick(1.0) == [Send(GetHeads("", WRITER)), HaltPartition(HELLO, 5, 7)]
    assert state.messages([live(10)], 2.0) == []


def test_what_nobody_sends_though_it_is_asked_for_again_and_again_is_told_until_it_comes() -> None:
    state = store()
    state.messages([live(3)], 0.0)
    assert state.stuck() == {}
    state.tick(1.0)
    assert state.stuck() == {HELLO: 0}
    assert state.messages([direct(0), direct(1), direct(2)], 1.5) == [appended(0, 4)]
    assert state.stuck() == {}


def test_what_nobody_keeps_any_more_is_told_until_it_comes() -> None:
    state = store({HELLO: StoredRange(0, 5)})
    state.messages([live(9), Truncated(WRITER, PRODUCER, "hello", 7)], 0.0)
    state.tick(1.0)
    assert state.stuck() == {HELLO: 5}
    state.messages([direct(5)], 2.0)  # somebody has it after all
    assert state.stuck() == {}


def test_partitions_without_number_are_refused_and_counted() -> None:
    state = store(partitions_max=10)
    for n in range(100):
        state.messages([LiveRecord("hello", f"{n:032X}", "hello", 0, b"")], 0.0)
    assert state.refused_partitions == 90


def test_a_thousand_hellos_are_a_thousand_answers_and_nothing_is_kept_of_them() -> None:
    state = store({HELLO: StoredRange(0, 10)})
    before = dict(vars(state))
    for n in range(1000):
        answer = state.asked(ConsumerHello(READER, f"{n:032X}", ("hello",) * 100))
        assert len(answer) == 2  # the head, and that it is all
    assert vars(state) == before


def batch(first: int, end: int) -> LiveBatch:
    return LiveBatch("hello", PRODUCER, "hello", first, [b"%d" % n for n in range(first, end)])


def test_a_batch_is_its_records_and_only_what_is_new_of_it_is_stored() -> None:
    state = store({HELLO: StoredRange(0, 5)})
    assert state.messages([batch(3, 5)], 0.0) == [ack(4)]
    assert state.messages([batch(3, 7), live(7), batch(8, 10)], 0.0) == [appended(5, 10)]
    assert state.messages([batch(12, 14)], 0.0) == [Send(Fetch(PRODUCER, WRITER, "hello", 10, 2))]
    assert state.messages([DirectBatch(WRITER, PRODUCER, "hello", 10, [b"10", b"11"])], 0.0) == [appended(10, 14)]


def test_it_answers_in_batches_whoever_listens_to_them() -> None:
    state = store()
    state.subscription(Subscription(True, topic_prefix(DirectBatch, CONSUMER, exact=False)))
    assert [state.answers_in_batches(one) for one in (CONSUMER, PRODUCER)] == [True, False]
    state.subscription(Subscription(False, topic_prefix(DirectBatch, CONSUMER, exact=False)))
    assert not state.answers_in_batches(CONSUMER)


def test_what_could_not_be_made_durable_is_as_if_it_had_not_come_and_is_taken_again_later() -> None:
    state = store({HELLO: StoredRange(0, 5)})
    assert state.messages([batch(5, 8)], 0.0) == [appended(5, 8)]
    state.refuse(HELLO, until_s=2.0)
    head = Head("hello", PRODUCER, "hello", 9)
    assert state.messages([batch(5, 8), batch(3, 5), head, live(0, "hello2")], 1.9) == [appended(0, 1, HELLO2)]
    assert state.messages([head], 2.0) == [Send(Fetch(PRODUCER, WRITER, "hello", 5, 5))]
    assert state.messages([batch(5, 10)], 2.0) == [appended(5, 10)]
    assert state.durable(HELLO, 5, 10) == [ack(9)]


def test_what_was_truncated_to_its_end_is_told_so_and_its_head_stays_known() -> None:
    state = store({HELLO: StoredRange(0, 10)})
    state.truncated(HELLO, 12)
    assert state.stored == {HELLO: StoredRange(10, 10)}
    told = [Send(Truncated(CONSUMER, PRODUCER, "hello", 10))]
    assert state.asked(Fetch(PRODUCER, CONSUMER, "hello", 0, 5)) == told
    assert state.asked(GetHeads("hello", CONSUMER))[0] == Send(DirectHead(CONSUMER, PRODUCER, "hello", 9))
    assert state.messages([live(10)], 0.0) == [appended(10, 11)]
    assert state.durable(HELLO, 10, 11) == [ack(10)]
    assert state.asked(Fetch(PRODUCER, CONSUMER, "hello", 0, 5)) == told
