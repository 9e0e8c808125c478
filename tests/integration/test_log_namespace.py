"""Namespaces: binding, names, creation and deletion, on a real registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.errors import (
    ConfigInvalid,
    InvalidLogName,
    LogExists,
    LogNotFound,
    NamespaceNotBound,
)
from scribengin.log import LogConfig, LogNamespace
from scribengin.testing.failpoints import failpoint
from scribengin.testing.log_samples import payloads_read
from scribengin.testing.proxy import ChaosProxy
from scribengin_registry.contract import Registry
from scribengin_registry.kazoo_registry import connect


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    LogNamespace.bind("/logs", tmp_path / "store", registry=registry)
    return LogNamespace.open("/logs", registry=registry)


def test_a_namespace_is_opened_by_its_uri(registry_hosts: str, tmp_path: Path) -> None:
    uri = f"distributedlog-file://{registry_hosts}/some/where"
    bound = LogNamespace.bind(uri, tmp_path / "store")
    with LogNamespace.open(uri) as namespace:
        assert namespace.descriptor == bound
        namespace.create("a")
        with namespace.open_writer("a") as writer:
            writer.write(b"x")
    with connect(registry_hosts) as registry:
        bare = LogNamespace.open("/some/where", registry=registry)
        assert payloads_read(bare, "a") == [b"x"]
        bare.close()
        whole = LogNamespace.open(uri.replace("-file", ""), registry=registry)
        assert whole.path == "/some/where"
        assert whole.names() == ["a"]


def test_binding_again_is_fine_and_binding_elsewhere_is_not(registry: Registry, tmp_path: Path) -> None:
    for _ in range(2):
        LogNamespace.bind("/logs", tmp_path / "store", registry=registry)
    with pytest.raises(NamespaceNotBound, match=r"bound to .*store already"):
        LogNamespace.bind("/logs", tmp_path / "other", registry=registry)


def test_a_node_without_data_may_be_bound(registry: Registry, tmp_path: Path) -> None:
    registry.create("/logs/below", parents=True)
    LogNamespace.bind("/logs", tmp_path, registry=registry)
    assert LogNamespace.open("/logs", registry=registry).names() == []


def test_a_namespace_that_is_not_bound_says_so(registry: Registry) -> None:
    with pytest.raises(NamespaceNotBound, match=r"LogNamespace\.bind"):
        LogNamespace.open("/nowhere", registry=registry)


@pytest.mark.parametrize(
    "uri",
    [
        "logs",
        "",
        "/",
        "distributedlog-file://",
        "distributedlog-file://host:1",
        "distributedlog-bk://host:1/logs",
        "http://host:1/logs",
        "distributedlog-file://127.0.0.9:1/logs",
    ],
)
def test_a_uri_that_means_nothing_here_is_refused(registry: Registry, uri: str) -> None:
    with pytest.raises(ConfigInvalid):
        LogNamespace.open(uri, registry=registry)


def test_a_path_without_hosts_needs_a_session() -> None:
    with pytest.raises(ConfigInvalid, match="names no ZooKeeper hosts"):
        LogNamespace.open("/logs")


@pytest.mark.parametrize("name", ["a", "a/b/0", "/a/b", "ä-ö_ü.1", "100%", "a.b", "x" * 200])
def test_names_may_be_nested_and_are_listed_as_they_are(namespace: LogNamespace, name: str) -> None:
    namespace.create(name)
    assert namespace.exists(name)
    assert namespace.names() == [name.removeprefix("/")]
    with namespace.open_writer(name) as writer:
        writer.write(b"x")
    assert payloads_read(namespace, name) == [b"x"]


@pytest.mark.parametrize("name", ["", "/", "a b", "a/", "a//b", "../a", "a/../b", ".reserved", "a\n", "x" * 201])
def test_other_names_are_refused(namespace: LogNamespace, name: str) -> None:
    with pytest.raises(InvalidLogName):
        namespace.create(name)
    with pytest.raises(InvalidLogName):
        namespace.exists(name)
    assert namespace.names() == []


def test_names_are_sorted_and_found_by_prefix(namespace: LogNamespace) -> None:
    for name in ("flights/1", "flights/0", "other", "flights-late/0"):
        namespace.create(name)
    assert namespace.names() == ["flights-late/0", "flights/0", "flights/1", "other"]
    assert namespace.names("flights/") == ["flights/0", "flights/1"]
    assert namespace.names("none") == []


def test_a_log_is_created_once_and_keeps_its_configuration(namespace: LogNamespace) -> None:
    created = namespace.create("a", LogConfig(fsync=False))
    with pytest.raises(LogExists, match="'a' exists already"):
        namespace.create("a")
    assert namespace.info("a").log == created
    assert created.config.fsync is False
    assert len(list(Path(namespace.descriptor.location).iterdir())) == 1


def test_a_log_is_created_as_its_namespace_says(registry: Registry, namespace: LogNamespace) -> None:
    other = LogNamespace.open("/logs", registry=registry, config=LogConfig(codec="lz4"))
    assert other.create("a").config.codec == "lz4"


def test_a_deleted_log_is_gone_with_its_files_and_its_name_is_free(namespace: LogNamespace) -> None:
    namespace.create("a")
    for round_number in range(2):
        with namespace.open_writer("a") as writer:
            writer.write(b"%d" % round_number)
        assert payloads_read(namespace, "a") == [b"%d" % round_number]
        namespace.delete("a")
        assert not namespace.exists("a")
        assert list(Path(namespace.descriptor.location).iterdir()) == []
        for call in (
            namespace.delete,
            namespace.open_writer,
            namespace.open_reader,
            namespace.info,
            namespace.segments,
        ):
            with pytest.raises(LogNotFound, match="no log 'a'"):
                call("a")
        namespace.create("a")


@pytest.mark.parametrize("reply", ["lost", "never sent"])
@pytest.mark.parametrize("stop", ["log.create:before", "log.delete:before", "log.lock:before", "log.metadata:before"])
def test_a_lost_reply_is_settled(registry_hosts: str, tmp_path: Path, stop: str, reply: str) -> None:
    address, _slash, chroot = registry_hosts.partition("/")
    with connect(registry_hosts) as calm:
        LogNamespace.bind("/logs", tmp_path, registry=calm)
    with ChaosProxy(address) as proxy, connect(f"{proxy.address}/{chroot}") as registry:
        namespace = LogNamespace.open("/logs", registry=registry)
        lose = proxy.drop_next_reply if reply == "lost" else proxy.drop_next_request
        with failpoint(stop, lambda _stop: lose()):
            try_everything(namespace)
        assert not namespace.exists("a")


def try_everything(namespace: LogNamespace) -> None:
    try:
        namespace.create("a")
    except LogNotFound:  # it was not created, and create() says so
        namespace.create("a")
    with namespace.open_writer("a") as writer:
        writer.write(b"x").result(10)
    assert payloads_read(namespace, "a") == [b"x"]
    assert len(namespace.segments("a")) == 1
    assert namespace.info("a").writer is None
    namespace.delete("a")
