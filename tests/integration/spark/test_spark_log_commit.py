"""How the output of a Spark job gets into logs: whole or not at all, a micro-batch once, wherever a process dies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.base.failpoints import set_hook
from scribengin.errors import LogError, OwnershipAcquireFailed, RecordTooLarge
from scribengin.log import LogConfig, LogNamespace
from scribengin.spark.log_format.commit import JobCommit
from scribengin.testing.failpoints import at_failpoint, record_stops
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown
from scribengin_registry.opening import connect

LOGS = ("a", "b")
Output = dict[str, list[bytes]]
FIRST: Output = {"a": [b"a1", b"a2"], "b": [b"b1"]}
SECOND: Output = {"a": [b"a3"], "b": [b"b2", b"b3"]}
BOTH: Output = {log: FIRST[log] + SECOND[log] for log in LOGS}


class Crash(BaseException):
    """Ends a process, as far as the world outside can tell: from then on it changes nothing."""


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", *LOGS)


def batches(output: Output, suffix: str = "") -> Callable[[str], Iterator[pa.RecordBatch]]:
    return lambda log: (payload_batch([payload]) for payload in output.get(log.removesuffix(suffix), ()))


def commit(
    hosts: str,
    number: int,
    output: Output,
    *,
    writer: str = "stream",
    suffix: str = "",
    timeout_s: float = 10.0,
    query: str = "query-1",
) -> None:
    """What a process beside Spark's driver does: with a session of its own, which ends with it."""
    with connect(hosts) as session:
        namespace = LogNamespace.open("/logs", registry=session)
        logs = [f"{log}{suffix}" for log in LOGS]
        JobCommit(namespace, session, writer, logs, query=query, timeout_s=timeout_s).commit(
            number, batches(output, suffix)
        )


def written(namespace: LogNamespace, suffix: str = "") -> Output:
    return {log: payloads_read(namespace, f"{log}{suffix}") for log in LOGS}


def die_at(stop: str, occurrence: int) -> None:
    """From there on, nothing that changes the outside world succeeds, however the program tries to clean up."""
    seen = 0

    def hook(passed: str) -> None:
        nonlocal seen
        seen += seen < occurrence and passed == stop
        if seen >= occurrence:
            raise Crash

    set_hook(hook)


def first_and_last(passed: list[str]) -> list[tuple[int, str]]:
    """Of every stop that was passed, where it was passed first and last: in the first log and in the last one."""
    last = len(passed) - 1
    places = {passed.index(stop) for stop in passed} | {last - passed[::-1].index(stop) for stop in passed}
    return [(at, passed[at]) for at in sorted(places)]


def last_of_each(passed: list[str]) -> list[tuple[int, str]]:
    """Every stop where it was passed last."""
    last = len(passed) - 1
    return sorted((last - passed[::-1].index(stop), stop) for stop in set(passed))


def test_micro_batches_are_written_once_and_in_order(namespace: LogNamespace, registry_hosts: str) -> None:
    commit(registry_hosts, 0, FIRST)
    commit(registry_hosts, 1, SECOND)
    commit(registry_hosts, 1, SECOND)
    assert written(namespace) == BOTH
    commit(registry_hosts, 7, {"b": [b"b4"]})
    assert written(namespace) == {"a": BOTH["a"], "b": [*BOTH["b"], b"b4"]}


