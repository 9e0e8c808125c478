"""Exactly once: an owner is stopped before and after every external effect of its rounds, and of its recovery.

The stops are not listed by hand: an undisturbed run is recorded, and every stop that it passes is tried; the last test
compares them with the failpoints that stand in the code. In every case the output, read back by content, must equal
that of an undisturbed run, order included, and the final files must say the same to a program that knows nothing of us.

Owners are simulated processes here; `test_round_processes.py` has real ones.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.crash.simulated import Stage, simulated
from tests.crash.stops import BASES, FINISHED, KILLED, STALE, Stop, stops_to_try
from tests.house.failpoints import failpoint_names

TASKS = pytest.mark.parametrize("tasks", [1, pytest.param(3, marks=pytest.mark.full)])

# Effects of the rooms of the round that are no part of a round or its recovery, and where they are stopped instead.
ELSEWHERE: dict[str, str] = {
    "files.finished_write": "a source with very many files: test_source_finished stops it at every step",
    "files.finished_sweep": "the same",
    "edits.write": "an operator edits the config: one transaction, or none (test_config_edits)",
    "edits.create": "the same",
    "rewind.commit": "an operator moves positions: one transaction, or none (test_rewind)",
    "rewind.create": "the same",
    "rewind.back": "the same",
    "deletion.begin": "an operator deletes a dataflow: test_deletion_overtaken stops him at every step",
    "deletion.back": "the same",
    "deletion.delete": "the same",
    "streams.put_together": "a master, or anybody, at any time: one transaction, or none (test_gone_streams)",
    "checkpoint.remove": "a dataflow with state is deleted or rewound: test_state_forgotten",
    "checkpoint.remove_directory": "the same",
    "checkpoint.remove_stale": "a task with state is taken over from a stale query: test_checkpoints",
    "state.divide": "a task with state has its partitions changed: test_divided_state_crashes",
    "checkpoint.take_schemas": "a task with state is taken over: test_stateful_crashes",
    "dafka.publish": "a round of a Dafka sink, on no sink of these: test_sink_dafka, test_simulation_dafka",
    "yarn.trace": "a container's launch on YARN, which has its own crashes: test_yarn_launcher",
    "yarn.trace_place": "the same",
    "yarn.start": "the same",
    "yarn.trace_end": "the same",
    "skein.add": "the same through skein: test_skein_launcher",
    "skein.trace_place": "the same",
    "log.bind_create": "a namespace is bound once, before there is any dataflow",
    "log.bind_logs": "the same",
    "log.bind_set": "the same",
    "log.bind_machine": "the same: test_log_machines",
    "log.copy_begin": "an operator copies a log, which nobody writes meanwhile: test_log_copied",
    "log.copy_segments": "the same",
    "log.copy_end": "the same",
    "log.migrate_begin": "an operator moves a namespace, which nobody writes meanwhile: test_log_migration",
    "log.migrate_end": "the same",
    "log.unmark": "the same",
    "log.cold_index": "a log goes to cold storage, beside its writer: test_log_cold_stops",
    "log.cold_mark": "the same: test_log_cold_away",
    "log.cold_mark_settle": "the same",
    "log.cold_unmark": "the same",
    "log.cold_emptied": "an operator deletes such a log: the same",
    "log.cold_remove": "a log goes to cold storage, beside its writer: test_log_cold_stops",
    "log.cold_write": "the same",
    "log.mark": "a namespace is bound; test_log_power_failure stops it at every step",
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
    "ownership.name_batch": "a task with state, which this flow has not: test_stateful_crashes",
    "proxy.owner_create": "a proxy, which no dataflow goes through: test_proxy_nodes stops it at every step",
    "proxy.owner_delete": "the same",
    "proxy.server_create": "the same",
    "proxy.server_delete": "the same",
    "proxy.server_set": "the same",
    "spark.log_commit": "a Spark job writes logs, and no dataflow: test_spark_log_commit",
}


def undisturbed(stage: Stage) -> list[str]:
    """The stops that an owner passes, in order, with repetitions."""
    owner = stage.own_to_the_end(1)
    assert owner.code == FINISHED
    return owner.passed


def recovered(base: Stop, stage: Stage) -> list[str]:
    """The stops of a recovery, up to the first commit after it."""
    assert stage.own_to_the_end(1, base).code == KILLED
    owner = stage.own_to_the_end(2)
    assert owner.code == FINISHED
    return owner.passed


def killed(stop: Stop, stage: Stage) -> list[str]:
    assert stage.own_to_the_end(1, stop).code == KILLED, stop
    assert stage.own_to_the_end(2).code == FINISHED, stop
    return stage.wrong(stop)


def killed_twice(base: Stop, stop: Stop, stage: Stage) -> list[str]:
    assert stage.own_to_the_end(1, base).code == KILLED
    assert stage.own_to_the_end(2, stop).code == KILLED, stop
    assert stage.own_to_the_end(3).code == FINISHED, stop
    return stage.wrong(stop)


def unanswered(stop: Stop, stage: Stage) -> list[str]:
    first = stage.own_to_the_end(1, stop)
    if first.code != FINISHED:
        assert first.code == STALE, stop
        assert stage.own_to_the_end(2).code == FINISHED, stop
    return stage.wrong(stop)


def paused(stop: Stop, stage: Stage) -> list[str]:
    stalled = stage.start(1, stop)
    assert stage.wait_until_paused(stalled), stop
    assert stage.own_to_the_end(2).code == FINISHED, stop
    stage.outlast_pause()
    stage.finish(stalled)
    # And a third one, which would read again whatever the stale one had put back.
    assert stage.own_to_the_end(3).code == FINISHED, stop
    return stage.wrong(stop)


@TASKS
def test_a_killed_owner_is_taken_over_from_wherever_it_stopped(tasks: int) -> None:
    problems = []
    for stop in stops_to_try(simulated(tasks, undisturbed)):
        problems += simulated(tasks, partial(killed, stop))
    assert not problems, "\n".join(problems)


@TASKS
@pytest.mark.parametrize("base", BASES, ids=["undecided", "committed", "unregistered"])
def test_a_recovery_that_is_killed_is_recovered_from(tasks: int, base: Stop) -> None:
    passed = simulated(tasks, partial(recovered, base))
    problems = []
    for stop in stops_to_try(passed[: passed.index("round.commit:before")]):
        problems += simulated(tasks, partial(killed_twice, base, stop))
    assert not problems, "\n".join(problems)


@TASKS
def test_an_owner_that_lost_the_registrys_reply_finds_out_what_happened(tasks: int) -> None:
    problems = []
    for stop in stops_to_try(simulated(tasks, undisturbed)):
        if stop.name.endswith(":before"):
            problems += simulated(tasks, partial(unanswered, stop.but("lose_reply")))
    assert not problems, "\n".join(problems)


@TASKS
def test_a_stalled_owner_that_resumes_after_another_took_over_writes_nothing(tasks: int) -> None:
    problems = []
    for stop in stops_to_try(simulated(tasks, undisturbed)):
        problems += simulated(tasks, partial(paused, stop.but("pause")))
    assert not problems, "\n".join(problems)


def test_every_effect_in_the_code_is_one_of_the_stops() -> None:
    passed: set[str] = {stop for tasks in (1, 3) for stop in simulated(tasks, undisturbed)}
    for base in BASES:
        passed.update(simulated(1, partial(recovered, base)))
    tried = {name.rsplit(":", 1)[0] for name in passed}
    assert sorted(set(failpoint_names()) - tried) == sorted(ELSEWHERE)
