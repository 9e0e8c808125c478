"""The store of another machine, through the proxies there, keeps what every segment store promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import LogWriteFailed, ProxyUnreachable, StoreNotMounted, StoreUnreachable, WritersTooMany
from scribengin.log import LogConfig, LogNamespace, migrate_namespace
from scribengin.log.metadata.lifecycle import delete_log
from scribengin.log.store.contract import SegmentName
from scribengin.proxy import ProxyClientConfig
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.elsewhere import NamespaceElsewhere, StoreElsewhereByProxies
from scribengin.proxy.client.segments import SegmentQuestions
from scribengin.proxy.client.transport import FlightTransport, ProxyTransport
from scribengin.proxy.nodes import ProxyNodes
from scribengin.proxy.server import ProxyServer
from scribengin.proxy.writing import segments as writing
from scribengin.testing.conformance.segments import SEGMENT_STORE_CHECKS, Check, a_segments_place_opens_it
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, fill_log, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE, MemorySegmentStore
from tests.contract.direct_transport import DirectTransport

LOG = "flights/0"
PATH = "/logs"
_EPOCHS = 3


@dataclass
class Elsewhere:
    """A proxy over a disk in memory, and a log there."""

    stack: ExitStack
    disk: MemoryDisk
    namespace: LogNamespace
    server: ProxyServer
    directory: str

    def store(self, transport: ProxyTransport | None = None) -> StoreElsewhereByProxies:
        """As another machine has it."""
        client = ProxyClientConfig(patience_s=10)
        nodes = ProxyNodes(self.namespace.registry, PATH)
        delivery = ProxyDelivery(nodes, transport or DirectTransport(self.server), client)
        self.stack.callback(delivery.close)
        questions = SegmentQuestions(delivery)
        self.stack.callback(questions.close)
        return StoreElsewhereByProxies(questions, MEMORY_STORE, client)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with ExitStack() as stack:
        session = stack.enter_context(MemoryEnsemble().connect())
        disk = MemoryDisk("disk elsewhere")
        namespace = stack.enter_context(bound_namespace(session, disk.name, LOG, store=MEMORY_STORE))
        for _ in range(_EPOCHS):  # the suite makes segments under these, which the log must have had
            namespace.open_writer(LOG).close()
        server = stack.enter_context(ProxyServer(PATH, session))
        yield Elsewhere(stack, disk, namespace, server, namespace._metadata(LOG).descriptor().directory)


class LastAnswerLost(ProxyTransport):
    """The proxy that is asked first to make a segment makes it, and is gone before anybody hears of it."""

    def __init__(self, servers: list[ProxyServer]) -> None:
        self._servers = {server.address: server for server in servers}
        self.gone: ProxyServer | None = None

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        asked = self._servers[address]
        answer = DirectTransport(asked).call(address, kind, body, timeout_s)
        if self.gone is None and b"store_create" in body:
            self.gone = asked
            asked.close()
            raise ProxyUnreachable("the answer was lost")
        return answer

    def close(self) -> None:
        """There is nothing to close."""


def two_proxies(elsewhere: Elsewhere) -> LastAnswerLost:
    other = elsewhere.stack.enter_context(ProxyServer(PATH, elsewhere.namespace.registry))
    return LastAnswerLost([elsewhere.server, other])


def test_a_segment_that_a_proxy_has_made_and_not_told_of_is_made_anew_by_the_next_one(elsewhere: Elsewhere) -> None:
    transport = two_proxies(elsewhere)
    store, name = elsewhere.store(transport), SegmentName(elsewhere.directory, 1, 1)
    with pytest.raises(StoreUnreachable):
        store.create(name, fsync=True)
    assert transport.gone is not None
    assert store.names(elsewhere.directory) == [name], "the first has made it"
    appender = store.create(name, fsync=True)
    appender.sync()
    appender.close()
    assert store.names(elsewhere.directory) == [name]


def test_a_segment_that_a_full_proxy_has_not_made_may_be_made_at_another_one(
    elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, name = elsewhere.store(), SegmentName(elsewhere.directory, 1, 1)
    monkeypatch.setattr(writing, "OPEN_MAX", 0)
    with pytest.raises(WritersTooMany):
        store.create(name, fsync=True)
    assert store._begun == {}, "nothing binds it to the proxy that had no room"
    monkeypatch.undo()
    store.create(name, fsync=True).close()


def test_a_log_whose_segment_has_a_later_epoch_than_its_head_is_deleted(elsewhere: Elsewhere) -> None:
    """Its metadata contradicts itself, as after a registry that went back."""
    metadata = elsewhere.namespace._metadata(LOG)
    writer = elsewhere.namespace.open_writer(LOG)
    elsewhere.stack.callback(writer.abort)
    writer.write(b"1").result(120)
    head, version = metadata.head()
    before = head.model_copy(update={"epoch": head.epoch - 1})
    metadata.registry.set(metadata.segments_path, before.to_bytes(), version)
    delete_log(metadata, elsewhere.store(), force=True)
    assert not elsewhere.namespace.exists(LOG)
    assert not elsewhere.namespace._store.names(elsewhere.directory)


def test_a_segment_that_somebody_has_written_to_or_that_is_a_sign_is_not_made_anew(elsewhere: Elsewhere) -> None:
    there = MemorySegmentStore(elsewhere.disk)
    transport = two_proxies(elsewhere)
    store, name = elsewhere.store(transport), SegmentName(elsewhere.directory, 1, 1)
    sign = name.copied("sign")
    with pytest.raises(StoreUnreachable):
        store.create(name, fsync=True)
    there.create(sign, fsync=True).close()
    elsewhere.disk.open(f"{name}.log").write(b"somebody's")
    for made in (name, sign):
        for _attempt in range(2):
            with pytest.raises(LogWriteFailed) as refused:
                store.create(made, fsync=True)
            assert type(refused.value) is LogWriteFailed
    assert there.open(name).size() == len(b"somebody's")
    assert there.open(sign).size() == 0


@pytest.mark.parametrize("check", SEGMENT_STORE_CHECKS, ids=lambda check: check.__name__)
def test_the_store_of_another_machine_keeps_its_promises(check: Check, elsewhere: Elsewhere) -> None:
    by_network = check is a_segments_place_opens_it  # whoever has a place opens it over the network
    store = elsewhere.store(FlightTransport() if by_network else None)
    store.create_log(elsewhere.directory)
    check(store, elsewhere.directory)


def test_no_copy_is_named_from_another_machine_that_only_the_place_has_from_where_a_log_was_moved(
    tmp_path: Path,
) -> None:
    """Its maker's proxy has made it in the old place, and its maker tells the registry when all is moved."""
    plain = LogConfig(segment_bytes_max=4096)
    with ExitStack() as stack:
        ensemble = MemoryEnsemble()
        session = stack.enter_context(ensemble.connect())
        logs = stack.enter_context(bound_namespace(session, tmp_path / "old", LOG, config=plain))
        records = fill_log(logs, LOG, 5)
        logs.configure(LOG, plain.model_copy(update={"copy_codec": "zstd", "raw_retention_hours": 0}))
        server = stack.enter_context(ProxyServer(PATH, session))
        there = NamespaceElsewhere.find(PATH, session, transport=DirectTransport(server))
        assert there is not None
        stack.callback(there.close)

        def move(_stop: str) -> None:
            migrate_namespace(PATH, tmp_path / "new", registry=ensemble.connect())

        with pytest.raises(StoreNotMounted), at_failpoint("log.metadata:before", move):
            there.compress(LOG)
        moved = stack.enter_context(LogNamespace.open(PATH, registry=session))
        assert not any(segment.compressed for segment in moved.segments(LOG))
        assert payloads_read(moved, LOG) == records
        with pytest.raises(StoreNotMounted, match="open the namespace again"):
            there.delete(LOG)
        assert moved.exists(LOG)
