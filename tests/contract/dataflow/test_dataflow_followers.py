"""Grouping streams anew moves them to other logs of the sink: it waits for those who read what was written before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.connectors.contract import SinkStreamDescriptor
from scribengin.connectors.log.holds import Holds
from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.followers import Followers
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.deletion import delete_nodes
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.log import LogNamespace, RetentionHold
from scribengin_registry.contract import Registry


def config(name: str, reads: str, writes: str) -> DataflowConfig:
    sources = {"src": {"kind": "log", "logs": f"{reads}/*"}}
    sinks = {"out": {"kind": "log", "log": writes}}
    return load_config({"name": name, "sources": sources, "sinks": sinks, "sql": "SELECT payload FROM src"})


def task(number: int) -> TaskDescriptor:
    sink = SinkStreamDescriptor(sink="out", resource="log:/logs/a", name=str(number))
    return TaskDescriptor(name=f"task-{number}", sources=(), sinks=(sink,))


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    LogNamespace.bind("/logs", tmp_path, registry=registry)
    with LogNamespace.open("/logs", registry=registry) as opened:
        yield opened


class Chain:
    """first -> a/* -> second -> b/* -> third -> c/*, whose rounds are played here."""

    def __init__(self, registry: Registry, namespace: LogNamespace) -> None:
        self.registry, self.namespace = registry, namespace
        self.configs = [config("first", "in", "a"), config("second", "a", "b"), config("third", "b", "c")]
        for flow, log in zip(self.configs, "abc", strict=True):
            DataflowView(registry, flow.name).submit(flow, [f"log:/logs/{log}"], now_ms=1)
            for k in range(2):
                namespace.create(f"{log}/{k}")
        for reader, log in (("second", "a"), ("third", "b")):
            for k in range(2):
                held_by = RetentionHold(dataflow=reader, source="src", pattern=f"{log}/*")
                Holds(STREAM_NODES).hold_for(namespace, f"{log}/{k}", [held_by])

    def write(self, log: str, records: int) -> None:
        with self.namespace.open_writer(log) as writer:
            for _ in range(records):
                writer.write(bytes(range(256))).result(120)

    def reads(self, reader: str, log: str) -> None:
        """A round of it, up to the end of the log."""
        with self.namespace.open_reader(log) as opened:
            end = self.namespace.end_dlsn(log)
            position = {**end.to_json(), "directory": opened.directory}
        path = paths.commit_log(paths.DataflowPaths(reader).source_stream("src", log))
        said = CommitLog(dataflow=reader, task="task-0", owner="w", generation=1, epoch=1, round=1, position=position)
        if self.registry.find(path) is None:
            self.registry.create(path, b"", parents=True)
        self.registry.set(path, said.to_bytes())

    def followers(self, *tasks: TaskDescriptor) -> Followers:
        return Followers(self.registry, self.configs[0], tasks)


@pytest.fixture
def chain(registry: Registry, namespace: LogNamespace) -> Chain:
    return Chain(registry, namespace)


def test_nobody_waits_for_what_nobody_reads_or_nobody_wrote(chain: Chain) -> None:
    assert chain.followers(task(0), task(1)).unread() == ()
    chain.write("a/1", 3)
    assert chain.followers(task(0)).unread() == ()


def test_all_that_was_written_until_then_must_be_read_and_nothing_that_comes_later(chain: Chain) -> None:
    chain.write("a/0", 5)
    chain.write("a/1", 7)
    followers = chain.followers(task(0), task(1))
    assert [str(one) for one in followers.unread()] == [
        "second has 5 records of log 'a/0' to read",
        "second has 7 records of log 'a/1' to read",
    ]
    chain.reads("second", "a/0")
    chain.write("a/0", 2)
    assert [one.log for one in followers.unread()] == ["a/1"]
    chain.reads("second", "a/1")
    assert followers.unread() == ()


def test_what_readers_have_made_of_it_must_be_read_too(chain: Chain) -> None:
    chain.write("a/0", 5)
    followers = chain.followers(task(0))
    assert [one.dataflow for one in followers.unread()] == ["second"]
    chain.write("b/1", 4)  # of what it has read
    chain.reads("second", "a/0")
    assert [(one.dataflow, one.log, one.records) for one in followers.unread()] == [("third", "b/1", 4)]
    chain.write("b/1", 4)  # of other streams: nobody waits for that
    chain.reads("third", "b/1")
    assert followers.unread() == ()


def test_a_reader_that_was_deleted_holds_up_nobody(chain: Chain) -> None:
    chain.write("a/0", 5)
    delete_nodes(DataflowView(chain.registry, "second"))
    assert chain.followers(task(0)).unread() == ()


def test_dataflows_that_feed_each_other_come_to_an_end(chain: Chain) -> None:
    held_by = RetentionHold(dataflow="second", source="back", pattern="c/*")
    Holds(STREAM_NODES).hold_for(chain.namespace, "c/0", [held_by])
    chain.write("a/0", 1)
    followers = chain.followers(task(0))
    for _ in range(2):
        assert followers.unread()
        chain.reads("second", "a/0")
        if not followers.unread():
            break
    assert followers.unread() == ()
