"""A log that is deleted and made anew while somebody changes it is another log, though its nodes have the same versions
again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from scribengin.base.model import node_name
from scribengin.errors import InconsistentLog, ScribenginError
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.testing.log_samples import forge_segments, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_registry.contract import Operation

LOG = "log"
PLACE = f"/logs/logs/{node_name(LOG)}"
READER = "reader"
Change = Callable[[LogNamespace], object]


@pytest.fixture
def registry() -> Iterator[MemoryRegistry]:
    with MemoryEnsemble().connect() as session:
        yield session


@pytest.fixture
def logs(registry: MemoryRegistry) -> Iterator[LogNamespace]:
    disk = MemoryDisk("anew")
    LogNamespace.bind("/logs", disk.name, registry=registry, store=MEMORY_STORE)
    with LogNamespace.open("/logs", registry=registry) as namespace:
        make(namespace, b"old")
        yield namespace


def make(logs: LogNamespace, payload: bytes) -> None:
    """The log, with two segments of a record each, and a reader that wants them all."""
    logs.create(LOG)
    for _segment in range(2):
        with logs.open_writer(LOG) as writer:
            writer.write(payload).result()
    logs.register_reader(LOG, READER, DLSN.INITIAL)


def write(logs: LogNamespace) -> None:
    with logs.open_writer(LOG) as writer:
        writer.write(b"late").result()


def versions_of(registry: MemoryRegistry, path: str) -> list[int]:
    """Of the nodes whose names do not tell one log from the other."""
    below = [f"{path}/{child}" for child in registry.children(path) if not child.startswith(f"{LOG}-")]
    return [registry.get(path).version, *(version for child in below for version in versions_of(registry, child))]


@pytest.mark.parametrize("segments", [2, 5_000])
def test_a_log_without_the_node_that_names_it_is_told_and_deleted_by_force(
    segments: int, registry: MemoryRegistry, tmp_path: Path
) -> None:
    LogNamespace.bind("/files", str(tmp_path / "files"), registry=registry)
    with LogNamespace.open("/files", registry=registry) as files:
        directory = files.create(LOG).directory
        forge_segments(files, registry, LOG, segments)
        registry.delete(f"/files/logs/{LOG}/{directory}")
        (finding,) = files.inspect(LOG).metadata_check.findings
        assert str(finding).startswith(f"metadata: the empty node {directory} is missing")
        with pytest.raises(InconsistentLog, match="is missing"):
            files.delete(LOG)
        files.delete(LOG, force=True)
        assert not files.exists(LOG)
    assert registry.find(f"/files/logs/{LOG}") is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda logs: logs.truncate(LOG, DLSN(2, 0, 0), force=True), id="truncate by force"),
        pytest.param(lambda logs: logs.recover(LOG, steal=True), id="recover"),
        pytest.param(lambda logs: logs.delete(LOG, force=True), id="delete"),
        pytest.param(lambda logs: logs.compress(LOG, "zstd"), id="compress"),
        pytest.param(lambda logs: logs.configure(LOG, LogConfig(retention_hours=1)), id="configure"),
        pytest.param(lambda logs: logs.register_reader(LOG, READER, DLSN(2, 0, 0)), id="move a reader"),
        pytest.param(lambda logs: logs.unregister_reader(LOG, READER), id="unregister a reader"),
    ],
)
def test_what_was_meant_for_a_log_does_nothing_to_the_one_that_was_made_in_its_place(
    change: Change, logs: LogNamespace, registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = registry.commit
    made: list[bool] = []

    def commit(operations: Sequence[Operation]) -> None:
        if any(operation.path.startswith(PLACE) for operation in operations):
            monkeypatch.setattr(registry, "commit", real)
            before = versions_of(registry, PLACE)
            logs.delete(LOG, force=True)
            make(logs, b"new")
            assert versions_of(registry, PLACE) == before, "the late request would have failed anyway"
            made.append(True)
        real(operations)

    monkeypatch.setattr(registry, "commit", commit)
    with suppress(ScribenginError):  # that there is no such log any more, or that it has done it to the new one
        change(logs)
    assert made, "no request was late"
    now = logs.info(LOG)
    assert (now.head.directory, now.head.first) == (now.log.directory, DLSN.INITIAL)
    assert logs.registered_readers(LOG) == {READER: DLSN.INITIAL}
    assert not logs.inspect(LOG).metadata_check.findings
    assert payloads_read(logs, LOG) == [b"new", b"new"]
    write(logs)
    assert payloads_read(logs, LOG) == [b"new", b"new", b"late"]
