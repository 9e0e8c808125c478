"""Two operators, one of whom deletes a dataflow: nothing is deleted that the other has started or submitted meanwhile.
And a deletion that dies at any step: until it is `deleting` nothing has gone, and from then on nobody starts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.connectors import Environment
from scribengin.connectors.contract import StartAt
from scribengin.connectors.log.holds import Holds
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry import deletion, paths
from scribengin.dataflow.registry.deletion import mark_deleting, take_back
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import DataflowBusy, DataflowNotFound, ResourceTaken, SystemUnreachable
from scribengin.log import LogNamespace, RetentionHold
from scribengin.operations import delete
from scribengin.operations.delete import delete_dataflow
from scribengin.operations.lifecycle import start_again
from scribengin.operations.rewind import Rewind
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_registry.contract import Check, Set
from scribengin_registry.errors import VersionConflict
from tests.unit.operations.deletion import CONFIG, NODES, POSITION, RESOURCE, Steps, put, tree

HOLD = RetentionHold(dataflow="delays", source="flights", pattern="flights/*")
Acts = Callable[[DataflowView], None]


@pytest.fixture
def ensemble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryEnsemble:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path))
    monkeypatch.setattr("scribengin.operations.submit.submit.launching_place", Nowhere)
    return MemoryEnsemble()


@pytest.fixture
def registry(ensemble: MemoryEnsemble) -> Iterator[MemoryRegistry]:
    disk = MemoryDisk("overtaken")
    with ensemble.connect() as session:
        LogNamespace.bind("/logs", disk.name, registry=session, store=MEMORY_STORE)
        with LogNamespace.open("/logs", registry=session) as namespace:
            namespace.create("flights/0")
        yield session


@pytest.fixture
def other(ensemble: MemoryEnsemble) -> Iterator[MemoryRegistry]:
    """The other operator's session."""
    with ensemble.connect() as session:
        yield session


class Nowhere:
    """Where no master is launched."""

    def __init__(self, *_args: object) -> None:
        pass

    def __enter__(self) -> Nowhere:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def launch(self, _request: object) -> None:
        pass


def stopped(registry: MemoryRegistry, now_ms: int = 1) -> DataflowView:
    """A dataflow that has read and committed, and for which a log keeps what it has not."""
    view = put(registry, now_ms=now_ms)
    log = CommitLog(dataflow="delays", task="task-0", owner="worker-1/e", generation=0, epoch=1, round=1).to_bytes()
    registry.create(POSITION, log, parents=True)
    registry.create(paths.commit_log(paths.sink_stream(RESOURCE, "0")), log, parents=True)
    with LogNamespace.open("/logs", registry=registry) as namespace:
        Holds(STREAM_NODES).hold_for(namespace, "flights/0", [HOLD])
    return view


def steps_of(registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, *, force: bool) -> int:
    """How many changes a deletion makes."""
    view = stopped(registry)
    whole = Steps(registry, -1, lambda: None)
    with monkeypatch.context() as patch:
        whole.count(patch)
        delete_dataflow(view, force=force)
    assert whole.made > 5
    return whole.made


def holds(registry: MemoryRegistry) -> int:
    with LogNamespace.open("/logs", registry=registry) as namespace:
        return len(list(namespace.retention_holds("flights/0")))


def die() -> None:
    raise SystemExit


def start(view: DataflowView) -> None:
    start_again(view, Path("/nowhere"))


def delete_and_submit(view: DataflowView) -> None:
    delete_dataflow(view, force=False)
    stopped(view.registry, now_ms=2)  # type: ignore[arg-type]  # in memory, as all here


