"""A follower: every partition at its reader's pace, within limits, whatever passes by."""

from __future__ import annotations

import pytest

from scribengin.connectors.dafka.source import splits_of
from scribengin.dafka.state import DafkaPartition, FollowerState, HoldLimits, IntakeLimits, Send
from scribengin.dafka.wire import (
    ConsumerHello,
    DirectHead,
    DirectRecord,
    Fetch,
    FrameDecoder,
    GetHeads,
    Head,
    HeadsTold,
    LiveBatch,
    LiveRecord,
    RunDecoder,
    StoreHello,
    Subscription,
    Truncated,
    encode,
    topic_prefix,
)
from scribengin.dafka.wire.batches import GROUP_BYTES
from scribengin.errors import RecordsGone

ME, STORE, PRODUCER = "AA", "CC", "BB"
PARTITION = DafkaPartition("hello", PRODUCER)


ONE_TRY = IntakeLimits(gone_tries=1)


def follower(**limits: int) -> FollowerState:
    return FollowerState(ME, "hello", limits=HoldLimits(**limits), intake_limits=ONE_TRY)


def live(first: int, end: int, content: bytes = b"0123456789") -> list[LiveRecord]:
    return [LiveRecord("hello", PRODUCER, "hello", n, content) for n in range(first, end)]


def fetched(first: int, end: int) -> list[DirectRecord]:
    return [DirectRecord(ME, PRODUCER, "hello", n, b"0123456789") for n in range(first, end)]


def fetch(first: int, count: int) -> Send:
    return Send(Fetch(PRODUCER, ME, "hello", first, count))


def test_what_nobody_reads_is_known_and_not_held() -> None:
    state = follower()
    assert state.messages([*live(0, 5), Head("hello", "DD", "hello", 8)], 0.0) == []
    assert dict(state.ends) == {PARTITION: 5, DafkaPartition("hello", "DD"): 9}
    assert state.follow(PARTITION, 2, 0.0) == [fetch(2, 3)]


def test_who_begins_where_nothing_is_kept_stands_behind_it_and_others_are_told() -> None:
    state = follower()
    state.messages([DirectHead(ME, PRODUCER, "hello", 9)], 0.0)
    assert state.follow(PARTITION, 0, 0.0) == [fetch(0, 10)]
    state.messages([Truncated(ME, PRODUCER, "hello", 10)], 0.5)
    state.tick(1.0)
    assert state.held(PARTITION, 10, 100) == (10, [])
    assert state.follow(PARTITION, 0, 1.1) == []  # its reader has not moved: nothing is asked for again
    state.messages(live(10, 12), 1.2)
    assert state.held(PARTITION, 10, 100) == (10, [b"0123456789"] * 2)
    assert state.follow(PARTITION, 4, 1.3) == [fetch(4, 8)]  # one who has read until there has a gap
    state.messages([Truncated(ME, PRODUCER, "hello", 10)], 1.4)
    state.tick(2.4)
    with pytest.raises(RecordsGone, match="from 4 to 9"):
        state.held(PARTITION, 10, 100)


def test_only_what_everybody_hears_is_a_word_of_the_producer() -> None:
    """What a store says of it, it says of those that are gone, too."""
    state = follower()
    state.messages([DirectHead(ME, PRODUCER, "hello", 8)], 1.0)
    assert (state.heard_s(PARTITION), state.ends[PARTITION]) == (None, 9)
    state.messages([Head("hello", PRODUCER, "hello", 8)], 2.0)
    assert state.heard_s(PARTITION) == 2.0
    state.messages([*fetched(0, 5), DirectHead(ME, PRODUCER, "hello", 9)], 3.0)
    assert state.heard_s(PARTITION) == 2.0
    state.messages(live(9, 10), 4.0)
    assert state.heard_s(PARTITION) == 4.0
    state.messages([Head("hello2", PRODUCER, "hello2", 1)], 5.0)
    assert state.heard_s(DafkaPartition("hello2", PRODUCER)) is None


