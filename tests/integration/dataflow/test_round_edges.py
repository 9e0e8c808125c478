"""Rounds at the edges of what can happen to their streams, in one process, on real connectors and a real registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scribengin.connectors import Environment
from scribengin.connectors.contract import ReadSplit
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.descriptors import TaskAssignment, WorkerDescriptor
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView, Versioned
from scribengin.dataflow.round.commit_logs import TaskCommitLogs
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.errors import PositionTruncated
from scribengin.filesystems.local import LocalFileSystem
from scribengin.log import DLSN, LogNamespace
from scribengin.master.watching import DataflowWatcher
from scribengin.operations.delete import finish_rounds
from scribengin.testing.chaos_proxy import ChaosProxy, any_transaction
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown
from scribengin_registry.opening import connect
from tests.integration.owners import owners_of


class Copy:
    """Every payload to every sink."""

    def __init__(self, *sinks: str) -> None:
        self._sinks = sinks

    def run(self, inputs: Mapping[str, Sequence[ReadSplit]]) -> dict[str, list[pa.RecordBatch]]:
        read = [batch.select(["payload"]) for split in inputs["in"] for batch in split.read()]
        return dict.fromkeys(self._sinks, read)

    def undecodable(self, _inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        return {}

    def raising(self, _inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        return {}

    def run_tables(self, inputs: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        return dict.fromkeys(self._sinks, inputs["in"].select(["payload"]).to_batches())


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    """The namespace that the dataflows below read and write, with an empty log `in/0`."""
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    with LogNamespace.open("/logs", registry=registry) as opened:
        opened.create("in/0")
        yield opened


def resources(
    registry: Registry, sink: Mapping[str, Any], *, before: Mapping[str, Any] | None = None, **source: Any
) -> OpenedDataflow:
    """`before`: another sink, `first`, whose streams are recovered before those of `out`."""
    sinks = {"out": dict(sink)} if before is None else {"first": dict(before), "out": dict(sink)}
    config = DataflowConfig.parse(
        {
            "name": "flow",
            "sources": {"in": {"kind": "log", "logs": "in/*", **source}},
            "sinks": sinks,
            "sql": dict.fromkeys(sinks, "SELECT payload FROM in"),
        },
        source="the test",
    )
    return OpenedDataflow(config, Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES))


LOG_SINK = {"kind": "log", "log": "out"}


def owner(registry: Registry, opened: OpenedDataflow, generation: int) -> RoundRunner:
    (taken,) = owners_of(registry, opened, Copy(*opened.sinks), owner=f"owner-{generation}", generation=generation)
    taken.take_over()
    return taken


def append(namespace: LogNamespace, numbers: range) -> None:
    with namespace.open_writer("in/0") as writer:
        payloads = pa.array([str(n).encode() for n in numbers], pa.binary())
        writer.write_bulk(pa.record_batch([payloads], names=["payload"])).result(120)


def delivered(opened: OpenedDataflow) -> list[int]:
    stream = opened.sink_streams(1)["out"][0]
    return [int(p) for batch in opened.sinks["out"].committed(stream) for p in batch.column("payload").to_pylist()]


def test_latest_is_where_the_dataflow_began_also_for_whoever_takes_over_before_the_first_commit(
    registry: Registry, namespace: LogNamespace
) -> None:
    append(namespace, range(5))
    with resources(registry, LOG_SINK, start="latest") as opened:
        first = owner(registry, opened, 1)
        append(namespace, range(5, 15))
        first.close()
        second = owner(registry, opened, 2)
        second.run_round()
        assert delivered(opened) == list(range(5, 15))


def test_a_round_runs_once_though_nodes_of_others_streams_are_deleted_meanwhile(
    registry: Registry, namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink without transactions has written its records by the time of the commit."""
    append(namespace, range(10))
    runs: list[int] = []
    run = Copy.run

    def counted(self: Copy, inputs: Mapping[str, Sequence[ReadSplit]]) -> dict[str, list[pa.RecordBatch]]:
        runs.append(len(runs))
        return run(self, inputs)

    monkeypatch.setattr(Copy, "run", counted)
    began: list[str] = []

    def another_era(stop: str) -> None:
        registry.commit([DataflowView(registry, "flow").next_era("in")])
        began.append(stop)

    with resources(registry, LOG_SINK) as opened:
        with at_failpoint("ownership.begin:before", another_era):
            taken = owner(registry, opened, 1)
        with at_failpoint("round.commit:before", another_era):
            outcome = taken.run_round()
        assert began == ["ownership.begin:before", "round.commit:before"]
        assert outcome is not None
        assert (outcome.round, len(runs)) == (1, 1)
        assert delivered(opened) == list(range(10))


