"""State whose checkpoints are on a real HDFS: it goes on in the next owner's hands, whoever dies; what a stale query
writes is removed; it is read, compared with new code, and forgotten.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scribengin.dataflow.config import StateConfig
from scribengin.dataflow.round.checkpoints import (
    MARKER,
    checkpoints_below,
    checkpoints_of,
    refuse_unusable,
    remove_checkpoints,
)
from scribengin.errors import CheckpointMismatch, ConfigInvalid, StaleOwner
from scribengin.filesystems.paths import tree_file_system
from scribengin.spark.stateful.query_log import QueryDirectory, QueryLog
from scribengin.spark.stateful.stored import TIMERS, StoredState
from scribengin.spark.stateful.transformation import StatefulTransformation
from scribengin.testing.failpoints import at_failpoint
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_registry.contract import Registry
from tests.dying import Died, die
from tests.integration.processors import BY_RECORD, transforming
from tests.integration.state_flow import FAR, Event, StateFlow, at, drain, own_to_the_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

EVENTS: list[Event] = [(second, "ab"[second % 2], second) for second in range(20, 90, 3)]
STOPS = ("round.commit:after", "files.rename:after")
"""Where one owner after the other dies: behind its commit, and in a take-over between its steps."""


def test_state_on_hdfs_goes_on_whoever_dies_and_a_stale_owner_changes_nothing(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, hdfs: HdfsServers
) -> None:
    """With a processor, whose schemas are named by whole paths. Its state is divided anew."""
    (tmp_path / "windows.py").write_text(transforming(BY_RECORD))
    root = f"{hdfs.url}/state-{uuid.uuid4().hex}"
    flow = StateFlow(
        memory_registry,
        spark,
        tmp_path,
        transformation="windows:transform",
        state={"unbounded": ["processor"], "checkpoints": root, "partitions": 1},
        round={"records_max": 8},
    )
    flow.append("in/0", EVENTS)
    for stop in STOPS:
        with flow.owner() as owner, at_failpoint(stop, die), pytest.raises(Died):
            own_to_the_end(owner)
        flow.want_partitions(2)
    with flow.owner() as stale:
        stale.take_over()
        old = kept(flow)
        with flow.owner() as second:
            own_to_the_end(second)
            with pytest.raises(StaleOwner):
                stale.run_round()
            write_as_a_stale_query(old)
            what_is_kept_is_read_and_compared(flow, tmp_path / "windows.py")
            flow.append("in/0", [(FAR, "z", 0)])
            drain(second)
            second.release()
    flow.run_to_the_end()
    files, path = tree_file_system(f"{root}/flow/task-0")
    assert len(files.names(path)) == 1, "what is nobody's is gone"
    log = QueryLog.read(kept(flow))
    assert [log.partitions(0), log.partitions(log.done)] == [1, 2]
    windows: dict[tuple[str, str], list[int]] = {}
    for second_of, who, n in EVENTS:
        windows.setdefault((at(second_of // 10 * 10), who), []).append(n)
    told = [(datetime.fromisoformat(one["at"]).astimezone(UTC), one["who"], one["many"]) for one in flow.delivered()]
    wanted = [(datetime.fromisoformat(start), who, len(of)) for (start, who), of in windows.items()]
    assert sorted(told) == sorted(wanted)
    state = flow.config.state
    assert state is not None
    [found] = checkpoints_below(root)
    assert (found.dataflow, found.task.path) == ("flow", path)
    remove_checkpoints("flow", state, [("task-0", found.mark.name)])
    assert not files.is_directory(path), "and the task's directory with it"


def kept(flow: StateFlow) -> QueryDirectory:
    """Where the query of its one task has its checkpoint just now."""
    state = flow.config.state
    assert state is not None
    assert state.checkpoints is not None
    [found] = checkpoints_below(state.checkpoints)
    owned = checkpoints_of("flow", "task-0", state).find(found.mark.name)
    assert owned is not None
    return owned.query


def write_as_a_stale_query(old: QueryDirectory) -> None:
    """By the path that it knows, which is made anew."""
    marker = f"{old.path.rpartition('/')[0]}/{MARKER}"
    assert old.files.size(marker) is None, "the checkpoint was moved away"
    old.files.make_directories(f"{old.path}/offsets")
    old.files.create(f"{old.path}/offsets/99").close()


def what_is_kept_is_read_and_compared(flow: StateFlow, module: Path) -> None:
    """While its query is at work."""
    directory = kept(flow)
    assert directory.url.startswith("hdfs://")
    stored = StoredState(directory, flow.spark)
    kinds = {store.name: store for store in stored.stores()}
    assert set(kinds) == {"sums", TIMERS}
    [row] = stored.rows(kinds["sums"], {"who": "a"}, 9)
    assert row.value == '{"key":{"start":80},"value":{"many":2,"total":166}}', "the window that is open"
    with flow.open() as resources:
        spec = resources.transformation_spec()
    StatefulTransformation.load(spec, flow.spark).check({"task-0": directory})
    text = module.read_text()
    module.write_text(
        text.replace('many BIGINT, total BIGINT")\n\n    def handleInput', 'many INT")\n\n    def handleInput')
    )
    with pytest.raises(CheckpointMismatch, match="what task-0 has kept for processor does not fit"):
        StatefulTransformation.load(spec, flow.spark).check({"task-0": directory})
    module.write_text(text)


def test_a_place_that_is_none_is_said_before_anything_starts(hdfs: HdfsServers) -> None:
    files, _ = tree_file_system(f"{hdfs.url}/")
    name = uuid.uuid4().hex
    files.create(f"/{name}").close()
    with pytest.raises(ConfigInvalid, match=rf"^state.checkpoints: hdfs://.*{name} is no directory$"):
        refuse_unusable(StateConfig(checkpoints=f"{hdfs.url}/{name}/state"), here=True)
    refuse_unusable(StateConfig(checkpoints=f"{hdfs.url}/{name}-other"), here=True)