def test_who_is_slow_is_held_so_much_and_fetches_the_rest_when_there_is_room() -> None:
    state = follower(bytes_max=100)
    state.follow(PARTITION, 0, 0.0)
    assert state.messages(live(0, 1000), 0.0) == []
    assert len(state.held(PARTITION, 10**6, 10**6).contents) == 10
    assert state.follow(PARTITION, 2, 0.0) == []  # more than half is there still
    [asked] = state.follow(PARTITION, 9, 0.0)
    assert isinstance(asked.message, Fetch)
    assert (asked.message.sequence, asked.message.records) == (10, 5)
    assert state.messages(fetched(10, 15), 0.1) == []
    held = state.held(PARTITION, 10**6, 10**6)
    assert (held.first, len(held.contents)) == (9, 6)


def test_a_large_record_is_held_though_it_is_larger_than_the_limit() -> None:
    state = follower(bytes_max=10)
    state.follow(PARTITION, 0, 0.0)
    state.messages(live(0, 3, b"x" * 1000), 0.0)
    assert [len(one) for one in state.held(PARTITION, 5, 1).contents] == [1000]
    assert state.follow(PARTITION, 1, 0.0) == [fetch(1, 1)]


def test_plain_records_are_held_up_to_the_limit_though_many_are_read_together() -> None:
    state, runs = follower(bytes_max=1_000_000), RunDecoder(FrameDecoder())
    state.follow(PARTITION, 0, 0.0)
    for record in live(0, 500, bytes(10_000)):
        runs.add(encode(record))
    state.messages(runs.taken(), 0.0)
    held_bytes = sum(map(len, state.held(PARTITION, 10**6, 10**9).contents))
    assert 1_000_000 <= held_bytes <= 1_000_000 + GROUP_BYTES


def test_limits_of_a_round_are_kept() -> None:
    state = follower()
    state.follow(PARTITION, 0, 0.0)
    state.messages(live(0, 10), 0.0)
    assert [len(state.held(PARTITION, *limits).contents) for limits in ((3, 100), (9, 45), (9, 1), (99, 100))] == [
        3,
        4,
        1,
        10,
    ]


def test_who_goes_back_begins_anew_there() -> None:
    state = follower()
    state.follow(PARTITION, 0, 0.0)
    state.messages(live(0, 10), 0.0)
    assert state.follow(PARTITION, 10, 0.0) == []
    assert state.follow(PARTITION, 4, 0.0) == [fetch(4, 6)]
    state.messages(fetched(4, 10), 0.1)
    assert state.held(PARTITION, 99, 999).first == 4


def test_what_nobody_keeps_is_raised_unless_reading_begins_or_it_may_be_passed_over() -> None:
    for state, first, gone in (
        (follower(), 0, False),
        (follower(), 3, True),
        (FollowerState(ME, "hello", skip_gone=True, intake_limits=ONE_TRY), 3, False),
    ):
        state.messages([DirectHead(ME, PRODUCER, "hello", 99)], 0.0)
        state.follow(PARTITION, first, 0.0)
        state.messages([Truncated(ME, PRODUCER, "hello", 40)], 0.1)
        asked = [*state.tick(2.0), *state.tick(4.0)]
        if gone:
            with pytest.raises(RecordsGone, match="nobody keeps the records from 3 to 39 any more"):
                state.held(PARTITION, 99, 999)
            continue
        assert asked[-1] == fetch(40, 60)
        state.messages(fetched(40, 42), 4.1)
        held = state.held(PARTITION, 99, 999)
        assert (held.first, len(held.contents)) == (40, 2)


def test_a_gap_behind_what_is_held_waits_until_that_was_read() -> None:
    state = FollowerState(ME, "hello", skip_gone=True, intake_limits=ONE_TRY)
    state.follow(PARTITION, 0, 0.0)
    state.messages([*live(0, 2), Head("hello", PRODUCER, "hello", 99)], 0.0)
    state.messages([Truncated(ME, PRODUCER, "hello", 40)], 0.1)
    state.tick(2.0)
    assert len(state.held(PARTITION, 99, 999).contents) == 2
    state.follow(PARTITION, 2, 3.0)
    state.messages(live(40, 41), 3.1)
    assert state.held(PARTITION, 99, 999).first == 40


