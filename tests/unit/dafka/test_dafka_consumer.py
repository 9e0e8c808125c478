"""A Dafka consumer: where it begins, what it fetches and hands out; none of the C consumer's stalls."""

from __future__ import annotations

import pytest

from scribengin.dafka.state import (
    EARLIEST,
    LATEST,
    ConsumerState,
    DafkaPartition,
    Deliver,
    HaltPartition,
    IntakeLimits,
    Send,
    StartOf,
)
from scribengin.dafka.wire import (
    ConsumerHello,
    DirectHead,
    DirectRecord,
    Fetch,
    GetHeads,
    Head,
    LiveRecord,
    StoreHello,
    Subscription,
    Truncated,
)

ME, PRODUCER, STORE = "AA" * 16, "BB" * 16, "CC" * 16
HELLO = DafkaPartition("hello", PRODUCER)


def consumer(start: StartOf = EARLIEST, topic: str = "hello", **options: object) -> ConsumerState:
    said = {"limits": IntakeLimits(gone_tries=1), **options}
    state = ConsumerState(ME, start=start, **said)  # type: ignore[arg-type]
    if topic:
        state.subscribe(topic)
    return state


def live(sequence: int, subject: str = "hello") -> LiveRecord:
    return LiveRecord(subject, PRODUCER, subject, sequence, b"%d" % sequence)


def direct(sequence: int) -> DirectRecord:
    return DirectRecord(ME, PRODUCER, "hello", sequence, b"%d" % sequence)


def delivered(first: int, end: int) -> Deliver:
    return Deliver(HELLO, first, [b"%d" % n for n in range(first, end)])


def fetch(first: int, records: int) -> Send:
    return Send(Fetch(PRODUCER, ME, "hello", first, records))


def test_who_begins_at_the_latest_begins_with_the_first_record_it_sees() -> None:
    state = consumer(LATEST)
    assert state.messages([live(7), live(8)], 0.0) == [delivered(7, 9)]
    assert state.positions == {HELLO: 9}


def test_who_begins_at_the_latest_takes_a_head_as_read() -> None:
    state = consumer(LATEST)
    assert state.messages([Head("hello", PRODUCER, "hello", 7)], 0.0) == []
    assert state.messages([live(8)], 0.0) == [delivered(8, 9)]


def test_who_begins_at_the_earliest_fetches_from_the_first() -> None:
    state = consumer()
    assert state.messages([live(3)], 0.0) == [fetch(0, 3)]
    assert state.messages([direct(0), direct(1), direct(2)], 0.0) == [delivered(0, 4)]


def test_who_has_stored_its_position_goes_on_there() -> None:
    state = consumer(StartOf("latest", {HELLO: 5}))
    assert state.messages([Head("hello", PRODUCER, "hello", 7)], 0.0) == [fetch(5, 3)]
    assert state.messages([direct(5), direct(6), live(8)], 0.0) == [delivered(5, 7)]
    other = DafkaPartition("hello", "DD" * 16)
    assert state.messages([LiveRecord("hello", other.address, "hello", 9, b"")], 0.0) == [Deliver(other, 9, [b""])]


def test_a_gap_is_fetched_and_what_comes_twice_is_handed_out_once() -> None:
    state = consumer(LATEST)
    assert state.messages([live(0), live(2)], 0.0) == [delivered(0, 1), fetch(1, 1)]
    assert state.messages([direct(1), direct(1), direct(2), live(0)], 0.0) == [delivered(1, 3)]
    assert state.tick(5.0) == []


def test_a_fetch_is_not_sent_again_for_each_message_that_comes_meanwhile() -> None:
    """ "Repeating fetch messages deny a subscriber from ever catching up", as the C programs had it once."""
    state = consumer(limits=IntakeLimits(early_records_max=10))
    sent = [one for n in range(1, 1000) for one in state.messages([live(n)], 0.0)]
    assert sent == [fetch(0, 1)]


def test_a_partition_of_250_000_records_of_a_dead_producer_comes_whole() -> None:
    """The C consumer stops after 100,001: nothing tells it to fetch once more."""
    state = consumer()
    done = state.messages([DirectHead(ME, PRODUCER, "hello", 249_999)], 0.0)
    got = 0
    while done:
        asked = [one.message for one in done if isinstance(one, Send)]
        assert len(asked) == 1
        assert isinstance(asked[0], Fetch)
        first, records = asked[0].sequence, asked[0].records
        # A C store sends one more than was asked for.
        answer = [direct(n) for n in range(first, min(first + records + 1, 250_000))]
        done = state.messages(answer, 0.0)
        got += sum(len(one.contents) for one in done if isinstance(one, Deliver))
        done = [one for one in done if isinstance(one, Send)]
    assert got == 250_000


