"""A Dafka producer: what it keeps, what it answers, and when it lets go; none of the C producer's mistakes."""

from __future__ import annotations

import pytest

from scribengin.dafka.state import DafkaPartition, ProducerState, Send
from scribengin.dafka.state.audience import Attendance
from scribengin.dafka.wire import (
    DirectBatch,
    DirectHead,
    DirectRecord,
    Fetch,
    GetHeads,
    Head,
    LiveBatch,
    LiveRecord,
    StoreAck,
    Subscription,
    topic_prefix,
)
from scribengin.errors import ProducerFull

ME, ASKER, STORE, OTHER_STORE = "AA" * 16, "BB" * 16, "CC" * 16, "DD" * 16


def producer(**options: float) -> ProducerState:
    return ProducerState(DafkaPartition("hello", ME), **options)  # type: ignore[arg-type]


def content(sequence: int) -> bytes:
    return f"record {sequence}".encode()


def publish(state: ProducerState, count: int) -> None:
    first = state.next
    assert state.publish([content(first + n) for n in range(count)], now_s=0.0) == first


def fetched(state: ProducerState, sequence: int, records: int, asker: str = ASKER) -> list[tuple[int, bytes]]:
    """What comes of a fetch, after it was sent as many times as it takes."""
    assert state.message(Fetch(ME, asker, "hello", sequence, records), asker) == []
    found = []
    while answers := state.answers(100):
        messages = [send.message for send in answers]
        assert all(isinstance(m, DirectRecord) and m.to == asker and m.address == ME for m in messages)
        found += [(m.sequence, m.content) for m in messages if isinstance(m, DirectRecord)]
    return found


def answered(state: ProducerState) -> list[int]:
    return [send.message.sequence for send in state.answers(100) if isinstance(send.message, DirectRecord)]


def acknowledge(state: ProducerState, sequence: int, store: str = STORE) -> None:
    assert state.message(StoreAck(ME, "hello", sequence), store) == []


def test_records_behind_the_256th_come_with_their_own_bytes() -> None:
    """The C producer answers 256 with the content of 0: it always looks into its first chunk."""
    state = producer()
    publish(state, 300)
    assert fetched(state, 254, 5) == [(n, content(n)) for n in range(254, 259)]


def test_after_an_acknowledgement_the_rest_keeps_its_own_bytes() -> None:
    """The C producer answers 9 to 11 with what it published as 7 to 9, and then writes over what is unacknowledged."""
    state = producer()
    publish(state, 12)
    acknowledge(state, 6)
    acknowledge(state, 8)
    assert fetched(state, 9, 3) == [(n, content(n)) for n in (9, 10, 11)]
    publish(state, 1)
    assert fetched(state, 9, 100) == [(n, content(n)) for n in (9, 10, 11, 12)]


@pytest.mark.parametrize(("sequence", "records", "expected"), [(0, 3, 3), (7, 1, 1), (8, 100_000, 2), (10, 5, 0)])
def test_a_fetch_is_answered_with_exactly_what_was_asked(sequence: int, records: int, expected: int) -> None:
    """The C store sends one more."""
    state = producer()
    publish(state, 10)
    assert fetched(state, sequence, records) == [(n, content(n)) for n in range(sequence, sequence + expected)]


def test_what_was_let_go_of_is_not_answered() -> None:
    state = producer()
    publish(state, 10)
    acknowledge(state, 4)
    assert fetched(state, 4, 3) == []
    assert fetched(state, 5, 1) == [(5, content(5))]


def test_a_fetch_for_everything_there_ever_will_be_is_answered_in_pieces() -> None:
    state = producer()
    publish(state, 1000)
    state.message(Fetch(ME, ASKER, "hello", 0, 2**32 - 1), ASKER)
    assert [len(state.answers(300)) for _ in range(5)] == [300, 300, 300, 100, 0]


def test_an_answer_is_bounded_by_bytes() -> None:
    state = producer()
    state.publish([b"x" * 1000] * 20, now_s=0.0)
    state.message(Fetch(ME, ASKER, "hello", 0, 20), ASKER)
    assert [len(state.answers(100, bytes_max=4500)) for _ in range(5)] == [5, 5, 5, 5, 0]


def test_requesters_take_turns_and_are_so_many_at_most() -> None:
    state = producer()
    publish(state, 100)
    for n in range(5000):
        state.message(Fetch(ME, f"{n:032X}", "hello", 0, 100), "")
    asked = {send.message.to for send in state.answers(1000) if isinstance(send.message, DirectRecord)}
    assert 100 < len(asked) <= 1000
    assert len(state._answers) <= 1000


