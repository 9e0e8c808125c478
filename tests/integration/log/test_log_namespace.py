"""Namespaces: binding, names, creation and deletion, on a real registry."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scribengin.errors import (
    ConfigConflict,
    ConfigInvalid,
    InvalidLogName,
    LogBusy,
    LogClosed,
    LogError,
    LogExists,
    LogNotFound,
    NamespaceNotBound,
    OverCapacity,
    RecordTooLarge,
    StoreNotMounted,
)
from scribengin.log import DLSN, LogConfig, LogNamespace, LogWriter
from scribengin.log.store.mark import MARK, mark_directory
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import payloads_read
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect


def directories_of(namespace: LogNamespace) -> list[Path]:
    """The directories of logs in the namespace's store."""
    return [path for path in Path(namespace.descriptor.location).iterdir() if path.is_dir()]


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
    with connect(registry_hosts, session_timeout_s=100) as registry:
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


def unmounted(namespace: LogNamespace) -> Path:
    """An empty directory where the namespace's was, as when its disk is not mounted. Where the disk is now."""
    location = Path(namespace.descriptor.location)
    elsewhere = location.rename(location.with_name("unmounted"))
    location.mkdir()
    return elsewhere


def test_a_directory_that_is_not_mounted_is_told_at_every_open_and_nothing_is_made_there(
    registry: Registry, namespace: LogNamespace
) -> None:
    namespace.create("a")
    with namespace.open_writer("a") as writer:
        writer.write(b"kept")
    sleeping = namespace.open_writer("a")
    location = Path(namespace.descriptor.location)
    elsewhere = unmounted(namespace)
    calls: list[Callable[[], object]] = [
        lambda: LogNamespace.open("/logs", registry=registry),
        lambda: LogNamespace.bind("/logs", location, registry=registry),
        lambda: namespace.create("b"),
        lambda: namespace.delete("a", force=True),
        lambda: namespace.purge("a"),
        lambda: payloads_read(namespace, "a"),
        lambda: sleeping.write(b"not written").result(120),
    ]
    for call in calls:
        with pytest.raises(StoreNotMounted, match=rf"{location} is not the directory .* mount the disk"):
            call()
    sleeping.abort()
    assert list(location.iterdir()) == []
    location.rmdir()
    with pytest.raises(StoreNotMounted):
        namespace.create("b")
    assert not location.exists()
    elsewhere.rename(location)
    assert namespace.names() == ["a"]
    assert payloads_read(namespace, "a") == [b"kept"]
    assert LogNamespace.bind("/logs", location, registry=registry) == namespace.descriptor


def test_a_log_is_not_deleted_half_when_its_disk_is_not_mounted(namespace: LogNamespace) -> None:
    namespace.create("a")
    with namespace.open_writer("a") as writer:
        writer.write(b"kept")
    unmounted(namespace)
    with pytest.raises(StoreNotMounted):
        namespace.delete("a")
    assert namespace.exists("a")


def test_the_directory_of_another_namespace_is_not_taken_for_ones_own(
    registry: Registry, namespace: LogNamespace, tmp_path: Path
) -> None:
    LogNamespace.bind("/other", tmp_path / "other", registry=registry)
    unmounted(namespace).rename(tmp_path / "gone")
    location = Path(namespace.descriptor.location)
    location.rmdir()
    (tmp_path / "other").rename(location)
    with pytest.raises(StoreNotMounted, match=rf"should hold {namespace.descriptor.token}, and it holds [0-9a-f]+;"):
        LogNamespace.open("/logs", registry=registry)


def test_all_who_bind_a_directory_at_once_agree_on_its_mark(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _n: mark_directory(tmp_path / "store"), range(40)))) == 1


@pytest.mark.parametrize("torn", [b"", b"\n0123", bytes(range(256))])
def test_a_mark_that_a_crash_has_torn_is_made_again(registry: Registry, tmp_path: Path, torn: bytes) -> None:
    (tmp_path / MARK).write_bytes(torn)
    LogNamespace.bind("/logs", tmp_path, registry=registry)
    LogNamespace.open("/logs", registry=registry).create("a")


def test_a_writer_whose_disk_has_gone_does_not_say_that_it_was_fenced(namespace: LogNamespace) -> None:
    namespace.create("a")
    writer = namespace.open_writer("a")
    writer.write(b"acknowledged").result(120)
    unmounted(namespace)
    with pytest.raises(StoreNotMounted):
        writer.write(b"not acknowledged").result(120)
    writer.abort()


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