@pytest.mark.parametrize(
    ("outsider", "places"),
    [
        (True, last_of_each),
        *(pytest.param(outsider, first_and_last, marks=pytest.mark.full) for outsider in (True, False)),
    ],
)
def test_wherever_a_process_dies_a_micro_batch_is_whole_or_absent_and_written_once(
    namespace: LogNamespace, registry_hosts: str, outsider: bool, places: Callable[[list[str]], list[tuple[int, str]]]
) -> None:
    """With `outsider`, somebody else writes the logs before the stream is back: who recovers decides as the stream."""
    for log in LOGS:
        namespace.create(f"{log}-model")
    commit(registry_hosts, 0, FIRST, writer="model", suffix="-model")
    with record_stops() as passed:
        commit(registry_hosts, 1, SECOND, writer="model", suffix="-model")
    decided_at = passed.index("spark.log_commit:after")
    for at, stop in places(passed):
        suffix = f"-{at}"
        for log in LOGS:
            namespace.create(f"{log}{suffix}")
        commit(registry_hosts, 0, FIRST, writer=suffix, suffix=suffix)
        die_at(stop, passed[: at + 1].count(stop))
        try:
            with pytest.raises(Crash):
                commit(registry_hosts, 1, SECOND, writer=suffix, suffix=suffix)
        finally:
            set_hook(None)
        second = SECOND
        if outsider:
            for log in LOGS:
                with namespace.open_writer(f"{log}{suffix}") as writer:
                    writer.write(b"-").result(120)
            second = {log: [*SECOND[log], b"-"] if at >= decided_at else [b"-", *SECOND[log]] for log in LOGS}
        for _turn in range(2):
            commit(registry_hosts, 1, SECOND, writer=suffix, suffix=suffix)
            assert written(namespace, suffix) == {log: FIRST[log] + second[log] for log in LOGS}, stop


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_reply_is_settled_and_not_repeated(namespace: LogNamespace, registry_hosts: str, when: str) -> None:
    def lose(_stop: str) -> None:
        raise OutcomeUnknown("the reply was lost")

    commit(registry_hosts, 0, FIRST)
    with at_failpoint(f"spark.log_commit:{when}", lose):
        commit(registry_hosts, 1, SECOND)
    assert written(namespace) == BOTH


@pytest.mark.parametrize("when", ["before", "after"])
def test_who_takes_a_log_by_force_leaves_the_micro_batch_whole(
    namespace: LogNamespace, registry_hosts: str, when: str
) -> None:
    def steal(_stop: str) -> None:
        with namespace.open_writer("b", steal=True) as writer:
            writer.write(b"stolen").result(120)

    commit(registry_hosts, 0, FIRST)
    with at_failpoint(f"spark.log_commit:{when}", steal):
        commit(registry_hosts, 1, SECOND)
    second = [b"stolen", *SECOND["b"]] if when == "before" else [*SECOND["b"], b"stolen"]
    assert written(namespace) == {"a": BOTH["a"], "b": FIRST["b"] + second}


def test_two_processes_with_the_same_stream_write_a_micro_batch_once(
    namespace: LogNamespace, registry_hosts: str
) -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            for number, output in enumerate((FIRST, SECOND)):
                commit(registry_hosts, number, output)
        except LogError as error:  # the other one is ahead by more than one
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert written(namespace) == BOTH
    assert len(failed) <= 1


def test_an_old_checkpoint_is_refused_instead_of_passed_over(namespace: LogNamespace, registry_hosts: str) -> None:
    commit(registry_hosts, 5, FIRST)
    with pytest.raises(LogError, match=r"micro-batch 3 of the writer 'stream' comes after micro-batch 5.*writerId"):
        commit(registry_hosts, 3, SECOND)
    commit(registry_hosts, 3, SECOND, writer="another")
    assert written(namespace) == BOTH


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_new_checkpoint_under_an_old_writer_id_is_refused_whatever_its_micro_batch_is_called(
    namespace: LogNamespace, registry_hosts: str, number: int
) -> None:
    """Its count begins at 0 again: what is called like the last micro-batch is not that one."""
    commit(registry_hosts, 0, FIRST)
    if number:
        commit(registry_hosts, 1, SECOND)
    before = written(namespace)
    said = r"'stream' is query query-1's.*query query-2, with another checkpoint.*checkpoint of query-1.*writerId"
    with pytest.raises(LogError, match=said):
        commit(registry_hosts, number, {"a": [b"new"]}, query="query-2")
    assert written(namespace) == before
    commit(registry_hosts, number, {"a": [b"new"]}, query="query-2", writer="another")
    assert written(namespace) == {**before, "a": [*before["a"], b"new"]}


def test_the_query_is_known_of_the_log_that_it_wrote_last(namespace: LogNamespace, registry_hosts: str) -> None:
    with connect(registry_hosts) as session:
        here = LogNamespace.open("/logs", registry=session)
        JobCommit(here, session, "stream", ["a"], query="query-1", timeout_s=1.0).commit(0, batches(FIRST))
        with pytest.raises(LogError, match="query-1"):
            JobCommit(here, session, "stream", ["a", "b"], query="query-2", timeout_s=1.0).commit(0, batches(SECOND))
    assert written(namespace) == {"a": FIRST["a"], "b": []}


