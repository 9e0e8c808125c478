"""`scribengin registry backup` and `restore`."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.base.names import DATAFLOWS, LOCKS
from scribengin.dataflow.registry import gone_streams, paths
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigInvalid
from scribengin.log import LogConfig, LogNamespace
from scribengin.operations.registry.backup import back_up, restore
from scribengin.testing.log_samples import payloads_read
from scribengin_registry.client import REQUEST_BYTES_MAX, limits
from scribengin_registry.contract import Node, Registry
from scribengin_registry.opening import RESTORING
from tests.integration.cli_runner import CommandLine
from tests.registry_copies import nodes

LOG = "flüge/0"


@pytest.fixture
def namespace(registry: Registry, line: CommandLine) -> LogNamespace:
    namespace = LogNamespace.open("/logs", registry=registry, config=LogConfig(segment_bytes_max=4096))
    namespace.create(LOG)
    return namespace


def write(namespace: LogNamespace, *payloads: bytes) -> list[bytes]:
    """Each in a segment of its own."""
    for payload in payloads:
        with namespace.open_writer(LOG) as writer:
            writer.write(payload).result(120)
    return list(payloads)


def test_a_restored_registry_is_what_it_was_and_logs_take_back_what_came_after(
    line: CommandLine, namespace: LogNamespace, registry: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "backup.gz"
    registry.create("/odd/ü", bytes(range(256)), parents=True)
    registry.set("/", b"of the root")
    before = write(namespace, bytes(range(256)), b"", "Grüße".encode())
    wanted = nodes(registry)
    assert f"{len(wanted)} nodes" in line("registry", "backup", str(file)).out
    assert file.stat().st_mode & 0o077 == 0
    after = write(namespace, b"after", bytes(50_000))
    registry.create("/later")
    refused = line("registry", "restore", str(file))
    assert refused.code != 0
    assert "--replace" in refused.err
    assert registry.find("/later") is not None
    assert line("registry", "restore", str(file), "--replace").code == 0
    assert nodes(registry) == wanted
    assert payloads_read(namespace, LOG) == before
    told = line("log", "verify", LOG)
    assert told.code == 1
    assert "log recover" in told.out
    assert line("log", "recover", LOG).code == 0
    assert line("log", "verify", LOG).code == 0
    assert payloads_read(namespace, LOG) == before + after


def test_a_backup_beside_a_writer_has_each_log_as_it_was_at_one_moment(
    namespace: LogNamespace, registry: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "backup.gz"
    write(namespace, *(b"%d" % number for number in range(5)))
    with namespace.open_writer(LOG) as writer:
        writer.write(b"5").result(120)
        assert back_up(registry, file) > 6
    registry.delete("/logs", recursive=True)
    registry.create("/somebody", ephemeral=True)
    with pytest.raises(ConfigInvalid, match="connected"):
        restore(registry, file, replace=True)
    registry.delete("/somebody")
    restore(registry, file, replace=False)
    assert not namespace.inspect(LOG).metadata_check.findings
    write(namespace, b"6")
    assert payloads_read(namespace, LOG) == [b"%d" % number for number in range(7)]


def test_a_stream_that_is_put_together_meanwhile_stands_where_it_was_read_up_to(
    line: CommandLine, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node goes and a page has it then: when one of the two places was read, and the other is about to be."""
    monkeypatch.setattr(gone_streams, "TOGETHER_MIN", 1)
    file, view = tmp_path / "backup.gz", DataflowView(registry, "flow")
    log = CommitLog(dataflow="flow", task="", owner="", generation=0, epoch=0, round=0, position={"sequence": 7})
    registry.create(paths.commit_log(view.paths.source_stream("in", "P0")), log.to_bytes(), parents=True)
    registry.create(view.paths.worker("worker-1"), parents=True)
    get, begun = type(registry).get, set[str]()

    def meanwhile(one: Registry, path: str, *watch: Any) -> Node:
        if path in (DATAFLOWS, LOCKS):
            begun.add(path)
            if len(begun) == 2:
                gone_streams.put_together(one, "flow", "in", ())
        return get(one, path, *watch)

    monkeypatch.setattr(type(registry), "get", meanwhile)
    back_up(registry, file)
    monkeypatch.setattr(type(registry), "get", get)
    assert registry.find(view.paths.source_stream("in", "P0")) is None
    restore(registry, file, replace=True)
    assert view.commit_log_of("in", "P0") == log


def test_the_largest_node_is_restored_and_what_is_larger_before_anything_is_deleted(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "backup.gz"
    registry.create("/largest", bytes(REQUEST_BYTES_MAX))
    back_up(registry, file)
    restore(registry, file, replace=True)
    assert registry.get("/largest").data == bytes(REQUEST_BYTES_MAX)
    with monkeypatch.context() as patched:
        patched.setattr(limits, "REQUEST_BYTES_MAX", 1000 * 1024)  # another client
        registry.set("/largest", bytes(REQUEST_BYTES_MAX + 1))
    back_up(registry, file)
    with pytest.raises(ConfigInvalid, match=r"/largest has 921,601 bytes.*nothing was changed"):
        restore(registry, file, replace=True)
    assert len(registry.get("/largest").data) == REQUEST_BYTES_MAX + 1


def test_a_file_that_is_no_whole_backup_restores_nothing(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "backup.gz"
    registry.create("/a", b"1")
    back_up(registry, file)
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    for data in (
        b"",
        b"text",
        file.read_bytes()[:-9],
        gzip.compress(b"".join(lines[:-1])),
        gzip.compress(b"".join([lines[0], *lines[2:]])),
        gzip.compress(b"{}\n"),
        gzip.compress(lines[0] + b"[]\n"),
    ):
        file.write_bytes(data)
        with pytest.raises(ConfigInvalid):
            restore(registry, file, replace=True)
        assert registry.get("/a").data == b"1"
    with pytest.raises(ConfigInvalid):
        restore(registry, tmp_path / "absent", replace=True)
    with pytest.raises(ConfigInvalid):
        back_up(registry, tmp_path / "no" / "such" / "directory")


def test_nobody_but_restore_opens_a_registry_that_is_half_restored(
    line: CommandLine, registry: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "backup.gz"
    assert line("registry", "backup", str(file)).code == 0
    registry.create(RESTORING)  # as a restore that was killed leaves it
    for command in (["list"], ["revive"], ["log", "list"], ["registry", "backup", str(tmp_path / "half")]):
        refused = line(*command)
        assert refused.code == 1
        assert "registry restore FILE --replace" in refused.err
    assert line("registry", "restore", str(file), "--replace").code == 0
    assert line("log", "list").code == 0
    assert registry.find(RESTORING) is None
