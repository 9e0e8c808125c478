"""`rewind` of topics: nobody holds them back for a dataflow, so what was moved to is looked at once more. In memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitLog
from scribengin.base.model import Position
from scribengin.connectors import Environment
from scribengin.connectors.contract import StartAt
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.kafka.source.source import KafkaSource
from scribengin.dataflow.config import load_config
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowBusy, PositionTruncated, RewindOvertaken, SystemUnreachable
from scribengin.operations.rewind import Rewind, rewind
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin_registry.contract import Operation
from tests.servers.kafka_memory import MemorySide

EARLIEST, LATEST = StartAt("earliest"), StartAt("latest")
READ = 7
"""Of each partition's ten records."""
Submit = Callable[..., DataflowView]


@pytest.fixture
def side() -> Iterator[MemorySide]:
    """A topic of two partitions of ten records."""
    with MemorySide("in-memory:6").serving() as side:
        fill(side)
        yield side


def fill(side: MemorySide) -> None:
    side.create("in", partitions=2)
    for partition in (0, 1):
        side.send("in", [b"%d" % n for n in range(10)], partition=partition)


@pytest.fixture
def submit(side: MemorySide, memory_registry: MemoryRegistry) -> Submit:
    """Submits a dataflow that is paused, and has read each partition up to READ."""

    def submitted(**settings: Any) -> DataflowView:
        source = {"kind": "kafka", "bootstrap": side.bootstrap, "topics": "in", "mirror_offsets": False, **settings}
        sink = {"kind": "log", "log": "out"}
        value = {"name": "flow", "sources": {"in": source}, "sinks": {"out": sink}, "sql": "SELECT payload FROM in"}
        config = load_config({**value, "desired_state": "paused"})
        view = DataflowView(memory_registry, "flow")
        view.submit(config, ["log:/logs/out"], SYSTEM_CLOCK.now_ms())
        environment = Environment(registry=memory_registry, dataflow="flow", nodes=STREAM_NODES)
        with OpenedDataflow(config.model_copy(update={"sinks": {}}), environment) as opened:
            view.commit_placement(view.placement_head(), view.creation_of_tasks(opened.tasks()))
            for stream in opened.sources["in"].streams():
                at = opened.sources["in"].position_at(stream, StartAt("offset", READ))
                put(view, stream.name, position=at)
        view.set_status(view.status().model_copy(update={"state": "paused"}))
        return view

    return submitted


def put(view: DataflowView, stream: str, **changes: Any) -> None:
    """A commit log as the last owner left it."""
    log = CommitLog(dataflow="flow", task="task-0", owner="worker-1/executor-1", generation=3, epoch=2, round=7)
    path = paths.commit_log(view.paths.source_stream("in", stream))
    if view.registry.find(path) is None:
        view.registry.create(path, parents=True)
    view.registry.set(path, log.model_copy(update=changes).to_bytes())


def positions(view: DataflowView) -> list[Position | None]:
    logs = [view.commit_log_of("in", f"in/{n}") for n in (0, 1)]
    return [log.position for log in logs if log is not None]


def offsets(view: DataflowView) -> list[int]:
    return [position["offset"] for position in positions(view) if position is not None]


@pytest.mark.parametrize("on_expired", ["error", "earliest", "latest"])
def test_what_retention_takes_meanwhile_is_told_whatever_the_dataflow_does_about_what_has_expired(
    side: MemorySide, submit: Submit, on_expired: str
) -> None:
    """With `latest` its next round would pass over all that is there."""
    view = submit(on_expired=on_expired)
    stop = at_failpoint("rewind.commit:before", lambda _stop: side.delete_records("in", 4, 1))
    with stop, pytest.raises(RewindOvertaken, match="offset 0 is wanted, and the first one that is still there is 4"):
        Rewind(view, EARLIEST, None).apply()
    assert offsets(view) == [READ, READ]