def delete_by_force_and_submit(view: DataflowView) -> None:
    delete_dataflow(view, force=True)
    stopped(view.registry, now_ms=2)  # type: ignore[arg-type]  # in memory, as all here


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("act", [start, delete_and_submit, delete_by_force_and_submit])
def test_what_somebody_has_started_or_submitted_meanwhile_is_not_deleted(
    registry: MemoryRegistry, other: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, act: Acts, force: bool
) -> None:
    """At any step of the deletion: either the other one is refused, or what he has made stands, all of it."""
    refused = 0
    steps = steps_of(registry, monkeypatch, force=force)
    for step in range(steps):
        view = stopped(registry)
        made: list[list[str]] = []

        def meanwhile(made: list[list[str]] = made) -> None:
            with suppress(DataflowBusy, DataflowNotFound):
                act(DataflowView(other, "delays"))
                made.append(tree(registry))

        counted = Steps(registry, step, meanwhile)
        with monkeypatch.context() as patch:
            counted.count(patch)
            with suppress(DataflowBusy, DataflowNotFound):
                delete_dataflow(view, force=force)
        refused += not made
        assert [tree(registry)] == made or (not made and not dataflow_names(registry)), f"step {step}"
        if act is start:  # who takes a stream over has the log keep it for him: once more, if it was of one submitted
            assert holds(registry) == len(made), f"step {step}"
        if made:
            assert view.status().state == ("starting" if act is start else "stopped"), f"step {step}"
            view.set_status(view.status().model_copy(update={"state": "stopped"}))
            delete_dataflow(view, force=False)
    assert (act is start) == (refused > 0), "who deletes as well goes on with it"


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (start, "'delays' was changed by somebody else meanwhile, and is starting: nothing was deleted"),
        (delete_and_submit, "'delays' was deleted by somebody else meanwhile, and submitted again: it stays"),
    ],
)
def test_who_would_have_deleted_it_is_told_what_came_in_between(
    registry: MemoryRegistry, other: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, act: Acts, said: str
) -> None:
    view = stopped(registry)
    with monkeypatch.context() as patch:
        Steps(registry, 1, lambda: act(DataflowView(other, "delays"))).count(patch)
        with pytest.raises(DataflowBusy, match=said):
            delete_dataflow(view, force=False)


