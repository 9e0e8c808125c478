"""What a dataflow has not committed of a log stays: against retention, against truncation, and from the moment at which
the log is created. On the real registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitLog
from scribengin.base.model import Position
from scribengin.connectors import Environment, open_source
from scribengin.connectors.contract import RoundLimits
from scribengin.connectors.log.holds import Holds
from scribengin.connectors.log.sink import LogSink, LogSinkConfig
from scribengin.connectors.log.source import LogSourceConfig
from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.registry.paths import STREAM_NODES, DataflowPaths
from scribengin.dataflow.retention_holds import register_holds, release_all_holds
from scribengin.errors import DescriptorUnreadable, ReaderBehind
from scribengin.log import LogConfig, LogNamespace, RetentionHold
from scribengin.master.jobs import Grouping, find_streams
from scribengin.master.state.events import MasterEvent, TasksFound
from scribengin_registry.contract import Registry

ALL = RoundLimits(10**6, 10**9)
NOTHING_IS_KEPT = LogConfig(segment_bytes_max=4096, retention_hours=0)
RECORD = b"." * 1500


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    LogNamespace.bind("/logs", tmp_path, registry=registry)
    with LogNamespace.open("/logs", registry=registry) as opened:
        yield opened


def source_config(**settings: object) -> LogSourceConfig:
    return LogSourceConfig.parse({"kind": "log", "logs": "mid/*", **settings}, source="a test")


def fill(namespace: LogNamespace, log: str) -> None:
    """Several segments, all of them complete."""
    with namespace.open_writer(log) as writer:
        for _ in range(12):
            writer.write(RECORD).result(120)


def test_retention_keeps_what_a_reader_that_stands_still_has_not_committed(
    registry: Registry, namespace: LogNamespace
) -> None:
    namespace.create("mid/0", NOTHING_IS_KEPT)
    environment = Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES)
    with closing(open_source("src", source_config(), environment)) as source:
        (stream,) = source.streams()
        with closing(source.open_reader(stream)) as reader:
            start = reader.initial_position()
            fill(namespace, "mid/0")
            segments = len(namespace.segments("mid/0"))
            assert segments > 3
            assert namespace.purge("mid/0").segments == 0
            with pytest.raises(ReaderBehind, match=r"dataflow flow.src reads mid/\*"):
                namespace.truncate("mid/0", namespace.end_dlsn("mid/0"))
            plan = reader.plan(start, ALL)
            assert plan is not None
            assert plan.records == 12
            commit(registry, "mid/0", plan.end)
            assert list(namespace.registered_readers("mid/0").values()) == [namespace.end_dlsn("mid/0")]
            namespace.purge("mid/0")
            assert len(namespace.segments("mid/0")) < segments
            assert reader.lag(plan.end) == 0


def test_a_position_in_a_log_that_was_deleted_since_lets_nothing_of_its_successor_go(
    registry: Registry, namespace: LogNamespace
) -> None:
    environment = Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES)
    for _ in range(2):
        namespace.create("mid/0", LogConfig(segment_bytes_max=4096))
        fill(namespace, "mid/0")
        with closing(open_source("src", source_config(), environment)) as source:
            reader = source.open_reader(source.streams()[0])
            first, end = namespace.first_dlsn("mid/0"), namespace.end_dlsn("mid/0")
            assert list(namespace.registered_readers("mid/0").values()) == [first]
            plan = reader.plan(reader.initial_position(), ALL)
            assert plan is not None
            commit(registry, "mid/0", plan.end)
            assert list(namespace.registered_readers("mid/0").values()) == [end]
            reader.close()
        namespace.delete("mid/0")


def commit(registry: Registry, log: str, position: Position) -> None:
    """What a round does in the end."""
    path = paths.commit_log(DataflowPaths("flow").source_stream("src", log))
    said = CommitLog(dataflow="flow", task="task-0", owner="w", generation=1, epoch=1, round=1, position=position)
    if registry.find(path) is None:
        registry.create(path, b"", parents=True)
    registry.set(path, said.to_bytes())


def test_who_only_looks_or_does_not_want_to_holds_nothing_back(registry: Registry, namespace: LogNamespace) -> None:
    namespace.create("mid/0", NOTHING_IS_KEPT)
    for config, looking in ((source_config(), True), (source_config(retention_hold=False), False)):
        environment = Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES, looking=looking)
        with closing(open_source("src", config, environment)) as source:
            source.open_reader(source.streams()[0]).close()
    assert namespace.registered_readers("mid/0") == {}
    fill(namespace, "mid/0")
    namespace.purge("mid/0")
    assert namespace.count("mid/0") < 12


def test_a_sink_s_further_logs_are_like_its_first_one_and_held_back_for_the_same_readers(
    registry: Registry, namespace: LogNamespace
) -> None:
    namespace.create("mid/0", NOTHING_IS_KEPT)
    pattern, name = (
        RetentionHold(dataflow="flow", source="src", pattern="mid/*"),
        RetentionHold(dataflow="other", source="src", pattern="mid/0"),
    )
    for hold in (pattern, name):
        namespace.register_hold("mid/0", hold)
    namespace.register_reader("mid/0", "dataflow third.src reads mid/*")  # whose name is nobody's word
    sink = LogSink("out", LogSinkConfig(kind="log", log="mid"), registry, SYSTEM_CLOCK, Holds(STREAM_NODES))
    with closing(sink):
        sink.create(sink.streams(2))
    assert namespace.info("mid/1").log.config == NOTHING_IS_KEPT
    assert list(namespace.registered_readers("mid/1")) == [pattern.reader]


def test_a_reader_says_for_whom_it_stands_and_that_of_an_earlier_version_is_refused_in_words(
    registry: Registry, namespace: LogNamespace
) -> None:
    hold = RetentionHold(dataflow="a.b", source="src", pattern="mid/0 reads mid/*")
    namespace.create("mid/0", NOTHING_IS_KEPT)
    namespace.register_hold("mid/0", hold)
    assert list(namespace.retention_holds("mid/0")) == [hold]
    [reader] = registry.children("/logs/logs/mid%2F0/readers")
    path = f"/logs/logs/mid%2F0/readers/{reader}"
    said = json.loads(registry.get(path).data)
    assert (said["format"], said["hold"]) == (2, {"dataflow": "a.b", "source": "src", "pattern": "mid/0 reads mid/*"})
    registry.set(path, json.dumps({**said, "format": 1}).encode())
    with pytest.raises(DescriptorUnreadable, match="format 1 is another version's of Scribengin; this one reads form"):
        namespace.retention_holds("mid/0")


def test_what_others_write_is_held_back_from_when_the_master_finds_it_and_not_from_when_a_worker_reads_it(
    registry: Registry, namespace: LogNamespace
) -> None:
    namespace.create("mid/0", NOTHING_IS_KEPT)
    known: dict[str, TaskDescriptor] = {}

    def told(event: MasterEvent) -> None:
        """A dataflow without workers: tasks are made, and nobody takes them over."""
        assert isinstance(event, TasksFound)
        known.update({task.name: task for task in event.tasks})

    look = find_streams(registry, lambda: Grouping(known, anew=False), told)
    with OpenedDataflow(
        reading_config(), Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES)
    ) as resources:
        look(resources, "streams")
        namespace.create("mid/1", NOTHING_IS_KEPT)  # by somebody who knows nothing of the dataflow
        look(resources, "streams")
    assert {one.name for task in known.values() for one in task.sources if one.source == "src"} == {"mid/0", "mid/1"}
    for log in ("mid/0", "mid/1"):
        fill(namespace, log)
        assert namespace.purge(log).segments == 0
        assert namespace.count(log) == 12


def reading_config() -> DataflowConfig:
    return load_config(
        {
            "name": "flow",
            "sources": {
                "src": {"kind": "log", "logs": "mid/*"},
                "free": {"kind": "log", "logs": "*", "retention_hold": False},
            },
            "sinks": {"out": {"kind": "log", "log": "out"}},
            "sql": "SELECT payload FROM src",
        }
    )


def test_a_dataflow_is_registered_before_it_runs_and_let_go_when_it_is_deleted(
    registry: Registry, namespace: LogNamespace
) -> None:
    for log in ("mid/0", "mid/1", "other"):
        namespace.create(log)
    config = reading_config()
    register_holds(registry, config)
    register_holds(registry, config)
    namespace.register_hold("mid/0", RetentionHold(dataflow="flower", source="src", pattern="mid/*"))
    assert {log: len(namespace.registered_readers(log)) for log in namespace.names()} == {
        "mid/0": 2,
        "mid/1": 1,
        "other": 0,
    }
    release_all_holds(registry, config)
    assert {log: list(namespace.registered_readers(log)) for log in namespace.names()} == {
        "mid/0": ["dataflow flower.src reads mid/*"],
        "mid/1": [],
        "other": [],
    }
