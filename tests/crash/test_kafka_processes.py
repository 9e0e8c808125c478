"""Exactly once with a transaction coordinator: owners as real processes, on a real ZooKeeper and a real broker.

`test_kafka_crashes.py` tries every moment with simulated ones. Here owners are killed around the broker's decision and
stalled; in `test --full` everywhere, in recoveries, and with replies lost. And what only a broker can do: it is stopped
in the middle of a commit. Topics are read with kafka-python.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin.testing.standstill import standing_still
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.opening import connect
from tests.crash.flow import Place, prepare
from tests.crash.places import record, wrong
from tests.crash.processes import finish, own_to_the_end, resume, start_owner, wait_until_stopped
from tests.crash.simulated import simulated
from tests.crash.stops import (
    COMMITTED,
    DECIDED,
    FINISHED,
    KILLED,
    PREPARED,
    STAGED,
    STALE,
    UNREACHABLE,
    Stop,
    stops_to_try,
)
from tests.crash.test_round_crashes import undisturbed

pytestmark = pytest.mark.timeout(900)
SOME_OR_ALL = pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.full)])
COMMITTING = Stop("kafka.commit:before", "kill", occurrence=2)


@pytest.fixture
def new_place(zookeeper: EmbeddedZooKeeper, own_kafka: KafkaServer, tmp_path: Path) -> Callable[[int], Place]:
    """Make a place of its own for each case: a registry chroot, a directory, filled input logs, a topic."""

    def make(tasks: int) -> Place:
        name = uuid.uuid4().hex[:12]
        place = Place(f"{zookeeper.hosts}/crash-{name}", str(tmp_path / name), tasks, own_kafka.bootstrap)
        with connect(place.hosts, session_timeout_s=100) as registry:
            prepare(place, registry)
        return place

    return make


def tasks_of(everywhere: bool) -> int:
    """More of them where everything is tried."""
    return 3 if everywhere else 1


@SOME_OR_ALL
def test_a_killed_owner_is_taken_over_from_wherever_it_stopped(
    new_place: Callable[[int], Place], everywhere: bool
) -> None:
    tasks, problems = tasks_of(everywhere), []
    for stop in stops_to_try(record(new_place(tasks), 1)) if everywhere else (DECIDED,):
        place = new_place(tasks)
        assert finish(start_owner(place, 1, stop)) == KILLED, stop
        assert own_to_the_end(place, 2) == FINISHED, stop
        problems += wrong(place, stop)
    assert not problems, "\n".join(problems)


@pytest.mark.full
def test_a_recovery_that_is_killed_is_recovered_from(new_place: Callable[[int], Place]) -> None:
    def crashed(base: Stop) -> Place:
        place = new_place(tasks_of(everywhere=True))
        assert finish(start_owner(place, 1, base)) == KILLED
        return place

    def recovery(base: Stop) -> list[Stop]:
        passed = record(crashed(base), 2)
        return stops_to_try(passed[: passed.index("kafka.produce:before")])

    problems = []
    for base in (STAGED, PREPARED, DECIDED, COMMITTED):
        for stop in recovery(base):
            place = crashed(base)
            assert finish(start_owner(place, 2, stop)) == KILLED, (base, stop)
            assert own_to_the_end(place, 3) == FINISHED, (base, stop)
            problems += wrong(place, (base, stop))
    assert not problems, "\n".join(problems)


@pytest.mark.full
def test_an_owner_that_lost_the_registrys_reply_finds_out_what_happened(new_place: Callable[[int], Place]) -> None:
    tasks, problems = tasks_of(everywhere=True), []
    for stop in [stop for stop in stops_to_try(record(new_place(tasks), 1)) if stop.name.endswith(":before")]:
        place = new_place(tasks)
        first = finish(start_owner(place, 1, stop.but("lose_reply")))
        if first != FINISHED:
            assert first in (STALE, UNREACHABLE), stop
            assert own_to_the_end(place, 2) == FINISHED, stop
        problems += wrong(place, stop)
    assert not problems, "\n".join(problems)


@SOME_OR_ALL
def test_a_stalled_owner_that_resumes_after_another_took_over_writes_nothing(
    new_place: Callable[[int], Place], everywhere: bool
) -> None:
    """SIGSTOP, another owner, SIGCONT. The late producer is alive."""
    tasks, problems = tasks_of(everywhere), []
    for stop in stops_to_try(record(new_place(tasks), 1)) if everywhere else (COMMITTING,):
        place = new_place(tasks)
        stalled = start_owner(place, 1, stop.but("pause"))
        assert wait_until_stopped(stalled), stop
        assert own_to_the_end(place, 2) == FINISHED, stop
        resume(stalled)
        finish(stalled)
        assert own_to_the_end(place, 3) == FINISHED, stop  # which would see what the stale one had put back
        problems += wrong(place, stop)
    assert not problems, "\n".join(problems)


def test_an_owner_that_dies_while_the_broker_commits_is_taken_over(
    new_place: Callable[[int], Place], own_kafka: KafkaServer
) -> None:
    """The request is on its way, nobody has answered it: the broker may have committed, or not."""
    place = new_place(1)
    owner = start_owner(place, 1, Stop("kafka.commit:before", "pause", occurrence=2))
    assert wait_until_stopped(owner)
    assert own_kafka.pid is not None
    with standing_still(own_kafka.pid):
        resume(owner)
        wait_until(lambda: _unread_bytes(place.bootstrap) > 0, 60, "the request to reach the broker's socket")
        owner.kill()
        assert finish(owner) == KILLED
    assert own_to_the_end(place, 2) == FINISHED
    assert not wrong(place, "within kafka.commit")


def _unread_bytes(address: str) -> int:
    """What clients have sent to a server on this machine that it has not read yet."""
    port = f"{int(address.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    connected = [row for row in rows if row[1].rpartition(":")[2] == port and row[3] == "01"]
    return sum(int(row[4].partition(":")[2], 16) for row in connected)


@pytest.mark.parametrize("tasks", [1, 3])
def test_simulated_owners_pass_the_stops_that_real_ones_do(new_place: Callable[[int], Place], tasks: int) -> None:
    assert set(simulated(tasks, undisturbed, kafka=True)) == set(record(new_place(tasks), 1))