def test_a_log_that_was_deleted_and_created_again_is_not_taken_for_the_one_that_was_read(
    registry: Registry, namespace: LogNamespace
) -> None:
    append(namespace, range(10))
    with resources(registry, LOG_SINK) as opened:
        first = owner(registry, opened, 1)
        first.run_round()
        first.release()
        first.close()
        namespace.delete("in/0")
        namespace.create("in/0")
        append(namespace, range(100, 110))
        with pytest.raises(PositionTruncated, match="'in/0' was deleted and created again"):
            owner(registry, opened, 2).run_round()
        assert delivered(opened) == list(range(10))


def test_a_log_may_be_truncated_up_to_the_first_record_that_was_not_read(
    registry: Registry, namespace: LogNamespace
) -> None:
    append(namespace, range(10))
    with resources(registry, LOG_SINK) as opened:
        task = owner(registry, opened, 1)
        task.run_round()
        append(namespace, range(10, 20))
        namespace.truncate("in/0", DLSN(2, 0, 0))
        task.run_round()
        assert delivered(opened) == list(range(20))


def test_a_rename_by_the_owner_before_is_durable_before_the_commit_that_forgets_it(
    registry: Registry, namespace: LogNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = LocalFileSystem.sync_directory

    def recording(self: LocalFileSystem, path: str) -> None:
        synced.append(path)
        sync(self, path)

    monkeypatch.setattr(LocalFileSystem, "sync_directory", recording)
    append(namespace, range(10))
    with resources(registry, {"kind": "hdfs", "path": str(tmp_path / "files")}) as opened:
        first = owner(registry, opened, 1)
        first.run_round()
        first.release()
        first.close()
        append(namespace, range(10, 20))
        second = owner(registry, opened, 2)
        synced.clear()
        second.run_round()
        assert str(tmp_path / "files" / "_scribengin" / "committed" / "0") in synced


def killed_behind_its_commit(registry: Registry, opened: OpenedDataflow) -> DataflowView:
    """A dataflow whose only owner died when its round was committed and not completed."""

    class Killed(BaseException):
        pass

    def die(_stop: str) -> None:
        raise Killed

    view = DataflowView(registry, "flow")
    view.submit(opened.config, [sink.resource for sink in opened.sinks.values()], now_ms=1)
    view.commit_placement(view.placement_head(), view.creation_of_tasks(opened.tasks()))
    first = owner(registry, opened, 1)
    with at_failpoint("round.commit:after", die), pytest.raises(Killed):
        first.run_round()
    head = view.placement_head()
    view.commit_placement(Versioned(head.value.model_copy(update={"next_generation": 2}), head.version), [])
    return view


def test_what_was_committed_and_not_completed_is_completed_before_a_dataflow_is_deleted(
    registry: Registry, namespace: LogNamespace
) -> None:
    append(namespace, range(10))
    with resources(registry, LOG_SINK) as opened:
        view = killed_behind_its_commit(registry, opened)
        assert delivered(opened) == []
        finish_rounds(view)
        assert delivered(opened) == list(range(10))


def test_a_sink_that_is_gone_does_not_keep_the_others_of_its_task_from_being_settled(
    registry: Registry, namespace: LogNamespace, tmp_path: Path
) -> None:
    append(namespace, range(10))
    files = {"kind": "hdfs", "path": str(tmp_path / "files")}
    with resources(registry, files, before=LOG_SINK) as opened:
        view = killed_behind_its_commit(registry, opened)
        namespace.delete("out/0", force=True)
        finish_rounds(view)
        assert delivered(opened) == list(range(10))


def test_a_master_reads_a_worker_whose_removal_was_cut_short(registry: Registry, namespace: LogNamespace) -> None:
    with resources(registry, LOG_SINK) as opened:
        view = DataflowView(registry, "flow")
        view.submit(opened.config, [], now_ms=1)
    executors = ("executor-1", "executor-2")
    view.register_worker(
        WorkerDescriptor(name="w1", container="w1", host="h", pid=1, executors=executors, started_ms=1)
    )
    assignment = TaskAssignment(task="task-0", generation=1)
    registry.create(view.paths.assignment("w1", "executor-2", "task-0"), assignment.to_bytes())
    registry.delete(view.paths.executor("w1", "executor-1"))
    snapshot = DataflowWatcher(view, lambda _look: None).snapshot([])
    assert [placement.assignment for placement in snapshot.placements] == [assignment]


def test_an_owner_that_nobody_replaced_is_told_of_a_lost_reply_and_not_that_it_is_stale(
    registry: Registry, registry_hosts: str
) -> None:
    address, _, chroot = registry_hosts.partition("/")
    with ChaosProxy(address) as proxy, connect(f"{proxy.address}/{chroot}") as flapping:
        ownership = TaskCommitLogs(flapping, "flow", "task-0", "owner-1", 1, ["/scribengin/locks/sources/flow.in/0"])
        ownership.take()
        proxy.drop_next_reply(to=any_transaction)
        with pytest.raises(OutcomeUnknown):
            ownership.begin({"/scribengin/locks/sources/flow.in/0/commit-log": {"at": 0}})
        ownership.take()
        assert ownership.logs["/scribengin/locks/sources/flow.in/0/commit-log"].position == {"at": 0}
