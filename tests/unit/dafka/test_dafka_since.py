"""Where partitions begin for who reads from a time on: who is asked, whose answer counts, and when nobody can tell."""

from __future__ import annotations

import pytest

from scribengin.dafka import DafkaConsumer
from scribengin.dafka.consumer import _as_error
from scribengin.dafka.state import (
    DafkaPartition,
    Deliver,
    FindStored,
    GiveUpPartition,
    ProducerState,
    Send,
    StartOf,
    StoredRange,
    StoreState,
)
from scribengin.dafka.state.consumer import ConsumerState
from scribengin.dafka.state.since import Begun, SinceLimits, SinceState
from scribengin.dafka.wire import (
    ConsumerHello,
    DirectBatch,
    DirectHead,
    Fetch,
    FindTime,
    Head,
    KnownOfTime,
    LiveRecord,
    StoreAck,
    Subscription,
    TimeFound,
    Truncated,
    topic_prefix,
)
from scribengin.errors import ConfigInvalid

ME, PRODUCER, STORE, OTHER = "AA" * 16, "BB" * 16, "CC" * 16, "DD" * 16
HELLO = DafkaPartition("hello", PRODUCER)
SINCE_MS = 5_000
NOTHING, BEGINS, WHERE = KnownOfTime


def asks(to: str) -> Send:
    return Send(FindTime(to, ME, PRODUCER, "hello", SINCE_MS))


def tells(address: str, known: KnownOfTime, sequence: int = 0, at_ms: int = SINCE_MS) -> TimeFound:
    return TimeFound(ME, address, PRODUCER, "hello", at_ms, known, sequence)


def since(*stores: str, producers: tuple[str, ...] = (), limits: SinceLimits | None = None) -> SinceState:
    state = SinceState(ME, SINCE_MS, limits)
    for peer in (*stores, *producers):
        state.heard(Subscription(True, topic_prefix(FindTime, peer, exact=False)))
    for store in stores:
        state.heard(Subscription(True, topic_prefix(ConsumerHello, store, exact=False)))
    return state


def test_stores_and_the_producer_are_asked_and_the_earliest_that_is_known_counts() -> None:
    """A store whose clock is behind says a record that is too late. So nobody's word takes another's records away."""
    state = since(STORE, OTHER, producers=(PRODUCER, "EE" * 16))
    assert state.met(HELLO, 100, 0.0) == [asks(PRODUCER), asks(STORE), asks(OTHER)]
    assert state.told(tells(STORE, WHERE, 0), 0.1) == []
    assert state.told(tells(PRODUCER, NOTHING), 0.1) == []
    assert state.told(tells(OTHER, WHERE, 42), 0.2) == [Begun(HELLO, 0, 100)]
    assert state.tick(60.0) == []


def test_a_program_of_c_is_asked_nothing_and_where_there_are_only_those_it_is_given_up() -> None:
    state = SinceState(ME, SINCE_MS)
    state.heard(Subscription(True, topic_prefix(ConsumerHello, STORE, exact=False)))  # as each store subscribes
    assert state.met(HELLO, 100, 0.0) == []
    assert state.tick(9.9) == []
    assert state.tick(10.0) == [GiveUpPartition(HELLO, SINCE_MS)]
    assert state.met(HELLO, 101, 11.0) == []
    assert state.tick(60.0) == []


def test_who_comes_late_or_does_not_answer_is_asked_again() -> None:
    state = since()
    assert state.met(HELLO, 100, 0.0) == []
    state.heard(Subscription(True, topic_prefix(FindTime, STORE)))
    state.heard(Subscription(True, topic_prefix(ConsumerHello, STORE)))
    assert state.tick(0.1) == [asks(STORE)]
    assert state.tick(0.9) == []
    assert state.tick(1.1) == [asks(STORE)]
    assert state.told(tells(STORE, NOTHING), 1.2) == []  # it may have got some by then
    assert state.tick(2.2) == [asks(STORE)]
    assert state.told(tells(STORE, WHERE, 7), 2.3) == [Begun(HELLO, 7, 100)]


