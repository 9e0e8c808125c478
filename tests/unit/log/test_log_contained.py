"""What nodes of a log name elsewhere, a commit log or a directory, is taken only where such things stand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.base.model import node_name, plain_path
from scribengin.base.names import LOCKS
from scribengin.errors import ConfigInvalid, DescriptorUnreadable, StoreNotMounted
from scribengin.log import LogNamespace, StagedRange
from scribengin.log.store.mark import MARK, STORES_VARIABLE
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry

LOG = "out/0"
ELSEWHERE = ["/evil/commit-log", "/", LOCKS, f"{LOCKS}evil/a", f"{LOCKS}/../evil", "../evil", "spark/../../evil", ""]


@pytest.fixture
def registry() -> Registry:
    return MemoryEnsemble().connect()


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG)


def with_one_staged_round(namespace: LogNamespace) -> tuple[str, StagedRange]:
    """The node of the segment in which a writer, who died, has staged a round; and the round."""
    writer = namespace.open_writer(LOG, commit_log=f"{LOCKS}/sinks/out/0/commit-log")
    writer.write(b"before").result(120)
    writer.stage(payload_batch([b"never committed"]))
    staged = writer.prepare()
    writer.abort()
    assert staged is not None
    (segment,) = namespace.segments(LOG)
    return f"/logs/logs/{node_name(LOG)}/segments/{segment.node}", staged


def commit_log(staged: StagedRange | None) -> bytes:
    committed = None if staged is None else CommitDescriptor(kind="log", records=1, data=staged.model_dump())
    log = CommitLog(dataflow="d", task="t", owner="o", generation=1, epoch=1, round=1, committed=committed)
    return log.to_bytes()


def test_a_segment_that_names_a_commit_log_elsewhere_is_refused(registry: Registry, namespace: LogNamespace) -> None:
    node, staged = with_one_staged_round(namespace)
    registry.create("/evil/commit-log", commit_log(staged), parents=True)
    good = registry.get(node).data
    (segment,) = namespace.segments(LOG)
    registry.set(node, segment.model_copy(update={"commit_log": "/evil/commit-log"}).to_bytes())
    for call in (lambda: namespace.open_writer(LOG), lambda: namespace.recover(LOG), lambda: namespace.count(LOG)):
        with pytest.raises(DescriptorUnreadable, match=rf"{plain_path(node)} .*'/evil/commit-log' is no commit log"):
            call()
    assert registry.get("/evil/commit-log").version == 0, "nobody fences what is no commit log"
    registry.set(node, good)
    registry.create(f"{LOCKS}/sinks/out/0/commit-log", commit_log(None), parents=True)
    namespace.open_writer(LOG).close()
    assert payloads_read(namespace, LOG) == [b"before"]


def test_a_reader_that_names_a_commit_log_elsewhere_is_refused(registry: Registry, namespace: LogNamespace) -> None:
    namespace.register_reader(LOG, "flow", commit_log=f"{LOCKS}/sources/flow.in/0/commit-log")
    node = f"/logs/logs/{node_name(LOG)}/readers/flow"
    text = registry.get(node).data.decode()
    registry.set(node, text.replace(f"{LOCKS}/sources", "/evil").encode())
    with pytest.raises(DescriptorUnreadable, match="is no commit log"):
        namespace.registered_readers(LOG)


@pytest.mark.parametrize("path", ELSEWHERE)
def test_nobody_writes_such_a_node_either(registry: Registry, namespace: LogNamespace, path: str) -> None:
    for call in (
        lambda: namespace.open_writer(LOG, commit_log=path),
        lambda: namespace.register_reader(LOG, "flow", commit_log=path),
    ):
        with pytest.raises(ConfigInvalid, match=rf"'{path}' is no commit log: .*{LOCKS}"):
            call()
    namespace.open_writer(LOG, timeout_s=0, commit_log="spark/job/out%2F0").close()


@pytest.mark.parametrize("theirs", [".", MARK])
def test_a_namespace_that_names_a_directory_of_somebody_else_is_refused(
    registry: Registry, namespace: LogNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    """They may well have put the token there: it can be read in the registry by all."""
    location = Path(namespace.descriptor.location)
    somebody = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: somebody)
    if location.stat().st_uid == 0:  # root's directories are taken by everybody
        os.chown(location / theirs, somebody + 1, -1)
    with pytest.raises(StoreNotMounted, match=rf"belongs to .*{STORES_VARIABLE}"):
        LogNamespace.open("/logs", registry=registry)
    monkeypatch.setenv(STORES_VARIABLE, f"/nowhere:{tmp_path}")
    LogNamespace.open("/logs", registry=registry).close()
    monkeypatch.setenv(STORES_VARIABLE, f"{tmp_path}/sto")
    with pytest.raises(StoreNotMounted):
        LogNamespace.open("/logs", registry=registry)


@pytest.mark.parametrize("location", ["store", "", "/tmp/../etc", "~/store"])
def test_a_namespace_that_names_no_absolute_directory_is_refused(
    registry: Registry, namespace: LogNamespace, location: str
) -> None:
    wrong = namespace.descriptor.model_copy(update={"location": location})
    registry.set("/logs", wrong.to_bytes())
    with pytest.raises(DescriptorUnreadable, match="location"):
        LogNamespace.open("/logs", registry=registry)
