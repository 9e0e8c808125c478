"""Which logs proxies give up: about as many and as much for each in the end, and nothing to and fro."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.proxy.state.balance import HandOver, LoadMeter, LogLoad, ProxyLoad, hand_overs

Logs = dict[str, dict[str, float]]
"""Of each proxy, its logs with their loads."""


def told(logs: Logs) -> list[ProxyLoad]:
    return [ProxyLoad(name, f"at {name}", len(own), sum(own.values())) for name, own in logs.items()]


def decided(logs: Logs, name: str, moves_max: int = 1000) -> list[HandOver]:
    return hand_overs(name, [LogLoad(log, load) for log, load in logs[name].items()], told(logs), moves_max)


def balance_once(logs: Logs) -> int:
    """Every proxy decides by the same nodes, and all of it is done. How many logs have moved."""
    moves = {name: decided(logs, name) for name in logs}
    for name, own in moves.items():
        for move in own:
            logs[move.to.removeprefix("at ")][move.log] = logs[name].pop(move.log)
    return sum(map(len, moves.values()))


def named(*loads: list[float]) -> Logs:
    return {f"P{n}": {f"log-{n}-{m}": load for m, load in enumerate(own)} for n, own in enumerate(loads)}


def test_a_proxy_that_comes_gets_its_share_of_the_logs() -> None:
    logs = named([0.0] * 10, [0.0] * 10, [])
    assert balance_once(logs) == 6
    assert [len(own) for own in logs.values()] == [7, 7, 6]
    assert balance_once(logs) == 0


def test_the_hottest_logs_that_fit_go_where_less_is_done() -> None:
    logs = named([100.0, 60.0, 30.0, 20.0], [1.0] * 4)
    moves = decided(logs, "P0")
    assert moves[0] == HandOver("log-0-0", "at P1")
    assert balance_once(logs) == len(moves)
    assert sum(logs["P1"].values()) <= sum(logs["P0"].values()) * 1.2
    assert balance_once(logs) == 0


def test_nothing_is_given_to_a_proxy_without_room() -> None:
    ours = [LogLoad(f"log-{n}", load) for n, load in enumerate((100.0, 60.0, 30.0, 20.0))]
    full = ProxyLoad("P1", "at P1", logs=1, load=1.0, logs_max=1)
    assert hand_overs("P0", ours, [ProxyLoad("P0", "at P0", 4, 210.0), full], 1000) == []
    roomy = replace(full, logs_max=2)
    assert len(hand_overs("P0", ours, [ProxyLoad("P0", "at P0", 4, 210.0), roomy], 1000)) == 1


def test_one_hot_log_stays_and_keeps_the_cold_ones_away() -> None:
    logs = named([1000.0], [1.0] * 9)
    assert balance_once(logs) == 0, "its proxy has enough to do"


@pytest.mark.parametrize("logs", [named([1.0] * 11, [1.0] * 10), named([1.0]), named([])])
def test_what_is_about_even_is_left_alone(logs: Logs) -> None:
    assert balance_once(logs) == 0


def test_logs_that_have_just_come_and_proxies_that_end_move_nothing() -> None:
    logs = named([0.0] * 10, [])
    fresh = [LogLoad(log, 0.0, settled=False) for log in logs["P0"]]
    assert hand_overs("P0", fresh, told(logs), 1000) == []
    ours = [LogLoad(log, 0.0) for log in logs["P0"]]
    assert hand_overs("P0", ours, told(logs)[1:], 1000) == []
    assert len(hand_overs("P0", ours, told(logs), 2)) == 2


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 5.0, 40.0, 300.0]), max_size=20), min_size=1, max_size=6))
def test_whatever_there_is_it_comes_to_rest_without_a_log_lost_or_two_owners(loads: list[list[float]]) -> None:
    logs = named(*loads)
    before = sorted(log for own in logs.values() for log in own)
    mean_load = sum(map(sum, loads)) / len(loads)
    hottest = max([mean_load, *map(sum, loads)])
    passes = next((n for n in range(50) if not balance_once(logs)), None)
    assert passes is not None, "logs go to and fro"
    assert sorted(log for own in logs.values() for log in own) == before
    assert max(sum(own.values()) for own in logs.values()) <= hottest * 1.0001, "nobody is worse off than the worst was"


def test_the_load_of_a_log_is_that_of_late() -> None:
    meter = LoadMeter()
    for second in range(200):
        meter.add(96 * 1024, float(second))
    assert meter.load(200.0) == pytest.approx(100 * 1024, rel=0.05)
    assert meter.load(300.0) < 1024