def test_who_has_lost_what_was_before_counts_where_nobody_says_an_earlier_record() -> None:
    state = since(STORE, OTHER)
    state.met(HELLO, 100, 0.0)
    assert state.told(tells(STORE, BEGINS, 80), 0.1) == []
    assert state.told(tells(OTHER, WHERE, 60), 0.1) == [Begun(HELLO, 60, 100)]
    state = since(STORE, OTHER)
    state.met(HELLO, 100, 0.0)
    assert state.told(tells(STORE, WHERE, 90), 0.1) == []  # its clock is behind, or the other one has copied
    assert state.told(tells(OTHER, BEGINS, 80), 0.1) == [Begun(HELLO, 80, 100)]
    state = since(STORE)
    state.met(HELLO, 100, 0.0)
    assert state.told(tells(STORE, BEGINS, 80), 0.1) == []  # another one may just be found
    assert state.tick(1.0) == [Begun(HELLO, 80, 100)]


def test_one_that_never_answers_holds_nobody_up_for_long() -> None:
    state = since(STORE, OTHER)
    state.met(HELLO, 100, 0.0)
    assert state.told(tells(STORE, WHERE, 60), 0.1) == []
    assert Begun(HELLO, 60, 100) in state.tick(10.0)


def test_a_store_with_much_to_look_up_is_waited_for_as_long_as_it_answers() -> None:
    state = since(STORE)
    second = DafkaPartition("hello", OTHER)
    state.met(HELLO, 100, 0.0)
    state.met(second, 100, 0.0)
    assert Begun(HELLO, 3, 100) in state.told(tells(STORE, WHERE, 3), 9.0)
    assert not any(isinstance(one, GiveUpPartition) for one in state.tick(18.9))
    assert GiveUpPartition(second, SINCE_MS, (STORE,)) in state.tick(19.0)


def test_one_that_never_answers_holds_all_up_together_and_not_one_after_the_other() -> None:
    state = since(STORE, OTHER)
    partitions = [DafkaPartition("hello", f"{n:032X}") for n in range(3)]
    for partition in partitions:
        state.met(partition, 100, 0.0)
        assert state.told(tells(STORE, WHERE, 60)._replace(producer=partition.address), 0.1) == []
    assert not any(isinstance(one, Begun) for one in state.tick(9.9))
    assert [one for one in state.tick(10.0) if isinstance(one, Begun)] == [Begun(one, 60, 100) for one in partitions]


def test_while_the_reader_rests_nobody_is_late() -> None:
    state = since(STORE, OTHER)
    state.met(HELLO, 100, 0.0)
    state.told(tells(STORE, NOTHING), 0.5)
    for at_s in (1.0, 2.0, 11.0):
        state.rest(at_s)
    assert not any(isinstance(one, GiveUpPartition) for one in state.tick(12.0))
    assert not any(isinstance(one, GiveUpPartition) for one in state.tick(20.9))
    assert GiveUpPartition(HELLO, SINCE_MS, (OTHER,), (STORE,)) in state.tick(21.0)
    state = since(STORE, OTHER)
    state.met(HELLO, 100, 0.0)
    state.rest(1.0)
    assert state.told(tells(OTHER, WHERE, 60), 12.0) == []
    assert state.told(tells(STORE, WHERE, 70), 12.1) == [Begun(HELLO, 60, 100)]


def test_who_has_left_is_not_waited_for_and_believed_when_he_answers() -> None:
    state = since(STORE, OTHER)
    state.met(HELLO, 100, 0.0)
    state.peer_gone(OTHER)
    assert state.told(tells(STORE, WHERE, 60), 0.1) == [Begun(HELLO, 60, 100)]
    second = DafkaPartition("hello", "EE" * 16)
    state.met(second, 100, 0.2)
    assert state.told(tells(OTHER, WHERE, 50)._replace(producer=second.address), 0.3) == []
    found = state.told(tells(STORE, WHERE, 60)._replace(producer=second.address), 0.4)
    assert found == [Begun(second, 50, 100)]


def test_a_peer_that_has_gone_is_not_waited_for() -> None:
    state = since(STORE, OTHER)
    state.met(HELLO, 100, 0.0)
    state.told(tells(STORE, WHERE, 60), 0.1)
    state.heard(Subscription(False, topic_prefix(FindTime, OTHER, exact=False)))
    assert state.tick(0.2) == [Begun(HELLO, 60, 100)]