def test_stores_are_greeted_and_told_when_they_have_said_all() -> None:
    state = follower()
    assert state.is_told
    hello = Send(ConsumerHello(STORE, ME, ("hello",)))
    assert state.subscription(Subscription(True, topic_prefix(ConsumerHello, STORE, exact=False))) == [hello]
    assert not state.is_told
    assert state.messages([StoreHello(ME, STORE)], 0.0) == [hello]
    state.messages([HeadsTold(ME, STORE)], 0.0)
    assert state.is_told
    state.subscription(Subscription(True, topic_prefix(ConsumerHello, "EE", exact=False)))
    assert not state.is_told
    state.peer_gone("EE")
    assert state.is_told
    assert state.subscription(Subscription(True, topic_prefix(GetHeads, "hello"))) == [Send(GetHeads("hello", ME))]
    assert state.subscription(Subscription(True, topic_prefix(GetHeads, "other"))) == []
    assert state.subscription(Subscription(False, topic_prefix(GetHeads, "hello"))) == []


def test_a_store_that_never_says_that_it_has_told_all_is_waited_for_for_a_while() -> None:
    state = FollowerState(ME, "hello", told_within_s=4.0)
    state.messages([StoreHello(ME, STORE), StoreHello(ME, "EE")], 0.0)
    told = []
    for now_s in (0.1, 4.0, 4.1):
        state.tick(now_s)
        told.append(state.is_told)
    assert told == [False, False, True]
    state.messages([HeadsTold(ME, STORE)], 5.0)
    assert state.is_told
    state.messages([StoreHello(ME, "EE")], 6.0)  # it has come anew
    assert not state.is_told
    state.messages([HeadsTold(ME, "EE"), StoreHello(ME, "EE")], 6.1)
    assert state.is_told
    state.tick(99.0)
    state.messages([StoreHello(ME, "EE")], 99.0)  # it has told: it is asked again, and not waited for
    assert state.is_told


def test_stores_without_number_are_greeted_and_not_remembered() -> None:
    state = FollowerState(ME, "hello", told_within_s=4.0)
    names = [f"{number:032X}" for number in range(10_500)]
    assert len(state.messages([StoreHello(ME, name) for name in names], 0.0)) == 10_500
    state.messages([HeadsTold(ME, name) for name in names[:100]], 0.0)
    state.messages([HeadsTold(ME, f"made up {number}") for number in range(10_500)], 0.0)
    assert (len(state._awaited), len(state._told)) == (9_900, 100)
    assert not state.is_told
    state.tick(0.0)
    state.tick(4.0)
    assert (len(state._awaited), len(state._told)) == (0, 100)
    assert state.is_told


def test_heads_are_asked_for_again_and_again() -> None:
    state = follower()
    asked = [state.tick(now) for now in (0.0, 9.0, 10.0, 15.0, 20.0)]
    assert asked == [[], [], [Send(GetHeads("hello", ME))], [], [Send(GetHeads("hello", ME))]]


def test_other_topics_and_addresses_that_are_none_are_left_out() -> None:
    state = FollowerState(ME, "hello", partitions_max=1)
    strange = [LiveRecord("hello", name, "hello", 0, b"") for name in ("", "a/b", "a\n", "x" * 65)]
    state.messages([LiveRecord("hello2", PRODUCER, "hello2", 0, b""), *strange, *live(0, 1)], 0.0)
    state.messages([LiveRecord("hello", "DD", "hello", 0, b"")], 0.0)
    assert (list(state.ends), state.refused_partitions) == ([PARTITION], 5)


@pytest.mark.parametrize("first", [2**62 - 1, 2**63 - 2, 2**63, 2**64 - 2])
def test_a_sequence_that_no_partition_comes_to_is_left_out(first: int) -> None:
    """Logs and columns of records number them in 63 bits."""
    state = follower()
    state.follow(PARTITION, first, 0.0)
    lies = [*live(first, first + 2), LiveBatch("hello", PRODUCER, "hello", first, [b"1", b"2"])]
    lies += [DirectHead(ME, PRODUCER, "hello", first + 1), Head("hello", "DD", "hello", first + 1)]
    state.messages(lies, 0.0)
    held = state.held(PARTITION, 10, 100)
    splits = splits_of(PARTITION, held) if held.contents else ()
    assert [split.records for split in splits] == ([1] if first < 2**62 else [])
    assert dict(state.ends) == ({PARTITION: 2**62} if first < 2**62 else {})
    state.messages(live(7, 9), 0.1)  # the partition is one of those that there are for all that
    assert state.ends[PARTITION] == (2**62 if first < 2**62 else 9)
