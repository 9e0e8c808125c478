"""A log of many segments: what one transaction or one look must not depend on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from scribengin.base.model import node_name
from scribengin.errors import Fenced, InconsistentLog, LogBusy, LogNotFound
from scribengin.log import DLSN, TAIL, LogConfig, LogNamespace, SequenceId, Time
from scribengin.testing.failpoints import Action, at_failpoint
from scribengin.testing.log_samples import forge_segments, payloads_read
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from tests.dying import Stopped, stop_here

LOG = "flüge/0"
DEEP = "/" + "/".join(["namespace" * 10] * 9)
"""So long that the nodes of a thousand segments are no transaction."""
MANY = 1300


def raising(error: BaseException) -> Action:
    def action(_stop: str) -> None:
        raise error

    return action


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    LogNamespace.bind(DEEP, tmp_path / "store", registry=registry)
    namespace = LogNamespace.open(DEEP, registry=registry)
    namespace.create(LOG)
    return namespace


@pytest.fixture
def forged(namespace: LogNamespace, registry: Registry) -> LogNamespace:
    forge_segments(namespace, registry, LOG, MANY)
    return namespace


def nodes_below(registry: Registry, path: str) -> int:
    return 1 + sum(nodes_below(registry, f"{path}/{child}") for child in registry.children(path))


def directories(namespace: LogNamespace) -> list[Path]:
    return [path for path in Path(namespace.descriptor.location).iterdir() if path.is_dir()]


@pytest.mark.parametrize("force", [False, True])
def test_a_log_of_many_segments_is_deleted(forged: LogNamespace, registry: Registry, *, force: bool) -> None:
    assert nodes_below(registry, f"{DEEP}/logs") > MANY
    forged.delete(LOG, force=force)
    assert not forged.exists(LOG)
    assert forged.names() == []
    assert nodes_below(registry, f"{DEEP}/logs") == 1
    assert directories(forged) == []


@pytest.mark.parametrize("where", ["log.delete:after", "log.delete_rest:before", "log.delete_rest:after"])
@pytest.mark.parametrize("then", ["delete", "create"])
def test_a_deletion_that_was_cut_short_has_happened_and_is_ended_by_whoever_comes_next(
    forged: LogNamespace, registry: Registry, where: str, then: str
) -> None:
    with pytest.raises(Stopped), at_failpoint(where, stop_here):
        forged.delete(LOG)
    assert not forged.exists(LOG)
    assert forged.names() == []
    for use in (forged.open_writer, forged.open_reader, forged.count, forged.info, forged.segments, forged.purge):
        with pytest.raises(LogNotFound):
            use(LOG)  # type: ignore[operator]
    with pytest.raises(LogNotFound):
        forged.configure(LOG, LogConfig())
    if then == "delete":
        forged.delete(LOG)
        assert forged.names() == []
        assert directories(forged) == []
    else:
        forged.create(LOG)
        assert len(directories(forged)) == 1
        with forged.open_writer(LOG) as writer:
            writer.write(bytes(range(256))).result(120)
        assert payloads_read(forged, LOG) == [bytes(range(256))]
    with pytest.raises(LogNotFound):
        forged.delete("another")


def test_a_writer_of_a_log_of_many_segments_is_fenced_by_a_forced_deletion(
    forged: LogNamespace, registry: Registry
) -> None:
    writer = forged.open_writer(LOG)
    writer.write(b"1").result(120)
    with pytest.raises(LogBusy):
        forged.delete(LOG)
    forged.delete(LOG, force=True)
    with pytest.raises((Fenced, LogNotFound)):
        writer.write(b"2").result(120)
    with suppress(Fenced, LogNotFound):  # told once more, where it is the write that found out
        writer.close()
    assert nodes_below(registry, f"{DEEP}/logs") == 1


def test_a_purge_takes_as_many_segments_at_once_as_a_transaction_takes(
    forged: LogNamespace, registry: Registry
) -> None:
    assert forged.truncate(LOG, DLSN(MANY, 0, 0))
    assert forged.purge(LOG).segments == MANY - 1
    assert [segment.segment for segment in forged.segments(LOG)] == [MANY]
    assert forged.count(LOG) == 1


class Busy:
    """A registry where somebody changes a log's head whenever a node of a log was looked at, so many times."""

    def __init__(self, registry: Registry, times: int) -> None:
        self._registry, self.times = registry, times
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._registry, name)
        if name not in ("find", "find_all", "get", "children", "commit", "set"):
            return found

        def asked(what: Any, *args: Any, **options: Any) -> Any:
            self.requests += len(what) if name == "find_all" else 1
            if name == "commit":
                self._move(str(what[0].path))
            answer = found(what, *args, **options)
            if name != "commit":
                self._move(str(what[0] if isinstance(what, list) else what))
            return answer

        return asked

    def _move(self, path: str) -> None:
        head = path.partition("/segments")[0] + "/segments"
        if self.times and "/segments" in path:
            self.times -= 1
            self._registry.set(head, self._registry.get(head).data)