@pytest.mark.parametrize(
    "answer",
    [
        tells(OTHER, WHERE, 5),
        tells(STORE, WHERE, 5, at_ms=SINCE_MS + 1),
        tells(STORE, WHERE, (1 << 62) + 1),
        tells(STORE, WHERE, 5)._replace(producer=OTHER),
    ],
    ids=["of one not asked", "of another time", "of no sequence", "of another producer"],
)
def test_what_was_not_asked_for_is_not_believed(answer: TimeFound) -> None:
    state = since(STORE)
    state.met(HELLO, 100, 0.0)
    assert state.told(answer, 0.1) == []
    assert state.tick(0.2) == []


def consumer(**options: object) -> ConsumerState:
    state = ConsumerState(ME, start=StartOf("latest", since_ms=SINCE_MS), **options)  # type: ignore[arg-type]
    state.subscribe("hello")
    for kind in (FindTime, ConsumerHello):
        state.subscription(Subscription(True, topic_prefix(kind, STORE, exact=False)))
    return state


def live(sequence: int) -> LiveRecord:
    return LiveRecord("hello", PRODUCER, "hello", sequence, b"%d" % sequence)


def test_a_consumer_fetches_from_there_on_what_was_published_while_it_asked() -> None:
    state = consumer()
    assert state.messages([DirectHead(ME, PRODUCER, "hello", 6)], 0.0) == [asks(STORE)]
    assert state.messages([live(7), live(8)], 0.0) == []
    assert state.positions == {}
    assert state.messages([tells(STORE, WHERE, 5)], 0.1) == [Send(Fetch(PRODUCER, ME, "hello", 5, 4))]
    assert state.positions == {HELLO: 5}


def test_a_producer_that_begins_now_is_read_from_its_first_record_whoever_it_is() -> None:
    assert consumer().messages([live(0)], 0.0) == [Deliver(HELLO, 0, [b"0"])]


def test_what_one_does_not_keep_is_waited_for_of_him_who_told_of_it() -> None:
    """He may be slow. Where nobody answers ten times, it begins with what is kept."""
    state = consumer()
    fetch = Send(Fetch(PRODUCER, ME, "hello", 5, 95))
    gone = Truncated(ME, PRODUCER, "hello", 80)
    state.messages([DirectHead(ME, PRODUCER, "hello", 99)], 0.0)
    assert state.messages([tells(STORE, WHERE, 5)], 0.1) == [fetch]
    for at_s in range(2, 11):
        assert fetch in state.messages([gone], float(at_s))
    kept = [b"%d" % n for n in range(5, 100)]
    assert state.messages([DirectBatch(ME, PRODUCER, "hello", 5, kept)], 10.5) == [Deliver(HELLO, 5, kept)]
    state = consumer()
    state.messages([DirectHead(ME, PRODUCER, "hello", 99), tells(STORE, WHERE, 5)], 0.1)
    for at_s in range(2, 12):
        state.messages([gone], float(at_s))
    assert state.messages([], 13.0) == [Send(Fetch(PRODUCER, ME, "hello", 80, 20))]


def test_who_was_busy_for_long_has_waited_for_nobody() -> None:
    state = consumer()
    state.messages([DirectHead(ME, PRODUCER, "hello", 6)], 0.0)
    state.rest(0.1)
    state.tick(30.0)
    assert state.messages([tells(STORE, WHERE, 5)], 30.1) == [Send(Fetch(PRODUCER, ME, "hello", 5, 2))]


def test_where_all_is_older_a_consumer_goes_on_with_what_comes() -> None:
    state = consumer()
    state.messages([Head("hello", PRODUCER, "hello", 6)], 0.0)
    assert state.messages([tells(STORE, WHERE, 7)], 0.1) == []
    assert state.messages([live(7)], 0.2) == [Deliver(HELLO, 7, [b"7"])]


def test_a_partition_that_was_read_before_goes_on_where_it_stands() -> None:
    state = ConsumerState(ME, start=StartOf("latest", {HELLO: 3}, SINCE_MS))
    state.subscribe("hello")
    assert state.messages([Head("hello", PRODUCER, "hello", 3)], 0.0) == [Send(Fetch(PRODUCER, ME, "hello", 3, 1))]


def test_partitions_that_wait_for_their_beginning_count_as_others_do() -> None:
    state = consumer(partitions_max=2)
    heads = [DirectHead(ME, f"{n:032X}", "hello", 5) for n in range(5)]
    assert len(state.messages(heads + heads, 0.0)) == 2
    assert state.refused_partitions == 6