@pytest.mark.parametrize("on_expired", ["error", "earliest", "latest"])
def test_the_contract_of_a_reader_says_what_is_gone(side: MemorySide, on_expired: str) -> None:
    side.delete_records("in", 4, 1)
    value = {"kind": "kafka", "bootstrap": side.bootstrap, "topics": "in", "on_expired": on_expired}
    config = KafkaSourceConfig.parse(value, source="a test")
    source = KafkaSource("in", config, "flow", SYSTEM_CLOCK, lambda: True)
    reader = source.open_reader(source.streams()[1])
    reader.refuse_gone({"offset": 4})
    reader.refuse_gone({"offset": 10})
    with pytest.raises(PositionTruncated, match="offset 3 is wanted"):
        reader.refuse_gone({"offset": 3})
    reader.close()
    source.close()


def test_the_beginning_is_found_again(side: MemorySide, submit: Submit) -> None:
    view = submit()
    with at_failpoint("rewind.commit:before", lambda _stop: side.delete_records("in", 4, 1)):
        moved = rewind(view, EARLIEST, None)
    assert offsets(view) == [0, 4]
    assert [stream.after for stream in moved.streams] == positions(view)


@pytest.mark.parametrize("at", [EARLIEST, LATEST], ids=str)
def test_a_topic_that_is_made_anew_meanwhile_is_rewound_as_what_it_is_now(
    side: MemorySide, submit: Submit, at: StartAt
) -> None:
    view = submit()

    def anew(_stop: str) -> None:
        side.delete("in")
        fill(side)
        side.send("in", [b"one more"])

    before = positions(view)
    with at_failpoint("rewind.commit:before", anew):
        rewind(view, at, None)
    assert offsets(view) == ([0, 0] if at == EARLIEST else [11, 10])
    assert before[0] is not None
    assert all(one is not None and one["topic_id"] != before[0]["topic_id"] for one in positions(view))


@pytest.mark.parametrize("at", [EARLIEST, LATEST], ids=str)
def test_a_topic_that_is_made_anew_again_and_again_is_told_as_that(
    side: MemorySide, submit: Submit, monkeypatch: pytest.MonkeyPatch, at: StartAt
) -> None:
    view = submit()
    real = MemoryRegistry.commit

    def anew(registry: MemoryRegistry, operations: Sequence[Operation]) -> Any:
        versions = real(registry, operations)
        side.delete("in")
        fill(side)
        return versions

    monkeypatch.setattr(MemoryRegistry, "commit", anew)
    with pytest.raises(RewindOvertaken) as told:
        rewind(view, at, None)
    assert "the topic was deleted and made anew since" in str(told.value)
    assert str(told.value).endswith("(it was tried 5 times)")
    assert ("rewind it to a later place" in str(told.value)) is (at == EARLIEST)
    assert "on_expired" not in str(told.value), "that is for its rounds, not for a rewind"
    assert offsets(view) == [READ, READ]


@pytest.mark.parametrize("at", [EARLIEST, LATEST], ids=str)
def test_where_nobody_can_look_any_more_all_is_moved_back(side: MemorySide, submit: Submit, at: StartAt) -> None:
    view = submit()
    side.patience_s = 0.1

    def away(_stop: str) -> None:
        side.away = True

    with at_failpoint("rewind.commit:after", away), pytest.raises(SystemUnreachable):
        rewind(view, at, None)
    assert offsets(view) == [READ, READ]


def test_where_nobody_can_look_and_somebody_has_come_it_says_that_it_was_moved(
    side: MemorySide, submit: Submit
) -> None:
    view = submit()

    def deleted(_stop: str) -> None:
        side.delete("in")
        put(view, "in/0", epoch=3, position={"offset": 2})

    busy = "was rewound to what cannot be looked at just now .*, and taken over before it could be moved back"
    with at_failpoint("rewind.commit:after", deleted), pytest.raises(DataflowBusy, match=busy):
        rewind(view, EARLIEST, None)
    assert offsets(view) == [2, 0]
