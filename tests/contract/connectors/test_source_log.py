"""Logs as a source: which logs a pattern means, where reading starts, and what is an error. On the real registry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.contract import PlannedRange, RoundLimits, SourceStreamDescriptor, StartAt
from scribengin.connectors.log.source import LogSource, LogSourceConfig
from scribengin.errors import (
    ConfigInvalid,
    DataflowError,
    LogNotFound,
    NamespaceNotBound,
    PositionTruncated,
    SourceMissing,
)
from scribengin.log import DLSN, LogNamespace
from scribengin_registry.contract import Node, Registry

ALL = RoundLimits(10**6, 10**9)


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    LogNamespace.bind("/logs", tmp_path, registry=registry)
    with LogNamespace.open("/logs", registry=registry) as opened:
        yield opened


def source(registry: Registry, logs: str, *, has_tasks: bool = False, **settings: Any) -> LogSource:
    config = LogSourceConfig.parse({"kind": "log", "logs": logs, **settings}, source="a test")
    return LogSource("in", config, registry, SYSTEM_CLOCK, has_tasks=lambda: has_tasks)


def names(opened: LogSource) -> list[str]:
    return [stream.name for stream in opened.streams()]


def fill(namespace: LogNamespace, log: str, *payloads: str) -> None:
    if not namespace.exists(log):
        namespace.create(log)
    with namespace.open_writer(log) as writer:
        for payload in payloads:
            writer.write(payload.encode())


def payloads(plan: PlannedRange | None) -> list[str]:
    assert plan is not None, "there is nothing to read"
    batches = [batch for split in plan.splits for batch in split.read()]
    return [payload.decode() for batch in batches for payload in batch["payload"].to_pylist()]


def test_a_name_is_one_log_and_a_pattern_is_all_that_match(registry: Registry, namespace: LogNamespace) -> None:
    for log in ("flights/10", "flights/2", "flights/a/b", "flight", "other/1"):
        namespace.create(log)
    assert names(source(registry, "flight")) == ["flight"]
    assert names(source(registry, "flights/*")) == ["flights/2", "flights/10", "flights/a/b"]
    assert names(source(registry, "flights/[0-9]*")) == ["flights/2", "flights/10"]
    assert names(source(registry, "*1")) == ["other/1"]


def test_new_logs_are_streams_at_the_next_look(registry: Registry, namespace: LogNamespace) -> None:
    namespace.create("in/1")
    opened = source(registry, "in/*")
    before = names(opened)
    namespace.create("in/0")
    assert (before, names(opened)) == (["in/1"], ["in/0", "in/1"])


def test_another_look_reads_nothing_of_the_logs_that_are_known(
    registry: Registry, namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        namespace.create(f"in/{number}")
    read: list[str] = []
    find_all = type(registry).find_all

    def counted(self: Registry, paths: Sequence[str]) -> list[Node | None]:
        read.extend(paths)
        return find_all(self, paths)

    monkeypatch.setattr(type(registry), "find_all", counted)
    opened = source(registry, "in/*")
    assert (names(opened), len(read)) == (["in/0", "in/1", "in/2"], 3)
    read.clear()
    namespace.create("in/3")
    namespace.delete("in/0")
    assert names(opened) == ["in/1", "in/2", "in/3"]
    assert [path for path in read if path.startswith("/logs/logs/")] == ["/logs/logs/in%2F3"]


def test_a_source_that_means_nothing_says_what_there_is(registry: Registry, namespace: LogNamespace) -> None:
    for number in range(9):
        namespace.create(f"flights/{number}")
    expected = (
        r"source 'in': no log in /logs is called 'fligths/\*' "
        r"\(there are: flights/0, .*flights/7, \.\.\.\); correct `logs`, create the log, or start what writes it first"
    )
    with pytest.raises(SourceMissing, match=expected):
        source(registry, "fligths/*").streams()
    with pytest.raises(SourceMissing, match="no log in /logs is called 'flights'"):
        source(registry, "flights").streams()


def test_a_namespace_that_is_not_bound_is_named(registry: Registry) -> None:
    with pytest.raises(NamespaceNotBound, match="/nowhere"):
        source(registry, "in", namespace="/nowhere")


def test_a_namespace_of_another_registry_is_refused(registry: Registry) -> None:
    with pytest.raises(ConfigInvalid, match="another ensemble"):
        source(registry, "in", namespace="distributedlog-file://elsewhere:2181/logs")


def test_a_log_without_a_position_is_read_from_where_the_config_says(
    registry: Registry, namespace: LogNamespace
) -> None:
    fill(namespace, "in", "1", "2")
    earliest, latest = source(registry, "in"), source(registry, "in", start="latest")
    first = earliest.open_reader(earliest.streams()[0])
    last = latest.open_reader(latest.streams()[0])
    end = last.initial_position()
    assert (last.plan(end, ALL), last.lag(end)) == (None, 0)
    fill(namespace, "in", "3")
    assert payloads(first.plan(first.initial_position(), ALL)) == ["1", "2", "3"]
    assert payloads(last.plan(end, ALL)) == ["3"]


def test_latest_is_the_end_at_the_first_split_and_what_comes_later_is_read_whole(
    registry: Registry, namespace: LogNamespace
) -> None:
    def from_the_beginning(opened: LogSource, stream: SourceStreamDescriptor) -> list[str]:
        reader = opened.open_reader(stream)
        return payloads(reader.plan(reader.initial_position(), ALL))

    fill(namespace, "in/0", "1")
    fill(namespace, "in/1", "2")
    first = source(registry, "in/*", start="latest").streams()
    fill(namespace, "in/0", "3")
    namespace.delete("in/1")
    fill(namespace, "in/1", "4")
    fill(namespace, "in/2", "5")
    later = source(registry, "in/*", start="latest", has_tasks=True)
    assert [from_the_beginning(later, stream) for stream in first] == [["3"], ["4"]]
    assert from_the_beginning(later, later.streams()[2]) == ["5"]


def test_earliest_is_the_first_record_that_is_kept(registry: Registry, namespace: LogNamespace) -> None:
    fill(namespace, "in", "1")
    fill(namespace, "in", "2")
    opened = source(registry, "in")
    lost = opened.open_reader(opened.streams()[0]).initial_position()
    namespace.truncate("in", DLSN(2, 0, 0))
    reader = opened.open_reader(opened.streams()[0])
    assert payloads(reader.plan(reader.initial_position(), ALL)) == ["2"]
    with pytest.raises(PositionTruncated):
        reader.plan(lost, ALL)


def test_a_position_that_has_read_everything_survives_a_purge(registry: Registry, namespace: LogNamespace) -> None:
    fill(namespace, "in", "1")
    opened = source(registry, "in")
    reader = opened.open_reader(opened.streams()[0])
    plan = reader.plan(reader.initial_position(), ALL)
    assert plan is not None
    namespace.truncate("in", namespace.end_dlsn("in"))
    assert namespace.purge("in").segments == 1
    fill(namespace, "in", "2")
    again = opened.open_reader(opened.streams()[0])
    assert again.lag(plan.end) == 1
    assert payloads(again.plan(plan.end, ALL)) == ["2"]


def test_something_else_is_no_position(registry: Registry, namespace: LogNamespace) -> None:
    fill(namespace, "in", "1")
    opened = source(registry, "in")
    reader = opened.open_reader(opened.streams()[0])
    with pytest.raises(DataflowError, match=r"log 'in': .* is no position in a log"):
        reader.plan({"offset": 3}, ALL)


def test_a_log_that_was_deleted_is_an_error(registry: Registry, namespace: LogNamespace) -> None:
    fill(namespace, "in", "1")
    opened = source(registry, "in")
    stream = opened.streams()[0]
    reader = opened.open_reader(stream)
    start = reader.initial_position()
    namespace.delete("in")
    with pytest.raises(LogNotFound):
        opened.open_reader(stream)
    with pytest.raises(LogNotFound):
        payloads(reader.plan(start, ALL))


def test_the_end_is_never_before_what_was_read_of_the_log(registry: Registry, namespace: LogNamespace) -> None:
    """After a power failure readers see less of a log than they did, until a writer recovers it: then what it did not
    find is lost."""
    fill(namespace, "in/0", "1")
    opened = source(registry, "in/0")
    (stream,) = opened.streams()
    behind_all = SYSTEM_CLOCK.now_ms() + 3_600_000
    ends = (StartAt("latest"), StartAt("time", behind_all))
    with namespace.open_writer("in/0") as writer:
        writer.write(b"2").result(60)
        end = opened.position_at(stream, ends[0])
        beyond = {**end, "entry": int(end["entry"]) + 2}
        assert [opened.position_at(stream, at, beyond) for at in ends] == [beyond, beyond]
        of_another_log = {**beyond, "directory": "deleted since"}
        assert [opened.position_at(stream, at, of_another_log) for at in ends] == [end, end]
        first = {**end, "segment": 1, "entry": 0}
        assert [opened.position_at(stream, at, first) for at in (*ends, StartAt("time", 0))] == [end, end, first]
        assert opened.position_at(stream, StartAt("time", 0), beyond) == first
    lost = [opened.position_at(stream, at, beyond) for at in ends]
    assert lost == [opened.position_at(stream, at) for at in ends]
    with closing(opened.open_reader(stream)) as reader:
        assert [reader.lag(position) for position in lost] == [0, 0]