def test_a_requester_that_asks_again_is_answered_from_there() -> None:
    state = producer()
    publish(state, 10)
    for sequence in (0, 6):
        state.message(Fetch(ME, ASKER, "hello", sequence, 4), ASKER)
    assert [send.message.sequence for send in state.answers(100) if isinstance(send.message, DirectRecord)] == [
        6,
        7,
        8,
        9,
    ]


def test_what_is_acknowledged_while_it_is_answered_is_left_out() -> None:
    state = producer()
    publish(state, 10)
    state.message(Fetch(ME, ASKER, "hello", 0, 10), ASKER)
    assert len(state.answers(3)) == 3
    acknowledge(state, 7)
    assert answered(state) == [8, 9]


def test_a_record_is_let_go_of_once_enough_different_stores_have_it() -> None:
    state = producer(acks_min=2)
    publish(state, 10)
    acknowledge(state, 9, STORE)
    acknowledge(state, 9, STORE)
    assert state.acked == 0
    acknowledge(state, 4, OTHER_STORE)
    assert state.acked == 5
    acknowledge(state, 2, OTHER_STORE)  # an old one, that came late
    assert state.acked == 5
    acknowledge(state, 9, OTHER_STORE)
    assert state.acked == 10


def test_a_store_that_has_gone_does_not_count_any_more() -> None:
    """A C store has another address each time it is started: it must not count as two."""
    state = producer(acks_min=2)
    publish(state, 10)
    acknowledge(state, 9, STORE)
    state.store_gone(STORE)
    acknowledge(state, 9, OTHER_STORE)
    assert state.acked == 0
    acknowledge(state, 9, "EE" * 16)
    assert state.acked == 10


def test_lives_of_one_store_count_once() -> None:
    """One that was started again has other addresses, and for a while it seems to be there twice."""
    state = producer(acks_min=2)
    publish(state, 10)
    first, second = ("5" * 16 + life * 16 for life in "AB")
    acknowledge(state, 5, first)
    acknowledge(state, 7, second)
    assert state.acked == 0
    state.store_gone(first)
    assert state.acked == 0
    acknowledge(state, 6, OTHER_STORE)
    assert state.acked == 7
    acknowledge(state, 9, OTHER_STORE)
    assert state.acked == 8


def listens(state: ProducerState, store: str, *, begins: bool = True) -> None:
    """As stores do, those of C, too: to what they will fetch."""
    state.subscription(Subscription(begins, topic_prefix(DirectRecord, store, exact=False)))


def test_who_acknowledges_on_the_port_of_a_store_that_has_ended_is_not_taken_for_that_one() -> None:
    """A socket connects again by itself, to whoever listens there by then: here to the second life of another store,
    which nobody has told of yet, and whose first life counts already."""
    state = producer(acks_min=2)
    publish(state, 10)
    for store in (STORE, OTHER_STORE):
        listens(state, store)
    check_not_counted_once_ended(state)


def check_not_counted_once_ended(state: ProducerState) -> None:
    """STORE ends behind its fifth record of ten, and somebody acknowledges all on its port."""
    acknowledge(state, 4, STORE)
    acknowledge(state, 9, OTHER_STORE)
    assert state.acked == 5
    listens(state, STORE, begins=False)
    acknowledge(state, 9, STORE)
    assert state.acked == 5


def test_a_store_whose_connection_was_lost_counts_again_when_it_is_back() -> None:
    """A C store acknowledges nothing a second time."""
    state = producer(acks_min=2)
    publish(state, 10)
    for begins in (True, True, False):  # the new connection may be heard of before the end of the old one
        listens(state, STORE, begins=begins)
    listens(state, OTHER_STORE)
    check_not_counted_once_ended(state)
    listens(state, STORE)
    assert state.acked == 10


def test_of_those_that_have_left_so_many_are_remembered() -> None:
    attendance = Attendance()
    names = [f"{number:032X}" for number in range(10_002)]
    for begins in (True, False):
        for name in names:
            attendance.heard(Subscription(begins, topic_prefix(DirectRecord, name, exact=False)))
    assert [attendance.has_left(name) for name in (*names[:3], names[-1])] == [False, False, True, True]


@pytest.mark.parametrize(("resumed", "acked"), [(True, 10), (False, 0)])
def test_who_goes_on_as_before_is_acknowledged_by_stores_that_have_more_already(resumed: bool, acked: int) -> None:
    """They have what he is about to publish again. Of a new one, nobody can have it."""
    state = producer(resumed=resumed)
    publish(state, 10)
    acknowledge(state, 99)
    assert state.acked == acked
    publish(state, 10)
    assert state.acked == acked
    acknowledge(state, 99)
    assert state.acked == 2 * acked