def busy(namespace: LogNamespace, registry: Registry, times: int) -> tuple[LogNamespace, Busy]:
    between = Busy(registry, times)
    return LogNamespace.open(namespace.path, registry=cast(Registry, between)), between


def look_for_key(namespace: LogNamespace, *, newest_first: bool) -> None:
    """Up to the first segment that has no file."""
    with pytest.raises(LogNotFound):
        next(namespace.positions_of_key(LOG, b"key", newest_first=newest_first))


def test_a_look_costs_a_few_requests_however_many_segments_there_are(forged: LogNamespace, registry: Registry) -> None:
    namespace, counted = busy(forged, registry, 0)

    def cost(what: Callable[[], object]) -> int:
        counted.requests = 0
        what()
        return counted.requests

    assert cost(lambda: namespace.count(LOG)) < 20
    assert cost(lambda: namespace.info(LOG)) < 20
    assert cost(lambda: namespace.end_dlsn(LOG)) < 20
    assert cost(lambda: namespace.last_record(LOG)) < 40
    assert cost(lambda: namespace.truncate(LOG, DLSN(2, 0, 0))) < 40
    assert cost(lambda: namespace.open_reader(LOG, DLSN(MANY, 0, 0)).read(1)) < 30
    assert cost(lambda: namespace.open_reader(LOG, SequenceId(MANY - 1)).read(1)) < 40
    assert cost(lambda: namespace.open_reader(LOG, Time(MANY)).read(1)) < 40
    assert cost(lambda: namespace.open_reader(LOG, Time(2)).read(1)) < 40
    for newest_first in (False, True):
        assert cost(partial(look_for_key, namespace, newest_first=newest_first)) < 40
    assert cost(lambda: namespace.open_writer(LOG).close()) < 40
    info = namespace.info(LOG)
    assert (info.records, len(info.segments)) == (MANY - 1, MANY)
    assert info.bytes == sum(segment.bytes for segment in namespace.segments(LOG))
    assert cost(lambda: namespace.purge(LOG)) < 40
    with namespace.open_writer(LOG) as writer, namespace.open_reader(LOG, TAIL) as reader:
        assert cost(lambda: writer.write(b"x").result(120)) < 20
        assert cost(lambda: reader.read(1, 120)) < 20


def test_whoever_loses_a_race_looks_again_however_often(namespace: LogNamespace, registry: Registry) -> None:
    """A log that rolls all the time: its head moves between any two looks at it."""
    payloads = [bytes(range(256)), b"", "Grüße".encode(), bytes(100_000), b"last"]
    for payload in payloads:
        with namespace.open_writer(LOG) as writer:
            writer.write(payload).result(120)
    looks: list[tuple[Callable[[LogNamespace], object], object]] = [
        (lambda busy: payloads_read(busy, LOG), payloads),
        (lambda busy: busy.count(LOG), 5),
        (lambda busy: len(busy.segments(LOG)), 5),
        (lambda busy: len(busy.inspect(LOG).metadata_check.segments), 5),
        (lambda busy: busy.open_writer(LOG, steal=True).close(), None),
        (lambda busy: busy.truncate(LOG, DLSN(3, 0, 0)), True),
        (lambda busy: busy.purge(LOG).segments, 2),
        (lambda busy: busy.delete(LOG, force=True), None),
    ]
    for look, wanted in looks:
        moving, between = busy(namespace, registry, 60)
        assert look(moving) == wanted
        assert between.times < 60


def test_a_list_that_contradicts_itself_and_stands_still_is_no_race(forged: LogNamespace, registry: Registry) -> None:
    registry.delete(f"{DEEP}/logs/{node_name(LOG)}/segments/logrecs_{7:018d}")
    for use in (forged.count, forged.open_reader, forged.segments, forged.open_writer):
        with pytest.raises(InconsistentLog, match=f"{MANY - 1} of them"):
            use(LOG)  # type: ignore[operator]


def test_maintenance_that_fails_is_told(namespace: LogNamespace, tmp_path: Path) -> None:
    namespace.configure(LOG, LogConfig(segment_bytes_max=4096))
    with namespace.open_writer(LOG) as writer:
        for _number in range(3):
            writer.write(bytes(5000)).result(120)
        # Maintenance of the last write may still be under way: it must not remove them before that fails.
        with at_failpoint("log.segment_remove:before", raising(OSError(5, "the disk"))):
            assert namespace.truncate(LOG, DLSN(3, 0, 0))
            writer.write(bytes(5000)).result(120)
            wait_until(lambda: "the disk" in str(writer.maintenance_failure), what="the failure")
        writer.write(bytes(5000)).result(120)
        wait_until(lambda: writer.maintenance_failure is None, what="the next run")
    assert namespace.segments(LOG)[0].segment == 3