def test_rows_that_a_log_refuses_leave_nothing_behind(registry: Registry, tmp_path: Path, registry_hosts: str) -> None:
    namespace = bound_namespace(registry, tmp_path / "store", *LOGS, config=LogConfig(record_bytes_max=4))
    with pytest.raises(RecordTooLarge):
        commit(registry_hosts, 0, {"a": [b"a1"], "b": [b"too long"]})
    assert written(namespace) == {"a": [], "b": []}
    commit(registry_hosts, 0, FIRST)
    assert written(namespace) == FIRST


def test_a_log_that_somebody_writes_is_waited_for(namespace: LogNamespace, registry_hosts: str) -> None:
    with namespace.open_writer("b"), pytest.raises(OwnershipAcquireFailed):
        commit(registry_hosts, 0, FIRST, timeout_s=0.0)
    assert written(namespace) == {"a": [], "b": []}
    commit(registry_hosts, 0, FIRST)
    assert written(namespace) == FIRST


def test_more_and_fewer_logs_do_not_confuse_the_count(namespace: LogNamespace, registry_hosts: str) -> None:
    with connect(registry_hosts) as session:
        here = LogNamespace.open("/logs", registry=session)
        JobCommit(here, session, "stream", ["a"], query="query-1", timeout_s=1.0).commit(0, batches(FIRST))
        JobCommit(here, session, "stream", ["a", "b"], query="query-1", timeout_s=1.0).commit(1, batches(SECOND))
        JobCommit(here, session, "stream", ["a", "b"], query="query-1", timeout_s=1.0).commit(1, batches(SECOND))
    assert written(namespace) == {"a": BOTH["a"], "b": SECOND["b"]}


def test_a_session_with_another_root_settles_what_was_left(namespace: LogNamespace, registry_hosts: str) -> None:
    """Spark's session sees the whole registry; an operator's may begin further down."""
    hosts, _slash, root = registry_hosts.partition("/")
    die_at("log.stage_sync:after", 1)
    try:
        with connect(hosts) as session:
            whole = LogNamespace.open(f"/{root}/logs", registry=session)
            job = JobCommit(whole, session, "stream", LOGS, query="query-1", timeout_s=1.0)
            with pytest.raises(Crash):
                job.commit(0, batches(FIRST))
    finally:
        set_hook(None)
    with namespace.open_writer("a") as writer:
        writer.write(b"after").result(120)
    assert payloads_read(namespace, "a") == [b"after"]


def test_a_job_that_is_done_leaves_no_node_behind(namespace: LogNamespace, registry: Registry) -> None:
    job = JobCommit(namespace, registry, "job-1", LOGS, query="query-1", timeout_s=1.0)
    job.commit(0, batches(FIRST))
    assert registry.children("/logs/spark") == ["job-1"]
    job.forget()
    job.forget()
    assert registry.children("/logs/spark") == []
    with namespace.open_writer("a") as writer:
        writer.write(b"next").result(120)
    assert payloads_read(namespace, "a") == [*FIRST["a"], b"next"]


def test_a_job_that_failed_forgets_nothing_that_a_log_still_asks_for(
    namespace: LogNamespace, registry: Registry, registry_hosts: str
) -> None:
    die_at("spark.log_commit:before", 1)
    try:
        with pytest.raises(Crash):
            commit(registry_hosts, 0, FIRST, writer="job-1")
    finally:
        set_hook(None)
    job = JobCommit(namespace, registry, "job-1", LOGS, query="query-1", timeout_s=10.0)
    job.forget_unless_committed()
    for log in LOGS:
        with namespace.open_writer(log) as writer:
            writer.write(b"\xff").result(60)
    assert written(namespace) == {log: [b"\xff"] for log in LOGS}
    assert registry.children("/logs/spark/job-1") == sorted(LOGS)
    job.forget_unless_committed()
    assert registry.find("/logs/spark/job-1") is None