def test_who_goes_on_as_before_takes_no_acknowledgement_of_more_than_was_ever_published() -> None:
    """It is of records that somebody else has published under those sequences: his own, stores would pass over."""
    state = producer(first=10, resumed=True, published=20)
    publish(state, 5)
    acknowledge(state, 20)
    assert (state.acked, state.ahead) == (10, 21)
    acknowledge(state, 19, OTHER_STORE)
    assert state.acked == 15
    fresh = producer(first=10, resumed=True, published=10)
    publish(fresh, 5)
    acknowledge(fresh, 999)
    assert (fresh.acked, fresh.ahead) == (10, 1000)


def test_who_goes_on_as_before_is_acknowledged_what_it_publishes_behind_that() -> None:
    state = producer(first=10, resumed=True, published=12)
    publish(state, 5)
    acknowledge(state, 14)
    assert (state.acked, state.ahead) == (15, None)


@pytest.mark.parametrize(
    "wrong", [StoreAck(ME, "hello", 10), StoreAck(ME, "hello2", 3), StoreAck(OTHER_STORE, "hello", 3)]
)
def test_an_acknowledgement_of_something_else_changes_nothing(wrong: StoreAck) -> None:
    state = producer()
    publish(state, 10)
    state.message(wrong, STORE)
    assert state.acked == 0


def test_a_full_producer_takes_nothing_and_loses_nothing() -> None:
    state = producer(records_max=10)
    publish(state, 8)
    with pytest.raises(ProducerFull, match="8 records of 'hello' are unacknowledged, of 10"):
        state.publish([b"x"] * 3, now_s=0.0)
    assert (state.next, state.room) == (8, 2)
    acknowledge(state, 3)
    publish(state, 6)
    assert fetched(state, 4, 100) == [(n, content(n)) for n in range(4, 14)]


def test_heads_are_sent_each_interval_after_the_first_record() -> None:
    """As the C programs' own scenario has it."""
    state = producer(head_interval_s=1.0)
    assert state.tick(100.0) == []
    state.publish([b"a", b"b"], now_s=100.0)
    assert state.tick(100.9) == []
    assert state.tick(101.0) == [Send(Head("hello", ME, "hello", 1))]
    assert state.tick(101.5) == []
    assert state.tick(102.1) == [Send(Head("hello", ME, "hello", 1))]


def test_who_asks_for_heads_is_told_at_once() -> None:
    """The C producer does not listen to that, though its specification says so."""
    state = producer()
    assert state.message(GetHeads("hello", ASKER), ASKER) == []
    publish(state, 3)
    assert state.message(GetHeads("hello", ASKER), ASKER) == [Send(DirectHead(ASKER, ME, "hello", 2))]
    assert state.message(GetHeads("hello2", ASKER), ASKER) == []


def test_records_that_wait_go_together_unless_somebody_takes_each_alone() -> None:
    state = producer()
    publish(state, 5)
    five = [content(n) for n in range(5)]
    alone = [LiveRecord("hello", ME, "hello", n, content(n)) for n in range(5)]
    assert list(state.live(0, five)) == [LiveBatch("hello", ME, "hello", 0, five)]
    assert list(state.live(0, five[:1])) == alone[:1]
    state.subscription(Subscription(True, b"Mhello"))
    assert list(state.live(0, five)) == alone
    state.subscription(Subscription(False, b"Mhello"))
    assert state.sends_batches
    assert list(producer(batches=False).live(0, five)) == alone


def test_an_answer_comes_in_batches_to_whoever_listens_to_them() -> None:
    state = producer()
    publish(state, 10)
    state.subscription(Subscription(True, topic_prefix(DirectBatch, ASKER, exact=False)))
    for asker in (ASKER, OTHER_STORE):
        state.message(Fetch(ME, asker, "hello", 2, 3), asker)
    assert state.answers(100) == [
        Send(DirectBatch(ASKER, ME, "hello", 2, [content(n) for n in (2, 3, 4)])),
        *(Send(DirectRecord(OTHER_STORE, ME, "hello", n, content(n))) for n in (2, 3, 4)),
    ]


def test_who_asks_for_what_follows_gets_the_rest_before_it() -> None:
    state = producer()
    publish(state, 20)
    state.message(Fetch(ME, ASKER, "hello", 0, 10), ASKER)
    assert [send.message.sequence for send in state.answers(6) if isinstance(send.message, DirectRecord)] == [*range(6)]
    state.message(Fetch(ME, ASKER, "hello", 10, 5), ASKER)
    assert answered(state) == [*range(6, 15)]
