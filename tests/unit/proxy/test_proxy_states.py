"""What proxies and clients decide: whose a log is, which proxy is asked, what is sent again."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.errors import DamagedEntry, Fenced, LogNotFound, OverCapacity, ProxyUnreachable, SenderUnknown
from scribengin.log import DLSN
from scribengin.log.format.records import Record
from scribengin.log.write.results import SlotRange
from scribengin.proxy.client.pending import SingleRecord, WriterShare, places_of
from scribengin.proxy.state.ownership import LogSight, PutOff, SendTo, Serve, TakeLog, next_step
from scribengin.proxy.state.resend import Lost, NotSent, SendAgain, SenderState, Sent
from scribengin.proxy.state.routes import ProxyRoutes
from scribengin.proxy.wire.answers import MovedTo, Refused, TryAgain, Written

FREE = LogSight(us="me", serving=False, owner=None, ending=False, logs=0, logs_max=2)
RUNS = (SlotRange(DLSN(1, 0, 0), 3),)


def sender(patience_s: float = 60.0) -> SenderState:
    names = iter(range(1000))
    return SenderState(lambda: b"%016d" % next(names), patience_s)


def test_a_log_is_served_taken_or_another_ones() -> None:
    assert next_step(FREE) == TakeLog()
    assert next_step(replace(FREE, serving=True, owner="me")) == Serve()
    assert next_step(replace(FREE, owner="me")) == TakeLog()
    assert next_step(replace(FREE, owner="you")) == SendTo("you")


def test_a_proxy_that_is_full_or_ends_takes_no_more() -> None:
    full = replace(FREE, logs=2)
    assert isinstance(next_step(full), PutOff)
    assert next_step(replace(full, others=["b", "a"])) == SendTo("b")
    assert next_step(replace(full, owner="me")) == TakeLog()
    ending = replace(FREE, ending=True, serving=True, owner="me")
    assert isinstance(next_step(ending), PutOff)
    assert next_step(replace(ending, others=["b"])) == SendTo("b")


@given(
    owner=st.sampled_from([None, "me", "you"]),
    serving=st.booleans(),
    ending=st.booleans(),
    logs=st.integers(0, 3),
    others=st.lists(st.sampled_from(["a", "b"])),
)
def test_nobody_is_sent_to_who_sent_them(
    owner: str | None, serving: bool, ending: bool, logs: int, others: list[str]
) -> None:
    step = next_step(LogSight("me", serving, owner, ending, logs, 2, others))
    assert step != SendTo("me")
    assert not (ending and isinstance(step, Serve | TakeLog))


def test_clients_that_never_met_ask_the_same_proxy() -> None:
    servers = [f"grpc://host-{n}:1" for n in range(5)]
    one, other = ProxyRoutes(), ProxyRoutes()
    one.servers_are(servers)
    other.servers_are(reversed(servers))
    chosen = {f"log-{n}": one.choose(f"log-{n}", 0) for n in range(200)}
    assert chosen == {log: other.choose(log, 0) for log in chosen}
    assert set(chosen.values()) == set(servers)
    gone = servers[0]
    one.servers_are(servers[1:])
    moved = [log for log, address in chosen.items() if one.choose(log, 0) != address]
    assert {chosen[log] for log in moved} == {gone}


def test_a_redirect_is_followed_and_a_dead_proxy_left_out_for_a_while() -> None:
    routes = ProxyRoutes(avoided_s=5)
    assert routes.choose("log", 0) is None
    routes.servers_are(["a", "b"])
    routes.moved("log", "c")
    assert routes.choose("log", 0) == "c"
    routes.failed("c", 0)
    first = routes.choose("log", 1)
    assert first in ("a", "b")
    routes.failed(str(first), 1)
    second = routes.choose("log", 2)
    assert {first, second} == {"a", "b"}
    routes.failed(str(second), 2)
    assert routes.choose("log", 3) == first, "all are left out: the one that failed first"
    assert routes.choose("log", 7) in (first, second)
    routes.moved("log", "c")
    routes.forget("log")
    assert routes.choose("log", 9) in ("a", "b")


def test_records_are_numbered_without_a_gap() -> None:
    state = sender()
    for number in (1, 4, 7):
        state.begin(3, 0)
        assert (state.number, state.answered) == (number, number - 1)
        assert state.answer(Written(RUNS), 0) == Sent(RUNS)


def test_what_is_refused_leaves_its_numbers_free() -> None:
    state = sender()
    state.begin(3, 0)
    error = OverCapacity("full")
    assert state.answer(Refused(error), 0) == NotSent(error)
    state.begin(1, 0)
    assert state.number == 1


@pytest.mark.parametrize("unsure", [TryAgain(Fenced("x"), maybe_written=True)])
def test_what_may_be_written_is_sent_again_until_it_is_known(unsure: TryAgain) -> None:
    state = sender()
    state.begin(3, 0)
    assert isinstance(state.answer(unsure, 0), SendAgain)
    assert isinstance(state.answer(Refused(OverCapacity("full")), 0), SendAgain)
    assert state.number == 1
    assert state.answer(Written(RUNS), 1) == Sent(RUNS)
    state.begin(1, 1)
    state.answer(unsure, 1)
    assert isinstance(state.answer(Refused(LogNotFound("gone")), 1), Lost)


def test_a_sender_that_is_forgotten_begins_anew_if_all_was_answered() -> None:
    state = sender()
    state.begin(1, 0)
    state.answer(Written(RUNS), 0)
    old = state.sender
    state.begin(1, 0)
    assert state.answer(Refused(SenderUnknown("who")), 0) == SendAgain(0.0)
    assert (state.sender != old, state.number) == (True, 1)
    state.answer(TryAgain(Fenced("x"), maybe_written=True), 0)
    assert isinstance(state.answer(Refused(SenderUnknown("who")), 0), Lost)


def test_proxies_that_disagree_are_given_a_moment() -> None:
    state = sender()
    state.begin(1, 0)
    found = [state.answer(MovedTo("b"), 0) for _ in range(6)]
    assert [one.pause_s > 0 for one in found if isinstance(one, SendAgain)] == [False] * 3 + [True] * 3


def test_patience_ends_and_pauses_grow_up_to_a_second() -> None:
    state = sender(patience_s=10)
    state.begin(1, 0)
    again = TryAgain(ProxyUnreachable("x"))
    found = [state.answer(again, 1) for _ in range(12)]
    pauses = [one.pause_s for one in found if isinstance(one, SendAgain)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1.0
    assert len(pauses) == 12
    assert isinstance(state.answer(again, 10), Lost)


@pytest.mark.parametrize(
    ("maybe_written", "fate"),
    [
        (False, "the records are not in the log"),
        (
            True,
            "nobody knows whether the records are in the log, and they may still come: read it again once a proxy has "
            "taken a later record, or write them with a key that tells duplicates",
        ),
    ],
)
def test_who_is_out_of_patience_is_told_what_the_limit_was_and_what_became_of_the_records(
    maybe_written: bool, fate: str
) -> None:
    state = sender(patience_s=10)
    state.begin(1, 0)
    why = ProxyUnreachable("no proxy runs: start one")
    found = state.answer(TryAgain(why, maybe_written), 10)
    assert isinstance(found, Lost)
    assert isinstance(found.error, ProxyUnreachable)
    assert str(found.error) == f"{why}; given up after 10 s (`patience_s` of the client): {fate}"
    assert str(why) == "no proxy runs: start one", "others of the same call are told the same error"


def test_what_an_error_says_beside_its_words_is_kept() -> None:
    state = sender(patience_s=10)
    state.begin(1, 0)
    found = state.answer(TryAgain(DamagedEntry("torn", position="1-2-3", offset=7)), 10)
    assert isinstance(found, Lost)
    assert isinstance(found.error, DamagedEntry)
    assert (found.error.position, found.error.offset) == ("1-2-3", 7)
    assert str(found.error).startswith("torn; given up after 10 s")


def test_what_waited_behind_others_has_all_its_patience_if_those_were_answered() -> None:
    state = sender(patience_s=10)
    state.begin(1, 0)
    state.answer(Written(RUNS), 50)
    state.begin(1, 1)
    assert state.left_s(50) == 10
    state.answer(TryAgain(ProxyUnreachable("x")), 52)
    assert state.left_s(53) == 7


def test_who_waits_once_a_proxy_has_answered_is_not_told_of_the_silence_before_that() -> None:
    """As where the client was stopped for a minute: its records have waited longer than it has patience."""
    state = SenderState(lambda: b"a sender", 10, silence=ProxyUnreachable("old outage"))
    state.begin(1, 0)
    assert isinstance(state.without_hope(60), Lost)
    state.begin(1, 60)
    assert state.without_hope(60) is None
    state.answer(Written(RUNS), 61)
    state.begin(1, 62)
    assert state.without_hope(122) is None


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=8), cuts=st.sets(st.integers(1, 30)))
def test_places_are_dealt_out_in_order(counts: list[int], cuts: set[int]) -> None:
    """Whatever the runs are that the records of a request stand in."""
    total = sum(counts)
    edges = sorted({0, total, *(cut for cut in cuts if cut < total)})
    runs = [SlotRange(DLSN(1, start, 0), end - start) for start, end in itertools.pairwise(edges)]
    units = [SingleRecord(WriterShare(True), Record(0, None, None, b"x"), False) for _ in range(total)]
    dealt = [places[0].first for _unit, places in places_of(units, runs)]
    assert dealt == [DLSN(1, run.first.entry, slot) for run in runs for slot in range(run.records)]
