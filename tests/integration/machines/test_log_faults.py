"""Clients of logs on machines see nothing lost, doubled, reordered or invented, whatever strikes: bookies that die,
proxies, the cable of the writer's machine. What strikes when is a seed's."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from scribengin.log.store.bookkeeper.client import JARS_VARIABLE
from scribengin_dev.servers.bookkeeper import BookKeeperServers
from scribengin_dev.servers.machine_room import MachineRoom
from tests.integration.machines.faulty_logs import (
    SCHEDULES,
    FaultyLog,
    Schedule,
    machine_of_the_writer,
    nodes_of_the_store,
    proxies,
)

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3000)]
Room = tuple[MachineRoom, BookKeeperServers]
SEEDS = 100


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with MachineRoom(tmp_path_factory.mktemp("room"), 3) as made, pytest.MonkeyPatch.context() as environment:
        bookies = made.start_bookies(beside_head=False)
        environment.setenv(JARS_VARIABLE, ":".join(map(str, bookies.jars)))
        yield made, bookies


@pytest.mark.parametrize(
    "schedule",
    [machine_of_the_writer, *(pytest.param(one, marks=pytest.mark.full) for one in (nodes_of_the_store, proxies))],
    ids=lambda value: value.__name__,
)
def test_a_schedule_of_faults_is_not_seen_by_clients(room: Room, schedule: Schedule) -> None:
    play(room, schedule, 1)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_schedule_of_faults_is_seen_by_clients(room: Room, seed: int) -> None:
    chance = random.Random(seed)
    play(room, chance.choice(SCHEDULES), seed)


def play(room: Room, schedule: Schedule, seed: int) -> None:
    log = FaultyLog(*room, seed)
    with log.bound():
        schedule(log)