@pytest.mark.parametrize(
    "name", ["\ud83d", "a/\udcff", "", "/", "a b", "a/", "a//b", "../a", "a/../b", ".reserved", "a\n", "x" * 201]
)
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
    assert len(directories_of(namespace)) == 1


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
        assert directories_of(namespace) == []
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
        with at_failpoint(stop, lambda _stop: lose()):
            try_everything(namespace)
        assert not namespace.exists("a")


def try_everything(namespace: LogNamespace) -> None:
    try:
        namespace.create("a")
    except LogNotFound:  # it was not created, and create() says so
        namespace.create("a")
    with namespace.open_writer("a") as writer:
        writer.write(b"x").result(120)
    assert payloads_read(namespace, "a") == [b"x"]
    assert len(namespace.segments("a")) == 1
    assert namespace.info("a").writer is None
    namespace.delete("a")


def test_a_missing_log_is_created_by_its_writer_only_where_that_was_asked_for(
    registry: Registry, namespace: LogNamespace
) -> None:
    with pytest.raises(LogNotFound):
        namespace.open_writer("flights/0")
    namespace.create("flights/0")
    namespace.open_writer("flights/0").close()
    namespace.open_writer("flights/1", create=True).close()
    creating = LogNamespace.open("/logs", registry=registry, create_if_missing=True, config=LogConfig(codec="lz4"))
    creating.open_writer("flights/2").close()
    assert creating.info("flights/2").log.config.codec == "lz4"
    with pytest.raises(LogNotFound):
        creating.open_writer("flights/3", create=False)
    with pytest.raises(LogNotFound):
        creating.open_reader("flights/3")
    assert namespace.names() == ["flights/0", "flights/1", "flights/2"]


def test_a_log_is_not_deleted_while_somebody_writes_it(namespace: LogNamespace) -> None:
    namespace.create("a")
    with namespace.open_writer("a") as writer:
        writer.write(b"x").result(120)
        with pytest.raises(LogBusy, match="is being written by"):
            namespace.delete("a")
        writer.write(b"y").result(120)
    assert payloads_read(namespace, "a") == [b"x", b"y"]
    namespace.delete("a")
    assert not namespace.exists("a")


def test_a_writer_that_comes_while_a_log_is_deleted_has_it_or_finds_none(namespace: LogNamespace) -> None:
    namespace.create("a")
    opened: list[LogWriter] = []
    takes_it = at_failpoint("log.delete:before", lambda _stop: opened.append(namespace.open_writer("a")))
    with takes_it, pytest.raises(LogBusy):
        namespace.delete("a")
    opened[0].write(b"x").result(120)
    opened[0].close()
    assert payloads_read(namespace, "a") == [b"x"]


def test_a_log_that_is_deleted_and_created_again_starts_anew(namespace: LogNamespace) -> None:
    namespace.create("a")
    with namespace.open_writer("a") as writer:
        for n in range(1, 11):
            writer.write(b"%d" % n, txid=n)
    with namespace.open_reader("a") as reader:
        reader.read(3)
        namespace.delete("a")
        with pytest.raises(LogNotFound):
            wait_until(lambda: reader.read(100) == ["never"], what="the deletion to be seen")
    namespace.create("a")
    with namespace.open_writer("a") as writer:
        assert writer.write(b"1", txid=1).result(120) == DLSN.INITIAL
        for n in range(2, 11):
            writer.write(b"%d" % n, txid=n)
    with namespace.open_reader("a") as reader:
        assert [record.sequence_id for record in reader.read(100)] == list(range(10))


def test_a_configuration_is_changed_from_the_version_that_was_seen(namespace: LogNamespace) -> None:
    assert namespace.create("a", LogConfig(codec="lz4")).config_version == 0
    changed = namespace.configure("a", LogConfig(segment_bytes_max=4096), version=0)
    assert (changed.config_version, changed.config.codec, changed.config.segment_bytes_max) == (1, "none", 4096)
    with pytest.raises(ConfigConflict, match="version 1 by now, not 0"):
        namespace.configure("a", LogConfig(codec="zstd"), version=0)
    assert namespace.configure("a", LogConfig(), version=None).config_version == 2
    with pytest.raises(LogNotFound):
        namespace.configure("b", LogConfig())


