"""Clients of logs on machines see nothing lost, doubled, reordered or invented, whatever strikes: bookies or DataNodes
that die, proxies, the cable of the writer's machine. What strikes when is a seed's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from scribengin.base.jvm import CONF_VARIABLE
from scribengin.log.store.bookkeeper.client import JARS_VARIABLE
from scribengin_dev.servers.machine_room import MachineRoom
from tests.integration.machines.faulty_logs import (
    SCHEDULES,
    STRIKES,
    FaultyLog,
    FaultyStore,
    Schedule,
    Strike,
    bookies_of,
    data_nodes_of,
    machine_of_the_writer,
    nodes_of_the_store,
    proxies,
    proxies_by,
)

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3000)]
Room = tuple[MachineRoom, FaultyStore]
SEEDS = 100
SEEDS_ON_HDFS = 2
"""Beside one of each schedule."""


def room_with(
    tmp_path_factory: pytest.TempPathFactory, store_of: Callable[[MachineRoom], FaultyStore]
) -> Iterator[Room]:
    """Three machines with that store."""
    with MachineRoom(tmp_path_factory.mktemp("room"), 3) as made, pytest.MonkeyPatch.context() as environment:
        for variable in (CONF_VARIABLE, JARS_VARIABLE):
            environment.setenv(variable, "")  # what the store sets is taken back
        yield made, store_of(made)


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    yield from room_with(tmp_path_factory, bookies_of)


@pytest.fixture(scope="module")
def data_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    yield from room_with(tmp_path_factory, data_nodes_of)


@pytest.mark.parametrize(
    "schedule",
    [machine_of_the_writer, *(pytest.param(one, marks=pytest.mark.full) for one in (nodes_of_the_store, proxies))],
    ids=lambda value: value.__name__,
)
def test_a_schedule_of_faults_is_not_seen_by_clients(bookies: Room, schedule: Schedule) -> None:
    play(bookies, schedule, 1)


@pytest.mark.full
@pytest.mark.parametrize("strike", STRIKES, ids=lambda value: value.__name__)
def test_whatever_becomes_of_one_proxy_and_then_the_other_is_not_seen_by_clients(bookies: Room, strike: Strike) -> None:
    play(bookies, proxies_by(strike), 2)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_schedule_of_faults_is_seen_by_clients(bookies: Room, seed: int) -> None:
    play(bookies, drawn(seed), seed)


@pytest.mark.full
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda value: value.__name__)
def test_a_schedule_of_faults_is_not_seen_by_clients_of_hdfs(data_nodes: Room, schedule: Schedule) -> None:
    play(data_nodes, schedule, 1)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(SEEDS_ON_HDFS))
def test_no_schedule_of_faults_is_seen_by_clients_of_hdfs(data_nodes: Room, seed: int) -> None:
    play(data_nodes, drawn(seed), seed)


def drawn(seed: int) -> Schedule:
    """The schedule of a seed."""
    return random.Random(seed).choice(SCHEDULES)


def play(room: Room, schedule: Schedule, seed: int) -> None:
    log = FaultyLog(*room, seed)
    with log.bound():
        schedule(log)