@pytest.mark.parametrize("force", [False, True])
def test_a_deletion_that_dies_at_any_step_leaves_what_can_start_or_only_be_deleted(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    states = []
    for step in range(steps_of(registry, monkeypatch, force=force)):
        view = stopped(registry)
        before = set(tree(registry))
        counted = Steps(registry, step, die)
        with monkeypatch.context() as patch:
            counted.count(patch)
            with pytest.raises(SystemExit):
                delete_dataflow(view, force=force)
        states.append(view.status().state)
        if states[-1] == "deleting":
            with pytest.raises(DataflowBusy, match="`scribengin delete delays` ends it"):
                start(view)
            with pytest.raises(ResourceTaken):
                DataflowView(registry, "other").claim([RESOURCE])
        else:
            assert before <= set(tree(registry)), f"something had gone at step {step}"
            assert holds(registry) == 1, f"nothing was kept for it at step {step}"
        delete_dataflow(view, force=force)
        assert (len(tree(registry)), holds(registry)) == (7, 0), f"step {step}: {tree(registry)}"
    assert set(states) == {"stopped", "deleting"}


def unread(registry: MemoryRegistry) -> DataflowView:
    """A dataflow that has a task, and has read nothing: a rewind makes the nodes of its streams."""
    view = put(registry)
    with OpenedDataflow(CONFIG, Environment(registry=registry, dataflow="delays", nodes=STREAM_NODES)) as opened:
        view.commit_placement(view.placement_head(), view.creation_of_tasks(opened.tasks()))
    return view


def rewind_to_the_end(view: DataflowView) -> None:
    Rewind(view, StartAt("latest"), None).apply()


def delete_without_force(view: DataflowView) -> None:
    delete_dataflow(view, force=False)


def delete_by_force(view: DataflowView) -> None:
    delete_dataflow(view, force=True)


@pytest.mark.parametrize("deletes", [delete_without_force, delete_by_force])
@pytest.mark.parametrize("deletes_first", [True, False])
def test_a_rewind_makes_no_node_of_what_is_deleted_meanwhile(
    registry: MemoryRegistry,
    other: MemoryRegistry,
    monkeypatch: pytest.MonkeyPatch,
    deletes: Acts,
    deletes_first: bool,
) -> None:
    """At any step of the one the other one comes in between, and does all it does."""
    acts, between = (deletes, rewind_to_the_end) if deletes_first else (rewind_to_the_end, deletes)
    step, came = 0, True
    while came:
        view = unread(registry)
        said: list[str] = []

        def meanwhile(said: list[str] = said) -> None:
            try:
                between(DataflowView(other, "delays"))
                said.append("done")
            except (DataflowBusy, DataflowNotFound) as error:
                said.append(str(error))

        counted = Steps(registry, step, meanwhile)
        with monkeypatch.context() as patch:
            counted.count(patch)
            with suppress(DataflowBusy, DataflowNotFound):
                acts(view)
        if came := bool(said):
            assert (len(tree(registry)), holds(registry)) == (7, 0), f"step {step}: {said}, {tree(registry)}"
        step += 1
    assert step > 3, "it has more than one step"


def test_a_master_that_led_until_then_has_no_last_word(registry: MemoryRegistry) -> None:
    view = stopped(registry)
    led, running = view.placement_head(), view.status().model_copy(update={"state": "running"})
    mark_deleting(view, view.seen())
    with pytest.raises(VersionConflict):
        registry.commit([Check(NODES.placement, led.version), Set(NODES.status, running.to_bytes())])
    assert view.placement_head().value.epoch > led.value.epoch, "it begins again from a new look only as its own"
    assert view.status().state == "deleting"


def test_a_deletion_that_finds_state_out_of_reach_is_taken_back_unless_somebody_else_goes_on_with_it(
    registry: MemoryRegistry, other: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(view: DataflowView, *_args: object, **_options: object) -> None:
        if view.registry is registry:
            raise SystemUnreachable("no NameNode answers")

    monkeypatch.setattr(delete, "_remove_state", away)
    view = stopped(registry)
    before = tree(registry)
    with pytest.raises(SystemUnreachable):
        delete_dataflow(view, force=False)
    assert (view.status().state, holds(registry), tree(registry)) == ("stopped", 1, before)

    def while_it_goes_on(there: DataflowView, *_args: object, **_options: object) -> None:
        if there.registry is registry:
            with monkeypatch.context() as patch:
                Steps(other, 5, die).count(patch)
                with pytest.raises(SystemExit):
                    delete_dataflow(DataflowView(other, "delays"), force=False)
            away(there)

    monkeypatch.setattr(delete, "_remove_state", while_it_goes_on)
    with pytest.raises(SystemUnreachable):
        delete_dataflow(view, force=False)
    assert registry.find(NODES.workers) is None
    assert view.status().state == "deleting"


def test_a_deletion_that_somebody_else_has_taken_back_is_not_said_to_be_done(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = stopped(registry)
    before = view.status()

    def taken_back(there: DataflowView, _config: object, mark: str, **_options: object) -> None:
        take_back(there, mark, before)

    monkeypatch.setattr(delete, "_remove_state", taken_back)
    with pytest.raises(DataflowBusy, match="somebody else has taken the deletion of 'delays' back: it is stopped"):
        delete_dataflow(view, force=False)
    assert (view.status(), holds(registry)) == (before, 1)


def test_who_finds_that_another_one_has_ended_its_deletion_is_done(
    registry: MemoryRegistry, other: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had looked for the deletion's mark, which was there, and then for what is left: nothing."""
    view = stopped(registry)
    rest = deletion._rest

    def rest_after_another(seen: DataflowView) -> list[str]:
        monkeypatch.setattr(deletion, "_rest", rest)
        deletion.delete_nodes(DataflowView(other, "delays"))
        return rest(seen)

    monkeypatch.setattr(deletion, "_rest", rest_after_another)
    deletion.delete_nodes(view)
    assert list(dataflow_names(other)) == []
