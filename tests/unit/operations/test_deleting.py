"""Deleting a dataflow, and what others do to it meanwhile: whatever comes in between, nothing half deleted runs, and
nothing is deleted that nobody meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.deletion import delete_nodes
from scribengin.dataflow.registry.descriptors import WorkerDescriptor
from scribengin.dataflow.registry.view import DataflowView, dataflow_names, new_master_name
from scribengin.dataflow.round.commit_logs import TaskCommitLogs
from scribengin.errors import DataflowBusy, StaleOwner
from scribengin.log import LogNamespace
from scribengin.operations import lifecycle
from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.registry import create_chain, descriptor_of
from scribengin.operations.chain.submit import submit_chain
from scribengin.operations.delete import delete_dataflow
from scribengin.operations.lifecycle import kill_dataflow, start_again
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_registry.contract import Delete, Operation
from scribengin_registry.errors import NodeMissing, VersionConflict
from scribengin_tools.web.actions import WebActions
from tests.unit.operations.deletion import NODES, POSITION, RESOURCE, STREAM, Steps, put, tree


@pytest.fixture
def ensemble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryEnsemble:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path))
    return MemoryEnsemble()


@pytest.fixture
def registry(ensemble: MemoryEnsemble) -> Iterator[MemoryRegistry]:
    disk = MemoryDisk("deleting")
    with ensemble.connect() as session:
        LogNamespace.bind("/logs", disk.name, registry=session, store=MEMORY_STORE)
        yield session


def cut_at(view: DataflowView, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deletion dies just before that node would go."""

    def doomed(gone: list[str]) -> None:
        if path in gone:
            raise SystemExit

    delete, commit = MemoryRegistry.delete, MemoryRegistry.commit

    def deleting(session: MemoryRegistry, gone: str, *args: Any, **options: Any) -> None:
        doomed([gone])
        delete(session, gone, *args, **options)

    def committing(session: MemoryRegistry, operations: Sequence[Operation]) -> list[int]:
        doomed([one.path for one in operations if isinstance(one, Delete)])
        return commit(session, operations)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryRegistry, "delete", deleting)
        patch.setattr(MemoryRegistry, "commit", committing)
        with pytest.raises(SystemExit):
            delete_nodes(view)