def test_only_who_begins_at_a_time_listens_to_answers() -> None:
    answers = topic_prefix(TimeFound, ME, exact=False)
    assert answers in consumer().own_prefixes()
    assert answers not in ConsumerState(ME).own_prefixes()


def publishing(**options: int) -> ProducerState:
    """At 4,000, 5,000 and 6,000 ms three records each."""
    state = ProducerState(HELLO, **options)  # type: ignore[arg-type]
    for at_ms in (4_000, 4_000, 4_000, 5_000, 5_000, 5_000, 6_000, 6_000, 6_000):
        state.publish([b"x"], 0.0, at_ms)
    return state


@pytest.mark.parametrize(
    ("at_ms", "sequence"), [(0, 0), (4_000, 0), (4_001, 3), (5_000, 3), (5_001, 6), (6_000, 6), (6_001, 9)]
)
def test_a_producer_tells_when_it_has_published(at_ms: int, sequence: int) -> None:
    asked = FindTime(PRODUCER, ME, PRODUCER, "hello", at_ms)
    assert publishing().message(asked, ME) == [Send(TimeFound(ME, PRODUCER, PRODUCER, "hello", at_ms, WHERE, sequence))]
    assert publishing().message(asked._replace(subject="other"), ME) == []


@pytest.mark.parametrize(
    ("at_ms", "known", "sequence"),
    [(4_000, NOTHING, 0), (4_001, WHERE, 3), (5_000, WHERE, 3), (6_000, WHERE, 6), (7_000, WHERE, 9)],
)
def test_of_what_it_has_let_go_of_a_producer_knows_nothing(at_ms: int, known: KnownOfTime, sequence: int) -> None:
    state = publishing()
    state.message(StoreAck(PRODUCER, "hello", 4), STORE)
    found = Send(TimeFound(ME, PRODUCER, PRODUCER, "hello", at_ms, known, sequence))
    assert state.message(FindTime(PRODUCER, ME, PRODUCER, "hello", at_ms), ME) == [found]
    state.message(StoreAck(PRODUCER, "hello", 8), STORE)
    asked = FindTime(PRODUCER, ME, PRODUCER, "hello", 7_000)
    assert state.message(asked, ME) == [Send(TimeFound(ME, PRODUCER, PRODUCER, "hello", 7_000, WHERE, 9))]


def test_a_producer_that_goes_on_as_another_knows_nothing_of_what_that_one_has_published() -> None:
    state = publishing(first=20, resumed=True)
    found = [state.message(FindTime(PRODUCER, ME, PRODUCER, "hello", at_ms), ME)[0].message for at_ms in (4_000, 4_001)]
    assert [(one.known, one.sequence) for one in found] == [(NOTHING, 0), (WHERE, 23)]  # type: ignore[union-attr]


def test_a_store_looks_for_what_it_has_and_knows_nothing_of_the_rest() -> None:
    state = StoreState("EE" * 16, STORE, {HELLO: StoredRange(2, 10)})
    assert topic_prefix(FindTime, STORE, exact=False) in state.reader_prefixes()
    asked = FindTime(STORE, ME, PRODUCER, "hello", SINCE_MS)
    assert state.asked(asked) == [FindStored(ME, HELLO, SINCE_MS)]
    nothing = Send(TimeFound(ME, STORE, OTHER, "hello", SINCE_MS, NOTHING, 0))
    assert state.asked(asked._replace(producer=OTHER)) == [nothing]
    assert state.asked(asked._replace(to=OTHER)) == []


@pytest.mark.parametrize("since_ms", [1.5, 1e12, float("nan"), "5", True, -1, 1 << 60])
def test_what_is_no_time_is_refused_before_anything_is_opened(since_ms: int) -> None:
    with pytest.raises(ConfigInvalid, match="since_ms: "):
        DafkaConsumer(["hello"], since_ms=since_ms)


def test_who_was_asked_is_named_where_nobody_can_tell() -> None:
    said = str(_as_error(GiveUpPartition(HELLO, SINCE_MS, (OTHER,), tuple(f"{n}" * 32 for n in range(1, 6)))))
    assert f"asked and not answered: {OTHER}; asked and knew nothing: {'1' * 32}, {'2' * 32}, " in said
    assert said.endswith(f"{'3' * 32} and 2 more (a store that cannot read its log says so)")
    assert "asked" not in str(_as_error(GiveUpPartition(HELLO, SINCE_MS)))
