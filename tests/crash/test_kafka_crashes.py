"""Exactly once with a transaction coordinator: the same harness as test_round_crashes, for a flow whose
rounds Kafka decides.

One task writes a topic and a log in every round. Whatever happens to its owner, both must hold every record once, as
kafka-python's readers of committed records and the log's readers see it. In the normal run each stop of the commit
itself is tried; with `--full` every stop of a round, and three tasks.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.opening import connect
from tests.crash.flow import Place, prepare
from tests.crash.places import record, wrong
from tests.crash.processes import finish, own_to_the_end, resume, start_owner, wait_until_stopped
from tests.crash.stops import FINISHED, KILLED, STALE, UNREACHABLE, Stop, stops_to_try
from tests.house.failpoints import failpoint_names
from tests.stalls import expect_output

pytestmark = pytest.mark.timeout(900)

# Moments that leave a recovery something to decide: the round is prepared, and Kafka has not committed it, or has; it
# is not prepared, and everything is staged; the commit logs have moved, and the log does not show it yet.
PREPARED = Stop("round.prepare:after", "kill", occurrence=2)
DECIDED = Stop("kafka.commit:after", "kill", occurrence=2)
STAGED = Stop("kafka.prepare:after", "kill", occurrence=2)
COMMITTED = Stop("round.commit:after", "kill", occurrence=2)
BASES = (STAGED, PREPARED, DECIDED, COMMITTED)

# Kafka's effects that no round of this flow meets, and where they are stopped instead.
ELSEWHERE = {
    "kafka.abort": "a round that is rolled back by its owner: check_sink crashes there, in test_sink_conformance",
    "kafka.produce_at_once": "at least once, where a crash may leave records twice: test_kafka_sink",
}
ALL = pytest.mark.parametrize(
    ("tasks", "everywhere"), [(1, False), pytest.param(3, True, marks=pytest.mark.full)], ids=["commit", "everywhere"]
)


@pytest.fixture
def new_place(zookeeper: EmbeddedZooKeeper, kafka: KafkaServer, tmp_path: Path) -> Callable[[int], Place]:
    """Make a place of its own for each case: a registry chroot, a directory, filled input logs, a topic."""

    def make(tasks: int) -> Place:
        name = uuid.uuid4().hex[:12]
        place = Place(f"{zookeeper.hosts}/crash-{name}", str(tmp_path / name), tasks, kafka.bootstrap)
        with connect(place.hosts, session_timeout_s=100) as registry:
            prepare(place, registry)
        return place

    return make


def of_the_commit(stop: Stop) -> bool:
    """Whether a stop is one of the steps in which a round is decided; of the others the log's own flow tries all."""
    return stop.name.startswith(("kafka.", "round.", "ownership.fence", "ownership.resolve", "log.control_sync"))


@ALL
def test_a_killed_owner_is_taken_over_from_wherever_it_stopped(
    new_place: Callable[[int], Place], tasks: int, everywhere: bool
) -> None:
    problems = []
    for stop in stops_to_try(record(new_place(tasks), 1)):
        if everywhere or of_the_commit(stop):
            place = new_place(tasks)
            assert finish(start_owner(place, 1, stop)) == KILLED, stop
            assert own_to_the_end(place, 2) == FINISHED, stop
            problems += wrong(place, stop)
    expect_output(not problems, "\n".join(problems))


@ALL
def test_a_recovery_that_is_killed_is_recovered_from(
    new_place: Callable[[int], Place], tasks: int, everywhere: bool
) -> None:
    def crashed(base: Stop) -> Place:
        place = new_place(tasks)
        assert finish(start_owner(place, 1, base)) == KILLED
        return place

    problems = []
    for base in BASES if everywhere else (PREPARED, DECIDED):
        passed = record(crashed(base), 2)
        recovery = passed[: passed.index("kafka.produce:before")]
        for name, count in Counter(recovery).items():
            stop = Stop(name, "kill", (count + 1) // 2)
            if everywhere or of_the_commit(stop):
                place = crashed(base)
                assert finish(start_owner(place, 2, stop)) == KILLED, (base, stop)
                assert own_to_the_end(place, 3) == FINISHED, (base, stop)
                problems += wrong(place, (base, stop))
    expect_output(not problems, "\n".join(problems))


@ALL
def test_an_owner_that_lost_the_registrys_reply_finds_out_what_happened(
    new_place: Callable[[int], Place], tasks: int, everywhere: bool
) -> None:
    problems = []
    for stop in stops_to_try(record(new_place(tasks), 1)):
        registrys = stop.name.startswith(("round.", "ownership.fence", "ownership.begin"))
        if stop.name.endswith(":before") and (everywhere or registrys):
            place = new_place(tasks)
            first = finish(start_owner(place, 1, Stop(stop.name, "lose_reply", stop.occurrence)))
            if first != FINISHED:
                assert first in (STALE, UNREACHABLE), stop
                assert own_to_the_end(place, 2) == FINISHED, stop
            problems += wrong(place, stop)
    expect_output(not problems, "\n".join(problems))


@ALL
def test_a_stalled_owner_that_resumes_after_another_took_over_writes_nothing(
    new_place: Callable[[int], Place], tasks: int, everywhere: bool
) -> None:
    """SIGSTOP, another owner, SIGCONT: before and after each step of the commit. The late producer is alive."""
    problems = []
    for stop in stops_to_try(record(new_place(tasks), 1)):
        if everywhere or of_the_commit(stop):
            place = new_place(tasks)
            stalled = start_owner(place, 1, Stop(stop.name, "pause", stop.occurrence))
            assert wait_until_stopped(stalled), stop
            assert own_to_the_end(place, 2) == FINISHED, stop
            resume(stalled)
            finish(stalled)
            assert own_to_the_end(place, 3) == FINISHED, stop  # which would see what the stale one had put back
            problems += wrong(place, stop)
    expect_output(not problems, "\n".join(problems))


def test_an_owner_that_dies_while_the_broker_commits_is_taken_over(
    new_place: Callable[[int], Place], kafka: KafkaServer
) -> None:
    """The request is on its way, nobody has answered it: the broker may have committed, or not."""
    place = new_place(1)
    owner = start_owner(place, 1, Stop("kafka.commit:before", "pause", occurrence=2))
    assert wait_until_stopped(owner)
    assert kafka.pid is not None
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        resume(owner)
        wait_until(lambda: _unread_bytes(place.bootstrap) > 0, 60, "the request to reach the broker's socket")
        owner.kill()
        assert finish(owner) == KILLED
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    assert own_to_the_end(place, 2) == FINISHED
    assert not wrong(place, "within kafka.commit")


def _unread_bytes(address: str) -> int:
    """What clients have sent to a server on this machine that it has not read yet."""
    port = f"{int(address.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    connected = [row for row in rows if row[1].rpartition(":")[2] == port and row[3] == "01"]
    return sum(int(row[4].partition(":")[2], 16) for row in connected)


def test_every_effect_of_kafka_in_the_code_is_one_of_the_stops(new_place: Callable[[int], Place]) -> None:
    passed = set(record(new_place(1), 1))
    place = new_place(1)
    assert finish(start_owner(place, 1, DECIDED)) == KILLED
    passed.update(record(place, 2))
    tried = {name.rsplit(":", 1)[0] for name in passed}
    wanted = {name for name in failpoint_names() if name.startswith("kafka.")}
    assert sorted(wanted - tried) == sorted(ELSEWHERE)
    assert {"round.prepare", "ownership.resolve"} <= tried