def test_an_answer_that_never_comes_is_asked_for_again() -> None:
    state = consumer()
    assert state.messages([Head("hello", PRODUCER, "hello", 4)], 0.0) == [fetch(0, 5)]
    assert state.tick(0.5) == []
    assert state.tick(1.0) == [fetch(0, 5)]


def test_heads_are_asked_for_again_and_again() -> None:
    """Nobody else tells of the last record of a producer that has died."""
    state = consumer(heads_interval_s=10.0)
    state.tick(0.0)
    assert state.tick(9.9) == []
    assert state.tick(10.0) == [Send(GetHeads("hello", ME))]
    assert state.tick(11.0) == []


def test_records_of_a_topic_that_only_begins_alike_are_left_out_unless_they_are_wanted() -> None:
    """A subscription of ZeroMQ is a prefix, and the C consumer does not look at the subject."""
    assert consumer().messages([live(0, "hello2"), live(0)], 0.0) == [delivered(0, 1)]
    both = consumer(exact=False).messages([live(0, "hello2"), live(0)], 0.0)
    assert [one.partition.subject for one in both if isinstance(one, Deliver)] == ["hello2", "hello"]
    assert consumer().subscribe("t")[0] == [b"Mt\0", b"Nt\0", b"Ht\0"]
    assert consumer(exact=False).subscribe("t")[0] == [b"Mt", b"Nt", b"Ht"]
    assert ConsumerState(ME, batches=False).subscribe("t")[0] == [b"Mt\0", b"Ht\0"]


@pytest.mark.parametrize(
    ("start", "subjects"), [(EARLIEST, ("hello",)), (LATEST, ()), (StartOf("latest", {HELLO: 1}), ("hello",))]
)
def test_a_store_is_answered_with_the_topics_that_heads_are_wanted_of(start: StartOf, subjects: tuple[str]) -> None:
    state = consumer(start)
    hello = [Send(ConsumerHello(STORE, ME, subjects))]
    assert state.messages([StoreHello(ME, STORE)], 0.0) == hello
    assert state.subscription(Subscription(True, b"W" + STORE.encode())) == hello
    assert state.subscription(Subscription(False, b"W" + STORE.encode())) == []


def test_a_consumer_without_topics_answers_with_none() -> None:
    """As the C programs' own scenario has it; their specification forbids it."""
    state = consumer(topic="")
    assert state.messages([StoreHello(ME, STORE)], 0.0) == [Send(ConsumerHello(STORE, ME, ()))]


def test_a_producer_that_listens_is_asked_for_its_head() -> None:
    state = consumer()
    assert state.subscription(Subscription(True, b"Ghello\0")) == [Send(GetHeads("hello", ME))]
    assert state.subscription(Subscription(True, b"Gother\0")) == []
    assert consumer(LATEST).subscription(Subscription(True, b"Ghello\0")) == []


def test_the_earliest_is_the_first_that_is_kept() -> None:
    state = consumer()
    state.messages([live(14)], 0.0)
    assert state.messages([Truncated(ME, PRODUCER, "hello", 12)], 0.0) == []
    state.tick(1.0)
    assert state.tick(1.0) == [fetch(12, 2)]
    assert state.messages([direct(12), direct(13)], 1.0) == [delivered(12, 15)]


def test_who_has_begun_is_told_once_that_nobody_keeps_what_comes_next() -> None:
    state = consumer(StartOf("earliest", {HELLO: 5}))
    state.messages([live(14), Truncated(ME, PRODUCER, "hello", 12)], 0.0)
    assert state.tick(1.0) == [HaltPartition(HELLO, 5, 12)]
    assert state.messages([live(15)], 2.0) == []
    assert state.tick(10.5)[1:] == []


def test_who_wants_to_goes_on_with_what_is_kept() -> None:
    state = consumer(StartOf("earliest", {HELLO: 5}), skip_gone=True)
    state.messages([live(14), Truncated(ME, PRODUCER, "hello", 14)], 0.0)
    assert state.tick(1.0) == [delivered(14, 15)]


def test_partitions_without_number_are_refused_and_counted() -> None:
    state = consumer(partitions_max=10)
    for n in range(100):
        state.messages([LiveRecord("hello", f"{n:032X}", "hello", 0, b"")], 0.0)
    assert len(state.positions) == 10
    assert state.refused_partitions == 90
