"""Logs as a sink: which logs are written, from whom they are taken, and who may judge a staged round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.connectors.contract import Attempt, SinkStreamWriter
from scribengin.connectors.log.holds import Holds
from scribengin.connectors.log.sink import LogSink, LogSinkConfig
from scribengin.connectors.log.source import LogSource, LogSourceConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import DataflowError, Fenced, InvalidLogName, LogNotFound, StaleOwner
from scribengin.log import LogNamespace
from scribengin_registry.contract import Registry

NODE = "/scribengin/locks/commit-log"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    LogNamespace.bind("/logs", tmp_path, registry=registry)
    with LogNamespace.open("/logs", registry=registry) as opened:
        yield opened


def sink(registry: Registry, log: str = "out", **settings: Any) -> LogSink:
    config = LogSinkConfig.parse({"kind": "log", "log": log, **settings}, source="a test")
    return LogSink("out", config, registry, SYSTEM_CLOCK, Holds(STREAM_NODES))


def write_commit_log(registry: Registry, epoch: int, committed: CommitDescriptor | None = None) -> None:
    log = CommitLog(
        dataflow="flow", task="task-0", owner=f"owner-{epoch}", generation=1, epoch=epoch, round=1, committed=committed
    )
    if registry.find(NODE) is None:
        registry.create(NODE, parents=True)
    registry.set(NODE, log.to_bytes())


def open_writer(opened: LogSink, epoch: int) -> SinkStreamWriter:
    return opened.open_writer(opened.streams(1)[0], Attempt(f"owner-{epoch}", epoch, NODE))


def take(
    registry: Registry, opened: LogSink, epoch: int, committed: CommitDescriptor | None = None
) -> SinkStreamWriter:
    write_commit_log(registry, epoch, committed)
    writer = open_writer(opened, epoch)
    writer.recover(committed)
    return writer


def stage(writer: SinkStreamWriter, *payloads: str) -> CommitDescriptor:
    writer.write(pa.record_batch({"payload": list(payloads)}))
    prepared = writer.prepare_commit()
    assert prepared is not None
    return prepared


def payloads(opened: LogSink) -> list[str]:
    batches = opened.committed(opened.streams(1)[0])
    return [payload.decode() for batch in batches for payload in batch["payload"].to_pylist()]


def test_each_stream_is_a_log_of_its_own(registry: Registry, namespace: LogNamespace) -> None:
    opened = sink(registry, "delayed/today")
    streams = opened.streams(2)
    assert opened.resource == "log:/logs/delayed/today"
    assert (namespace.names(), [stream.name for stream in streams]) == ([], ["0", "1"])
    opened.create(streams)
    assert namespace.names() == ["delayed/today/0", "delayed/today/1"]


def test_logs_are_not_created_when_the_config_says_so(registry: Registry, namespace: LogNamespace) -> None:
    opened = sink(registry, create=False)
    namespace.create("out/0")
    opened.create(opened.streams(1))
    with pytest.raises(LogNotFound, match="there is no log 'out/1' in /logs, and `create` is false"):
        opened.create(opened.streams(2))
    assert namespace.names() == ["out/0"]


def test_a_name_that_no_log_can_have_is_refused(registry: Registry, namespace: LogNamespace) -> None:
    with pytest.raises(InvalidLogName):
        sink(registry, "a log")


def test_a_sink_takes_its_log_from_whoever_writes_it(registry: Registry, namespace: LogNamespace) -> None:
    opened = sink(registry)
    opened.create(opened.streams(1))
    stranger = namespace.open_writer("out/0")
    stranger.write(b"stranger").result(timeout=120)
    writer = take(registry, opened, 1)
    with pytest.raises(Fenced):
        stranger.write(b"late").result(timeout=120)
    writer.complete_commit(stage(writer, "ours"))
    assert payloads(opened) == ["stranger", "ours"]
    writer.close()


def test_a_log_that_was_taken_away_is_an_error_and_closing_is_not(registry: Registry, namespace: LogNamespace) -> None:
    opened = sink(registry)
    opened.create(opened.streams(1))
    writer = take(registry, opened, 1)
    writer.complete_commit(stage(writer, "1"))
    thief = namespace.open_writer("out/0", steal=True)
    with pytest.raises(Fenced):
        stage(writer, "2")
    writer.close()
    thief.close()
    assert payloads(opened) == ["1"]


def test_a_plain_writer_completes_a_round_that_was_committed(registry: Registry, namespace: LogNamespace) -> None:
    opened = sink(registry)
    opened.create(opened.streams(1))
    writer = take(registry, opened, 1)
    prepared = stage(writer, "committed")
    write_commit_log(registry, 1, prepared)
    namespace.open_writer("out/0", steal=True).close()
    assert payloads(opened) == ["committed"]
    writer.close()


def test_a_stale_owner_takes_no_log(registry: Registry, namespace: LogNamespace) -> None:
    opened = sink(registry)
    opened.create(opened.streams(1))
    owner = take(registry, opened, 2)
    with pytest.raises(StaleOwner, match="owner-2 owns it under epoch 2, and owner-1 has 1"):
        open_writer(opened, 1).recover(None)
    owner.complete_commit(stage(owner, "undisturbed"))
    assert payloads(opened) == ["undisturbed"]
    owner.close()


def test_an_owner_that_becomes_stale_while_it_takes_the_log_judges_nothing(
    registry: Registry, namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = sink(registry)
    opened.create(opened.streams(1))
    first = take(registry, opened, 1)
    prepared = stage(first, "committed by its successor's word")
    # It has looked at the commit log, and stalls; its successor then takes the task over, and commits what was staged.
    open_log = LogNamespace.open_writer

    def stalled(self: LogNamespace, name: str, **settings: Any) -> Any:
        write_commit_log(registry, 2, prepared)
        return open_log(self, name, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(LogNamespace, "open_writer", stalled)
        with pytest.raises(StaleOwner):
            open_writer(opened, 1).recover(None)
    take(registry, opened, 3, prepared).close()
    assert payloads(opened) == ["committed by its successor's word"]
    first.close()


def test_a_commit_log_of_another_kind_of_sink_is_an_error(registry: Registry, namespace: LogNamespace) -> None:
    opened = sink(registry)
    opened.create(opened.streams(1))
    foreign = CommitDescriptor(kind="hdfs", records=1, data={})
    with pytest.raises(DataflowError, match="/scribengin/locks/commit-log names a round of a 'hdfs' sink"):
        take(registry, opened, 1, foreign)


def test_sinks_are_sources_of_the_next_dataflow(registry: Registry, namespace: LogNamespace) -> None:
    opened = sink(registry)
    opened.create(opened.streams(2))
    config = LogSourceConfig.parse({"kind": "log", "logs": "out/*"}, source="a test")
    chained = LogSource("in", config, registry, SYSTEM_CLOCK)
    assert [stream.name for stream in chained.streams()] == ["out/0", "out/1"]
