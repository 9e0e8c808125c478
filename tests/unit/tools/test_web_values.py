"""What the page of `scribengin web` is told, and who may see it: decided from plain values."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.process.openness import is_loopback
from scribengin.errors import ConfigInvalid
from scribengin_registry.contract import Registry
from scribengin_tools.web.access import (
    SESSION_S,
    SESSIONS_MAX,
    Access,
    host_is_ours,
    may_change,
    names_of,
    origin_is_ours,
)
from scribengin_tools.web.feed import event
from scribengin_tools.web.model.registry import RegistryView
from scribengin_tools.web.model.timeline import COARSE_MS, COARSE_ROWS, FINE_ROWS, Timeline, row_of
from scribengin_tools.web.model.values import TaskOrder, tasks_json
from scribengin_tools.web.model.watcher import Snapshot, pause_s
from scribengin_tools.web.server import TOKEN_VARIABLE, WebConfig, WebServer, token_from
from tests.integration.watched import config
from tests.unit.tools.test_monitor_showing import overview, task

TOKEN = "a-token-of-many-characters"


class MovingClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.s = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return self.s


# -- time lines


def test_a_time_line_keeps_what_was_seen_last_and_older_rows_thinned() -> None:
    line = Timeline()
    hours = 8
    for second in range(hours * 3600):
        line.add((second * 1000, 1.0, 2.0, second, None if second % 2 else 5.0))
    rows = line.rows()
    times = [row[0] for row in rows]
    assert times == sorted(set(times))
    assert rows[-1] == (hours * 3_600_000 - 1000, 1.0, 2.0, hours * 3600 - 1, None)
    assert times[-FINE_ROWS:] == [(hours * 3600 - FINE_ROWS + n) * 1000 for n in range(FINE_ROWS)]
    older = times[:-FINE_ROWS]
    assert {b - a for a, b in pairwise(older)} == {COARSE_MS}
    assert times[-1] - times[0] > 5.9 * 3_600_000
    assert len(rows) <= FINE_ROWS + COARSE_ROWS
    assert line.bytes <= 88_000, "as its module says, with what it may have too much"
    assert line.rows(3) == rows[-3:]
    assert line.rows(FINE_ROWS + 10) == rows[-FINE_ROWS - 10 :]


def test_a_look_at_the_same_time_or_before_adds_nothing() -> None:
    line = Timeline()
    for at in (10, 10, 9, 11):
        line.add((at, 0.0, 0.0, 0, None))
    assert [row[0] for row in line.rows()] == [10, 11]


def test_a_row_is_what_the_picture_says() -> None:
    phases = {"plan": 1.0, "run": 2.5, "prepare": 0.0, "commit": 0.0, "complete": 0.0}
    found = overview(in_per_s=3.0, out_per_s=2.0, lag_records=7, round_ms=phases)
    assert row_of(found, 5) == (5, 3.0, 2.0, 7, 3.5)
    assert row_of(overview(), 5)[-1] is None


# -- what has changed


def seen(before: Snapshot, *found: Any, at_ms: int = 1) -> Snapshot:
    overviews = {one.dataflow: one for one in found}
    return before.after(RegistryView(overviews, {name: config(name) for name in overviews}), at_ms, at_ms)


def test_only_what_has_changed_is_sent() -> None:
    first = seen(Snapshot(), overview("a"), overview("b"))
    told = event(first, 0, 0)
    assert [flow["name"] for flow in told["flows"]] == ["a", "b"]
    assert {"names", "graph", "rows"} <= told.keys()
    second = seen(first, overview("a"), overview("b", state="paused"), at_ms=2)
    told = event(second, first.seq, 0)
    assert [flow["name"] for flow in told["flows"]] == ["b"]
    assert told.keys().isdisjoint({"names", "graph"})
    third = seen(second, overview("a"), at_ms=3)
    told = event(third, second.seq, 0)
    assert (told["flows"], told["names"]) == ([], ["a"])
    assert [flow["name"] for flow in event(third, 0, 0)["flows"]] == ["a"], "to who comes now"


def test_trouble_leaves_the_last_picture_and_a_look_that_succeeds_ends_it() -> None:
    first = seen(Snapshot(), overview("a"))
    away = first.troubled("away", 7)
    assert (away.flows, away.trouble, away.trouble_since_ms) == (first.flows, "away", 7)
    assert away.troubled("away", 9) is away
    assert away.troubled("still away", 9).trouble_since_ms == 7
    assert event(away, first.seq, 0)["flows"] == []
    assert seen(away, overview("a")).trouble is None


def test_it_looks_rarely_when_nobody_watches_and_a_look_takes_a_sixth_of_the_time_at_most() -> None:
    assert (pause_s(0.01, watched=True), pause_s(0.01, watched=False)) == (1.0, 15.0)
    assert (pause_s(2.0, watched=True), pause_s(4.0, watched=False)) == (10.0, 20.0)


# -- tasks


@pytest.mark.parametrize(
    ("order", "descending", "expected"),
    [
        ("task", False, ["task-2", "task-9", "task-10"]),
        ("task", True, ["task-10", "task-9", "task-2"]),
        ("lag_records", True, ["task-10", "task-2", "task-9"]),
        ("state", False, ["task-9", "task-2", "task-10"]),
        ("worker", False, ["task-9", "task-10", "task-2"]),
        ("round_ms", True, ["task-2", "task-9", "task-10"]),
    ],
)
def test_tasks_are_sorted(order: TaskOrder, descending: bool, expected: list[str]) -> None:
    found = overview(
        tasks=(
            task(10, lag_records=9, worker="worker-2"),
            task(9, stalled=True, worker="worker-1"),
            task(2, lag_records=1, error="Traceback\nValueError", worker="worker-10", round_ms=3.0),
        )
    )
    page = tasks_json(found, order=order, descending=descending, words="", offset=0, limit=50)
    assert [one["task"] for one in page["tasks"]] == expected


def test_tasks_are_found_by_state_and_error() -> None:
    found = overview(tasks=(task(0, stalled=True), task(1, error="ValueError: poison"), task(2)))

    def names(words: str) -> list[str]:
        page = tasks_json(found, order="task", descending=False, words=words, offset=0, limit=50)
        return [one["task"] for one in page["tasks"]]

    assert (names("stalled"), names("POISON"), names("poison stalled")) == (["task-0"], ["task-1"], [])


# -- who may


def test_a_session_ends_after_its_time_and_with_logout() -> None:
    clock = MovingClock()
    access = Access(TOKEN, clock)
    assert access.login("other", "") is None
    first, second = access.login(f" {TOKEN}\n", "ada"), access.login(TOKEN, "")
    assert first is not None
    session = access.session(first)
    assert session is not None
    assert session.author == "web:ada"
    assert (may_change(session, session.csrf), may_change(session, None), may_change(session, "ä")) == (
        True, False, False,
    )  # fmt: skip
    access.logout(first)
    assert access.session(first) is None
    assert access.session(second) is not None
    clock.s = SESSION_S + 1
    assert access.session(second) is None
    assert access.session(None) is None


def test_sessions_do_not_grow_without_bound() -> None:
    access = Access(TOKEN, MovingClock())
    cookies = [access.login(TOKEN, "") for _ in range(SESSIONS_MAX + 5)]
    assert [access.session(cookie) is None for cookie in cookies[:6]] == [True] * 5 + [False]


@pytest.mark.parametrize("user", ["x" * 41, "a\nb", "<b>", "a:b"])
def test_a_name_that_would_spoil_a_line_of_the_history_is_refused(user: str) -> None:
    with pytest.raises(ConfigInvalid, match="a name has at most 40"):
        Access(TOKEN, MovingClock()).login(TOKEN, user)


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".de", "\udce9", "a\0b", "no.such.invalid", ""], ids=ascii)
def test_an_address_to_listen_at_that_is_none_is_refused_in_one_line(host: str, memory_registry: Registry) -> None:
    with pytest.raises(ConfigInvalid, match="is no address: name one of this machine"):
        WebServer(memory_registry, WebConfig(host=host, port=0, token="t" * 40))


def test_a_token_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="has 6 characters and needs 16"):
        Access("secret", MovingClock())


@pytest.mark.parametrize(
    ("host", "ours"),
    [("localhost:8480", True), ("127.0.0.1", True), ("[::1]:80", True), ("LOCALHOST", True), ("evil.example", False),
     ("127.0.0.1.evil.example", False), ("", False), (None, False), ("[::1", False), ("page.example", True)],
)  # fmt: skip
def test_only_names_of_this_server_are_hosts(host: str | None, ours: bool) -> None:
    assert host_is_ours(host, names_of("127.0.0.1", ["page.example"])) is ours


def test_an_origin_is_the_host_itself() -> None:
    assert origin_is_ours(None, "localhost:1")
    assert origin_is_ours("http://localhost:1", "localhost:1")
    assert not origin_is_ours("http://localhost:2", "localhost:1")
    assert not origin_is_ours("null", "localhost:1")
    assert not origin_is_ours("http://localhost:1", None)
    assert not origin_is_ours("http://[", "localhost:1")
    assert not origin_is_ours("http://a\u2100b", "localhost:1")
    assert "0.0.0.0" not in names_of("0.0.0.0")
    assert [is_loopback(host) for host in ("127.0.0.2", "::1", "localhost", "0.0.0.0", "box")] == [True] * 3 + [
        False
    ] * 2


def test_the_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    assert token_from(file, {TOKEN_VARIABLE: "other"}) == (TOKEN, None)
    file.chmod(0o644)
    assert "can be read by other users" in str(token_from(file, {})[1])
    assert token_from(None, {TOKEN_VARIABLE: "other"}) == ("other", None)
    assert token_from(None, {}) == (None, None)
    file.write_text(" \n")
    with pytest.raises(ConfigInvalid, match="is empty"):
        token_from(file, {})
    with pytest.raises(ConfigInvalid, match="No such file"):
        token_from(tmp_path / "nowhere", {})
