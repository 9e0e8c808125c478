"""Exactly once: an owner is stopped before and after every external effect of its rounds, and of its recovery.

The stops are not listed by hand: an undisturbed run is recorded, and every stop that it passes is tried; the last test
compares them with the failpoints that stand in the code. In every case the output, read back by content, must equal
that of an undisturbed run, order included, and the final files must say the same to a program that knows nothing of us.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.opening import connect
from tests.crash.flow import PADDING, Place, expected, files_as_others_see_them, outputs, prepare
from tests.crash.processes import (
    FINISHED,
    KILLED,
    STALE,
    Stop,
    finish,
    own_to_the_end,
    resume,
    start_owner,
    wait_until_stopped,
)
from tests.house.failpoints import failpoint_names
from tests.stalls import expect_output

pytestmark = pytest.mark.timeout(900)
TASKS = pytest.mark.parametrize("tasks", [1, 3])

# Moments that leave a recovery something to decide: output that is staged, and not committed or just committed; a
# segment file that nobody has registered.
UNDECIDED = Stop("round.commit:before", "kill", occurrence=2)
COMMITTED = Stop("round.commit:after", "kill", occurrence=2)
UNREGISTERED = Stop("log.segment_register:before", "kill", occurrence=1)
BASES = (UNDECIDED, COMMITTED, UNREGISTERED)

# Effects of the rooms of the round that are no part of a round or its recovery, and where they are stopped instead.
ELSEWHERE: dict[str, str] = {
    "files.finished_write": "a source with very many files: test_source_finished stops it at every step",
    "files.finished_sweep": "the same",
    "edits.write": "an operator edits the config: one transaction, or none (test_config_edits)",
    "edits.create": "the same",
    "rewind.commit": "an operator moves positions: one transaction, or none (test_rewind)",
    "rewind.create": "the same",
    "rewind.back": "the same",
    "yarn.trace": "a container's launch on YARN, which has its own crashes: test_yarn_launcher",
    "yarn.trace_place": "the same",
    "yarn.start": "the same",
    "yarn.trace_end": "the same",
    "skein.add": "the same through skein: test_skein_launcher",
    "skein.trace_place": "the same",
    "log.bind_create": "a namespace is bound once, before there is any dataflow",
    "log.bind_logs": "the same",
    "log.bind_set": "the same",
    "log.mark": "the same; test_log_power_failure stops it at every step",
    "log.segment_settle": "a log without fsync, which no sink of the crash tests is: test_log_power_failure",
    "log.waiting_join": "somebody waits for a log; dataflows steal it: test_log_fencing",
    "log.waiting_leave": "the same",
    "log.waiting_make": "the same",
    "log.commit_log_fence": "recovery by somebody who owns no task: test_log_staged",
    "log.delete": "an operator deletes a log, which no dataflow uses",
    "log.delete_rest": "the same: test_log_many_segments",
    "log.log_directory_remove": "the same",
    "log.configure": "an operator changes a log's configuration, in one atomic step",
    "log.segment_move": "a registry went back, and files are set aside: test_log_restored",
    "log.take_back": "the same",
    "log.reader_move": "somebody who moves a reader; a dataflow moves by its commit log: test_log_registered_readers",
    "log.reader_unregister": "a dataflow is deleted, or somebody else stops reading: the same",
    "log.reader_lock": "a subscriber's lock, which dataflows do not take: test_log_reader_lock",
    "log.reader_node": "the same",
    "log.reader_unlock": "the same",
    "log.offsets_clean": "a reader outside of any dataflow keeps its position: test_log_client_stored",
    "log.offsets_create": "the same",
    "log.offsets_delete": "the same",
    "log.offsets_node_delete": "the same",
    "log.offsets_rename": "the same",
    "log.offsets_set": "the same",
    "log.offsets_set_again": "the same",
    "log.offsets_write": "the same",
    "log.index_save": "a reader keeps an index that it has rebuilt: a hint, checked row by row",
    "spark.table_write": "a Spark table as a sink is at least once: test_spark_tables_kill",
    "kafka.abort": "Kafka decides about another flow's rounds: test_kafka_crashes",
    "kafka.commit": "the same",
    "kafka.establish": "the same",
    "kafka.init": "the same",
    "kafka.prepare": "the same",
    "kafka.produce": "the same",
    "kafka.produce_at_once": "the same",
    "kafka.stream_create": "the same",
    "kafka.topic_create": "the same",
    "ownership.resolve": "the same",
    "round.prepare": "the same",
    "spark.log_commit": "a Spark job writes logs, and no dataflow: test_spark_log_commit",
}


@pytest.fixture
def new_place(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Callable[[int], Place]:
    """Make a place of its own for each case: a registry chroot, a directory, filled input logs."""

    def make(tasks: int) -> Place:
        name = uuid.uuid4().hex[:12]
        place = Place(f"{zookeeper.hosts}/crash-{name}", str(tmp_path / name), tasks)
        with connect(place.hosts, session_timeout_s=100) as registry:
            prepare(place, registry)
        return place

    return make


def record(place: Place, generation: int) -> list[str]:
    """The stops that an owner passes from here to the end, in order, with repetitions."""
    passed = Path(place.directory) / f"stops-{generation}"
    assert finish(start_owner(place, generation, record_to=passed)) == FINISHED
    return passed.read_text().split("\n")


def wrong(place: Place, case: object) -> list[str]:
    """What is not as in an undisturbed run: empty when everything is there once and in order."""
    with connect(place.hosts, session_timeout_s=100) as registry:
        found = {name: [numbered(row) for row in rows] for name, rows in outputs(registry, place).items()}
    wanted = {name: [numbered(row) for row in rows] for name, rows in expected(place).items()}
    problems = [f"{case}: {name} holds {found.get(name)}" for name, rows in wanted.items() if found.get(name) != rows]
    if place.bootstrap:
        return problems
    lines = Counter(row for name, rows in wanted.items() if name.startswith("odd/") for row in rows)
    seen = Counter(numbered(json.loads(line)) for line in files_as_others_see_them(place).elements())
    if seen != lines:
        problems.append(f"{case}: the final files hold {seen}")
    return problems


def numbered(row: dict[str, object]) -> str:
    """A record in short, for messages; the padding is the same in all."""
    return f"{row['log']}:{row['n']}" + ("" if row["padding"] == PADDING else " damaged")


def stops_to_try(passed: list[str]) -> list[Stop]:
    """Each stop once, at the middle one of its passings: there is something behind it and something before it."""
    counted = Counter(passed)
    return [Stop(name, "kill", (count + 1) // 2) for name, count in counted.items()]


@TASKS
def test_a_killed_owner_is_taken_over_from_wherever_it_stopped(new_place: Callable[[int], Place], tasks: int) -> None:
    problems = []
    for stop in stops_to_try(record(new_place(tasks), 1)):
        place = new_place(tasks)
        assert finish(start_owner(place, 1, stop)) == KILLED, stop
        assert own_to_the_end(place, 2) == FINISHED, stop
        problems += wrong(place, stop)
    expect_output(not problems, "\n".join(problems))


@TASKS
@pytest.mark.parametrize("base", BASES, ids=["undecided", "committed", "unregistered"])
def test_a_recovery_that_is_killed_is_recovered_from(new_place: Callable[[int], Place], tasks: int, base: Stop) -> None:
    def crashed() -> Place:
        place = new_place(tasks)
        assert finish(start_owner(place, 1, base)) == KILLED
        return place

    passed = record(crashed(), 2)
    recovery = passed[: passed.index("round.commit:before")]
    problems = []
    for name, count in Counter(recovery).items():
        place = crashed()
        stop = Stop(name, "kill", (count + 1) // 2)
        assert finish(start_owner(place, 2, stop)) == KILLED, stop
        assert own_to_the_end(place, 3) == FINISHED, stop
        problems += wrong(place, stop)
    expect_output(not problems, "\n".join(problems))


@TASKS
def test_an_owner_that_lost_the_registrys_reply_finds_out_what_happened(
    new_place: Callable[[int], Place], tasks: int
) -> None:
    problems = []
    tried = [s for s in stops_to_try(record(new_place(tasks), 1)) if s.name.endswith(":before")]
    for stop in tried:
        place = new_place(tasks)
        first = finish(start_owner(place, 1, Stop(stop.name, "lose_reply", stop.occurrence)))
        if first != FINISHED:
            assert first == STALE, stop
            assert own_to_the_end(place, 2) == FINISHED, stop
        problems += wrong(place, stop)
    expect_output(not problems, "\n".join(problems))


@TASKS
def test_a_stalled_owner_that_resumes_after_another_took_over_writes_nothing(
    new_place: Callable[[int], Place], tasks: int
) -> None:
    problems = []
    for stop in stops_to_try(record(new_place(tasks), 1)):
        place = new_place(tasks)
        stalled = start_owner(place, 1, Stop(stop.name, "pause", stop.occurrence))
        assert wait_until_stopped(stalled), stop
        assert own_to_the_end(place, 2) == FINISHED, stop
        resume(stalled)
        finish(stalled)
        # And a third one, which would read again whatever the stale one had put back.
        assert own_to_the_end(place, 3) == FINISHED, stop
        problems += wrong(place, stop)
    expect_output(not problems, "\n".join(problems))


def test_every_effect_in_the_code_is_one_of_the_stops(new_place: Callable[[int], Place]) -> None:
    passed: set[str] = {stop for tasks in (1, 3) for stop in record(new_place(tasks), 1)}
    for base in BASES:
        place = new_place(1)
        assert finish(start_owner(place, 1, base)) == KILLED
        passed.update(record(place, 2))
    tried = {name.rsplit(":", 1)[0] for name in passed}
    assert sorted(set(failpoint_names()) - tried) == sorted(ELSEWHERE)