def test_the_next_writer_obeys_a_changed_configuration_and_the_one_that_is_open_does_not(
    namespace: LogNamespace,
) -> None:
    namespace.create("a")
    with namespace.open_writer("a") as writer:
        namespace.configure("a", LogConfig(record_bytes_max=10))
        writer.write(bytes(11)).result(120)
    with namespace.open_writer("a") as writer, pytest.raises(RecordTooLarge):
        writer.write(bytes(11))


def test_a_writer_that_waited_obeys_the_configuration_as_it_is_when_its_turn_comes(namespace: LogNamespace) -> None:
    namespace.create("a")

    def configure(_stop: str) -> None:
        namespace.configure("a", LogConfig(record_bytes_max=10))

    with at_failpoint("log.lock:before", configure):
        writer = namespace.open_writer("a")
    with writer, pytest.raises(RecordTooLarge):
        writer.write(bytes(11))


@pytest.mark.parametrize("reply", ["lost", "never sent"])
def test_a_configuration_whose_reply_was_lost_is_set_once(registry_hosts: str, tmp_path: Path, reply: str) -> None:
    address, _slash, chroot = registry_hosts.partition("/")
    with ChaosProxy(address) as proxy, connect(f"{proxy.address}/{chroot}") as registry:
        LogNamespace.bind("/logs", tmp_path, registry=registry)
        namespace = LogNamespace.open("/logs", registry=registry)
        namespace.create("a")
        lose = proxy.drop_next_reply if reply == "lost" else proxy.drop_next_request
        with at_failpoint("log.configure:before", lambda _stop: lose()):
            assert namespace.configure("a", LogConfig(fsync=False), version=0).config_version == 1
        assert namespace.info("a").log.config.fsync is False


def test_the_writers_of_a_namespace_share_its_limit(registry: Registry, namespace: LogNamespace) -> None:
    limited = LogNamespace.open("/logs", registry=registry, create_if_missing=True, outstanding_writes_max=0)
    with limited.open_writer("a") as first, limited.open_writer("b") as second:
        for writer in (first, second):
            with pytest.raises(OverCapacity, match="the writers of /logs"):
                writer.write(b"x")
    counting = LogNamespace.open("/logs", registry=registry, outstanding_writes_max=0, outstanding_dark_mode=True)
    with counting.open_writer("a") as writer:
        writer.write(b"x").result(120)
    assert payloads_read(namespace, "a") == [b"x"]


def test_a_namespace_that_was_closed_is_closed_whosever_session_it_uses(
    registry: Registry, namespace: LogNamespace
) -> None:
    namespace.create("a")
    namespace.close()
    namespace.close()
    calls: list[Callable[[], object]] = [
        namespace.names,
        lambda: namespace.create("b"),
        lambda: namespace.exists("a"),
        lambda: namespace.open_writer("a"),
        lambda: namespace.open_reader("a"),
        lambda: namespace.count("a"),
        lambda: namespace.listen(lambda _added, _removed: None),
    ]
    for call in calls:
        with pytest.raises(LogClosed, match="the namespace /logs is closed; open it again"):
            call()
    assert LogNamespace.open("/logs", registry=registry).names() == ["a"], "the session is its owner's to close"


@pytest.mark.parametrize("name", ["", "\ud83d"])
def test_readers_have_names_of_whole_characters(namespace: LogNamespace, name: str) -> None:
    namespace.create("a")
    with pytest.raises(LogError, match="cannot be the name of a reader"):
        namespace.open_reader("a", subscriber=name)
    with pytest.raises(LogError, match="cannot be the name of a reader"):
        namespace.register_reader("a", name)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_whatever_holds_bytes_is_a_payload_and_may_be_changed_afterwards(
    namespace: LogNamespace, kind: type[bytes | bytearray | memoryview]
) -> None:
    namespace.create("a")
    every_byte, own = bytes(range(256)), bytearray(range(256))
    with namespace.open_writer("a") as writer:
        future = writer.write(memoryview(own) if kind is memoryview else kind(own), key=kind(own))
        own[:] = bytes(256)
        future.result(120)
        writer.write(memoryview(every_byte)[::-2]).result(120)
    with namespace.open_reader("a") as reader:
        found = reader.read(2)
    assert (found[0].payload, found[0].key) == (every_byte, every_byte)
    assert found[1].payload == every_byte[::-2]
