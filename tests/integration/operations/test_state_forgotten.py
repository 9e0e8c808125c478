"""State that `scribengin state` finds, and that is forgotten: by `rewind`, by `delete`, by `registry check --repair`.
Without Spark."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors import Environment
from scribengin.connectors.contract import StartAt
from scribengin.dataflow.config import load_config
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.round.checkpoints import (
    MARKER,
    checkpoints_of,
    named_checkpoints,
    refuse_unusable,
    registry_begun_ms,
)
from scribengin.errors import CheckpointMismatch, ConfigInvalid, DataflowError, DataflowNotFound, SystemUnreachable
from scribengin.filesystems import paths as filesystem_paths
from scribengin.operations.delete import delete_dataflow
from scribengin.operations.registry.leftovers import SETTLED_S, Leftover, leftovers
from scribengin.operations.rewind import Rewind
from scribengin.operations.state import state_of
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk_states import Operation, Unlink
from scribengin.testing.memory.files import MemoryFiles
from scribengin_registry.contract import Registry
from tests.crash.counting_query import CountingTransform
from tests.integration.cli_runner import quiet_config
from tests.integration.owners import owner_with_state

EARLIEST = StartAt("earliest")
KEYS = "abacab"
HDFS = "hdfs://cluster/state"
ONCE = ["a 1", "a 2", "a 3", "b 1", "b 2", "c 1", "closed 6"]


class Flow:
    """A dataflow with state that counts keys, and has ended; its owners run in this process."""

    def __init__(self, registry: Registry, directory: Path, hdfs: MemoryFiles | None = None) -> None:
        """Its checkpoints are on `hdfs`, if that is given."""
        self.root = directory / "state"
        self.hdfs = hdfs
        with bound_namespace(registry, directory / "store", "in/0").open_writer("in/0") as writer:
            payloads = pa.array([key.encode() for key in KEYS], pa.binary())
            writer.write_bulk(pa.record_batch([payloads], names=["payload"])).result(120)
        self.config = load_config(
            {
                "name": "flow",
                "sources": {"src": {"kind": "log", "logs": "in/*"}},
                "sinks": {"out": {"kind": "log", "log": "out"}},
                "sql": "SELECT payload FROM src",
                "state": {"checkpoints": str(self.root) if hdfs is None else HDFS},
            }
        )
        self.view = DataflowView(registry, "flow")
        self.generation = 0

    def submit(self) -> None:
        self.view.submit(self.config, ["log:/logs/out"], SYSTEM_CLOCK.now_ms())
        with self.open() as opened:
            self.view.commit_placement(self.view.placement_head(), self.view.creation_of_tasks(opened.tasks()))
        self.view.set_status(self.view.status().model_copy(update={"state": "stopped"}))

    def open(self) -> OpenedDataflow:
        environment = Environment(registry=self.view.registry, dataflow="flow", nodes=STREAM_NODES)
        return OpenedDataflow(self.config, environment)

    def own_to_the_end(self) -> None:
        self.generation += 1
        with self.open() as opened:
            owner = owner_with_state(self.view.registry, opened, CountingTransform(self.hdfs), self.generation)
            with closing(owner):
                owner.take_over()
                while owner.run_round() is not None:
                    pass
                owner.release()

    def delivered(self) -> list[str]:
        with self.open() as opened:
            [stream] = opened.sink_streams(1)["out"]
            batches = list(opened.sinks["out"].committed(stream))
        return sorted(payload.decode() for batch in batches for payload in batch.column("payload").to_pylist())

    def checkpoints(self) -> list[str]:
        """The names of those that have a directory."""
        return sorted(path.name.partition("-")[0] for path in self.root.glob("*/*/*"))


@pytest.fixture
def hdfs_flow(memory_registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flow]:
    """One whose checkpoints are on an HDFS, which is in memory."""
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))
    hdfs = MemoryFiles()
    with hdfs.opened_by("hdfs"):
        flow = Flow(memory_registry, tmp_path, hdfs)
        flow.submit()
        flow.own_to_the_end()
        assert flow.delivered() == ONCE
        yield flow


@pytest.fixture
def flow(memory_registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flow:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))
    flow = Flow(memory_registry, tmp_path)
    flow.submit()
    flow.own_to_the_end()
    assert flow.delivered() == ONCE
    return flow


def test_the_state_of_a_task_is_where_its_owner_has_moved_it(flow: Flow) -> None:
    [before] = state_of(flow.view)
    assert (before.task, Path(before.directory.path).parent.parent) == ("task-0", flow.root / "flow" / "task-0")
    flow.own_to_the_end()
    [after] = state_of(flow.view, "task-0")
    assert after.directory != before.directory
    assert (Path(after.directory.path).parent / MARKER).exists()


def test_state_that_is_not_there_is_refused_in_a_line(flow: Flow, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="'flow' has no task 'task-7' with state: task-0"):
        state_of(flow.view, "task-7")
    [task] = state_of(flow.view)
    (Path(task.directory.path).parent / MARKER).write_text("{")
    with pytest.raises(CheckpointMismatch, match="is damaged"):
        state_of(flow.view)
    flow.root.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigInvalid, match=r"not below .*state of this machine: ask where the workers of 'flow' run"):
        state_of(flow.view)


def test_a_dataflow_without_state_has_none_to_be_looked_at(memory_registry: Registry) -> None:
    view = DataflowView(memory_registry, "quiet")
    view.submit(quiet_config(session_timeout_s=10), [], SYSTEM_CLOCK.now_ms())
    with pytest.raises(ConfigInvalid, match="'quiet' keeps no state"):
        state_of(view)


def test_what_is_rewound_is_counted_anew(flow: Flow) -> None:
    [before] = flow.checkpoints()
    rewind = Rewind(flow.view, EARLIEST, None)
    assert rewind.resets_state
    assert flow.checkpoints() == [before], "nothing is done before it is applied"
    rewind.apply()
    assert flow.checkpoints() == []
    flow.own_to_the_end()
    assert flow.delivered() == sorted(ONCE * 2)
    assert flow.checkpoints() != [before]


def test_a_rewind_that_is_cut_short_behind_its_transaction_has_forgotten_the_state(flow: Flow) -> None:
    def die(_stop: str) -> None:
        raise SystemExit

    with at_failpoint("rewind.commit:after", die), pytest.raises(SystemExit):
        Rewind(flow.view, EARLIEST, None).apply()
    flow.own_to_the_end()
    assert flow.delivered() == sorted(ONCE * 2)
    aged(flow)
    [left] = checkpoints_left(flow)
    assert left.remove is not None
    left.remove()
    assert len(flow.checkpoints()) == 1
    flow.own_to_the_end()


def test_sources_that_share_their_state_are_rewound_together(flow: Flow) -> None:
    with pytest.raises(ConfigInvalid, match="leave --source out"):
        Rewind(flow.view, EARLIEST, "src")


def test_a_dataflow_that_is_deleted_takes_its_state_along(flow: Flow) -> None:
    other = checkpoints_of("flow", "task-0", flow.config.state).begin(1, 1)  # type: ignore[arg-type]  # it has state
    delete_dataflow(flow.view, force=False)
    assert flow.checkpoints() == [other.mark.name], "another registry's dataflow may have the same name"
    flow.submit()
    flow.own_to_the_end()
    assert flow.delivered() == sorted(ONCE * 2), "the log stays, and the new one counts from the start"


def test_what_no_commit_log_names_is_found_once_it_has_settled(flow: Flow) -> None:
    assert flow.config.state is not None
    [(_task, named)] = named_checkpoints(flow.view)
    begun_ms = registry_begun_ms(flow.view.registry)
    checkpoints = checkpoints_of("flow", "task-0", flow.config.state)
    checkpoints.begin(9, 1, -1)
    nobodys = checkpoints.begin(9, 1, begun_ms).mark.name
    assert checkpoints_left(flow) == [], "its owner may be about to name it"
    aged(flow)
    [left] = checkpoints_left(flow)
    assert nobodys in left.line
    assert left.remove is not None
    left.remove()
    assert nobodys not in flow.checkpoints()
    assert named in flow.checkpoints()
    assert len(flow.checkpoints()) == 2, "what is of another registry is not touched"


def test_on_hdfs_state_is_found_rewound_and_deleted_too(hdfs_flow: Flow) -> None:
    flow, hdfs = hdfs_flow, hdfs_flow.hdfs
    assert hdfs is not None
    [task] = state_of(flow.view)
    assert str(task.directory).startswith("memory-files://files/cluster/state/flow/task-0/")
    assert flow.config.state is not None
    begun_ms = registry_begun_ms(flow.view.registry)
    nobodys = checkpoints_of("flow", "task-0", flow.config.state).begin(9, 1, begun_ms)
    assert checkpoints_left(flow) == [], "its owner may be about to name it"
    [left] = checkpoints_left(flow, Later())
    assert nobodys.mark.name in left.line
    assert left.remove is not None
    left.remove()
    assert checkpoints_left(flow, Later()) == []
    assert Rewind(flow.view, EARLIEST, None).apply() is None
    assert hdfs.names("/cluster/state") == [], "nothing is left, and no empty directory"
    flow.own_to_the_end()
    assert flow.delivered() == sorted(ONCE * 2)
    assert delete_dataflow(flow.view, force=True) is None
    assert hdfs.names("/cluster/state") == []


def test_where_hdfs_does_not_answer_nothing_is_deleted_unless_by_force(hdfs_flow: Flow) -> None:
    flow, hdfs = hdfs_flow, hdfs_flow.hdfs
    assert flow.config.state is not None
    assert hdfs is not None
    hdfs.away = True
    for here in (True, False):
        with pytest.raises(SystemUnreachable, match=f"^state.checkpoints: {HDFS} cannot be reached [(].* are away[)]"):
            refuse_unusable(flow.config.state, here=here)
    with pytest.raises(SystemUnreachable):
        delete_dataflow(flow.view, force=False)
    [told] = [one for one in leftovers(flow.view.registry, Path(os.environ["SCRIBENGIN_HOME"])) if one.remove is None]
    assert f"nobody can say what is below {HDFS}" in told.line
    assert flow.view.status().state == "stopped"
    left = delete_dataflow(flow.view, force=True)
    assert left is not None
    assert left.directory == f"{HDFS}/flow", "who removes it must know where it is"
    assert "are away" in left.why
    with pytest.raises(DataflowNotFound):
        flow.view.status()
    hdfs.away = False
    assert hdfs.names("/cluster/state") == ["flow"]


def test_state_that_this_machine_cannot_open_is_refused_before_anything_moves(
    hdfs_flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, hdfs = hdfs_flow, hdfs_flow.hdfs
    assert hdfs is not None
    named = named_checkpoints(flow.view)
    with monkeypatch.context() as without:
        without.delitem(filesystem_paths._LENT, "hdfs")
        without.delitem(sys.modules, "scribengin.filesystems.hdfs", raising=False)
        without.setitem(sys.modules, "hdfs_native", None)
        for act in (lambda: Rewind(flow.view, EARLIEST, None), lambda: delete_dataflow(flow.view, force=False)):
            with pytest.raises(ConfigInvalid, match="needs the package hdfs-native"):
                act()
        assert named_checkpoints(flow.view) == named
        assert flow.view.status().state == "stopped"
        delete_dataflow(flow.view, force=True)
    with pytest.raises(DataflowNotFound):
        flow.view.status()
    assert hdfs.names("/cluster/state") == ["flow"]


def test_state_that_may_not_be_removed_stays_and_a_rewind_says_where(hdfs_flow: Flow) -> None:
    flow, hdfs = hdfs_flow, hdfs_flow.hdfs
    assert hdfs is not None

    def refuse(operation: Operation) -> None:
        if isinstance(operation, Unlink):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    hdfs.hook = refuse
    with pytest.raises(DataflowError, match=r"cannot delete .*: Permission denied"):
        delete_dataflow(flow.view, force=False)
    assert flow.view.status().state == "stopped"
    left = Rewind(flow.view, EARLIEST, None).apply()
    assert left is not None
    assert left.directory == f"{HDFS}/flow"
    assert re.fullmatch(r"cannot delete .*: Permission denied", left.why)
    flow.own_to_the_end()
    assert flow.delivered() == sorted(ONCE * 2), "it has moved all the same"
    delete_dataflow(flow.view, force=True)
    with pytest.raises(DataflowNotFound):
        flow.view.status()
    assert hdfs.names("/cluster/state") == ["flow"]


class Later(Clock):
    """When all that is there is as old as what is not in the making any more."""

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + int(2 * SETTLED_S * 1000)


def aged(flow: Flow) -> None:
    """Let all checkpoints be as old as what is not in the making any more."""
    then_s = SYSTEM_CLOCK.now_ms() / 1000 - 2 * SETTLED_S
    for marker in flow.root.glob("*/*/*/checkpoint.json"):
        os.utime(marker, (then_s, then_s))


def checkpoints_left(flow: Flow, clock: Clock = SYSTEM_CLOCK) -> list[Leftover]:
    found = leftovers(flow.view.registry, Path(os.environ["SCRIBENGIN_HOME"]), clock)
    return [one for one in found if one.kind == "checkpoint"]