def cut_short(view: DataflowView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deletion dies when positions are gone, and its own nodes are not."""
    cut_at(view, view.paths.root, monkeypatch)


@pytest.mark.parametrize("at", [POSITION, paths.sink_resource(RESOURCE), NODES.placement, NODES.workers, NODES.root])
def test_what_is_half_deleted_stays_so_when_it_is_killed(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: str
) -> None:
    view = put(registry)
    registry.create(POSITION, b"{}", parents=True)
    cut_at(view, at, monkeypatch)
    killed = kill_dataflow(registry, "delays", tmp_path)
    assert "`scribengin delete delays` ends it" in killed.line
    assert view.status().state == "deleting"
    with pytest.raises(DataflowBusy, match="`scribengin delete delays` ends it"):
        start_again(view, tmp_path)
    delete_dataflow(view, force=False)
    assert dataflow_names(registry) == []


@pytest.mark.parametrize("at", [POSITION, paths.sink_resource(RESOURCE), NODES.placement, NODES.workers])
def test_the_page_refuses_an_edit_of_what_is_half_deleted(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    view = put(registry)
    registry.create(POSITION, b"{}", parents=True)
    cut_at(view, at, monkeypatch)
    page = WebActions(registry)
    shown = page.config("delays")
    assert "`scribengin delete delays` ends it" in page.check("delays", shown["text"], shown["version"])["error"]


@pytest.mark.parametrize("ends", [False, True])
def test_what_is_deleted_while_it_is_being_killed_is_not_killed_then(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: bool
) -> None:
    view = put(registry, "running")

    def meanwhile(*_args: object) -> list[object]:
        if ends:
            delete_nodes(view)
        else:
            cut_short(view, monkeypatch)
        return []

    monkeypatch.setattr(lifecycle, "kill_containers", meanwhile)
    kill_dataflow(registry, "delays", tmp_path)
    assert [DataflowView(registry, name).status().state for name in dataflow_names(registry)] == ["deleting"][ends:]


def test_what_was_submitted_again_while_it_was_being_killed_is_not_said_to_be_killed(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    view = put(registry, "running")

    def meanwhile(*_args: object) -> list[object]:
        delete_nodes(view)
        put(registry, "running", now_ms=2)
        return []

    monkeypatch.setattr(lifecycle, "kill_containers", meanwhile)
    kill_dataflow(registry, "delays", tmp_path)
    assert (view.status().state, view.history().events) == ("running", ())


def test_what_a_master_says_while_a_dataflow_is_being_killed_is_not_the_last_word(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    view = put(registry, "running")

    def meanwhile(*_args: object) -> list[object]:
        view.set_status(view.status().model_copy(update={"state": "stopping", "error": "all at once"}))
        return []

    monkeypatch.setattr(lifecycle, "kill_containers", meanwhile)
    kill_dataflow(registry, "delays", tmp_path)
    assert (view.status().state, view.status().error) == ("killed", "all at once")
    assert [event.kind for event in view.history().events] == ["killed"]


def test_a_start_that_the_deletion_overtakes_does_not_take_its_mark_away(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    view = put(registry)

    def overtaken(there: DataflowView) -> str:
        name = new_master_name(there)
        cut_short(view, monkeypatch)
        return name

    monkeypatch.setattr("scribengin.operations.submit.submit.new_master_name", overtaken)
    with pytest.raises(DataflowBusy, match="`scribengin delete delays` ends it"):
        start_again(DataflowView(registry, "delays"), tmp_path)
    assert view.status().state == "deleting"


class Worker:
    """One that nobody could reach: it goes on as long as it can, from where its commit logs say."""

    def __init__(self, registry: MemoryRegistry, name: str, generation: int) -> None:
        view = DataflowView(registry, "delays")
        described = WorkerDescriptor(name=name, container="c", host="h", pid=1, executors=("e",), started_ms=1)
        with suppress(NodeMissing):
            view.register_worker(described)
        streams = [STREAM, paths.sink_stream(RESOURCE, "0")]
        member = view.paths.worker(name)
        self.ownership = TaskCommitLogs(registry, "delays", "task-0", f"{name}/e", generation, streams, member)
        self.began = 0
        """How often it has begun at the source's start."""

    def read(self) -> None:
        """Take over if it must, and commit one round more. Raises StaleOwner once it can do nothing any more."""
        owned = self.ownership
        if not owned.logs:
            owned.take()
        position = owned.logs[POSITION].position
        if position is None:
            self.began += 1
            owned.begin({POSITION: {"at": 0}})
        at = (position or {"at": 0})["at"]
        owned.commit({POSITION: owned.moved(POSITION, position={"at": at + 100})})

    def read_on(self) -> None:
        """The same, as a worker does it: who was fenced takes over again."""
        with suppress(StaleOwner):
            try:
                self.read()
            except VersionConflict:
                self.ownership.take()
                self.read()


@pytest.mark.parametrize("idle", [False, True])
def test_a_worker_that_lives_at_any_step_of_the_deletion_begins_nothing_anew(
    ensemble: MemoryEnsemble, registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    """Idle: it has read nothing so far, and makes the nodes of its streams."""
    step, steps = -1, 0
    while step < steps:
        step += 1
        view = put(registry)
        head = view.placement_head().value
        with ensemble.connect() as session:
            worker = Worker(session, f"worker-{head.next_worker + step}", head.next_generation)
            if not idle:
                worker.read()
            counted = Steps(registry, step, worker.read_on)
            with monkeypatch.context() as patch:
                counted.count(patch)
                delete_nodes(view)
            worker.read_on()
            steps = counted.made
            assert worker.began <= 1, f"what was read was read again at step {step}"
            assert len(tree(registry)) == 7, f"step {step}: {tree(registry)}"
    assert steps > 5


def test_a_worker_whose_dataflow_is_deleted_while_it_takes_a_task_makes_no_nodes(
    ensemble: MemoryEnsemble, registry: MemoryRegistry
) -> None:
    view = put(registry)
    with ensemble.connect() as session:
        worker = Worker(session, "worker-1", 1)
        with at_failpoint("ownership.create:before", lambda _stop: delete_nodes(view)), pytest.raises(StaleOwner):
            worker.read()
        assert len(tree(registry)) == 7, tree(registry)


def test_a_chain_is_not_submitted_again_over_one_of_its_dataflows_that_is_half_deleted(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its positions may be gone, and what it wrote is read by others of the chain."""
    flows = {
        key: {
            "name": f"orders-{key}",
            "sources": {"src": {"kind": "log", "logs": f"{read}/*"}},
            "sinks": {"out": {"kind": "log", "log": written}},
            "sql": "SELECT payload FROM src",
        }
        for key, read, written in (("first", "in", "mid"), ("last", "mid", "out"))
    }
    chain = ChainConfig.parse({"name": "orders", "logs": {"in": {"streams": 1}}, "dataflows": flows}, source="a test")
    create_chain(registry, descriptor_of(chain, 1))
    view = DataflowView(registry, "orders-last")
    view.submit(chain.dataflows["last"], [], 1)
    cut_at(view, NODES.root.replace("delays", "orders-last"), monkeypatch)
    before = tree(registry, "/")
    started: list[str] = []
    with pytest.raises(DataflowBusy, match="`scribengin delete orders-last` ends it"):
        submit_chain(registry, chain, tmp_path, starting=started.append)
    assert (started, tree(registry, "/")) == ([], before)
