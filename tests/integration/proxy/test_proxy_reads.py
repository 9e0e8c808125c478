"""Readers behind proxies: the same bytes, read from the store once for all, and the same errors. What readers promise
is tested with `log_place`, which has a store that is read by a proxy."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.base.process.machine import MachineIdentity
from scribengin.errors import (
    ConfigInvalid,
    DamagedEntry,
    LogClosed,
    LogNotFound,
    RangeGone,
    ReadCancelled,
    StoreElsewhere,
    StoreUnreachable,
)
from scribengin.log import DLSN, LogConfig, LogNamespace, LogReader, NamespaceDescriptor
from scribengin.log.store.contract import SegmentName, SegmentStore, Tail
from scribengin.proxy import ProxiedNamespace, ProxyServer
from scribengin.proxy.client.transport import FlightTransport, ProxyTransport
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.reading.segments import IDLE_S
from scribengin.proxy.service import ProxyService
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.answers import AskDone, Refused, TryAgain
from scribengin.proxy.wire.requests import ASK, AskRequest, encode_ask
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import (
    bound_namespace,
    damage_segment,
    fill_log,
    payload_batch,
    payloads_left,
    payloads_planned,
    payloads_read,
)
from scribengin.testing.memory.segments import MemoryView
from scribengin.testing.waiting import wait_until
from tests.integration.proxy.proxied import LOG, PATH, ProxiedPlace, proxied_place
from tests.open_files import open_below

SMALL = LogConfig(segment_bytes_max=4096)
LARGE = LogConfig(segment_bytes_max=1 << 20)


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    yield from proxied_place()


class StoreReads:
    """How often each byte of a segment was read from the disk, by whoever opened it there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: Counter[tuple[SegmentName, int]] = Counter()
        real = MemoryView.read

        def read(view: MemoryView, offset: int, length: int) -> pa.Buffer:
            data = real(view, offset, length)
            self.times.update((view._name, at) for at in range(offset, offset + data.size))
            return data

        monkeypatch.setattr(MemoryView, "read", read)


class RecordingTransport(ProxyTransport):
    """Knows who was asked what."""

    def __init__(self) -> None:
        self._real = FlightTransport()
        self.calls: list[tuple[str, bytes]] = []

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        self.calls.append((address, body))
        return self._real.call(address, kind, body, timeout_s)

    def asked(self, op: str) -> list[str]:
        return [address for address, body in self.calls if b'"' + op.encode() + b'"' in body]

    def close(self) -> None:
        self._real.close()


def recording(place: ProxiedPlace) -> tuple[ProxiedNamespace, RecordingTransport]:
    transport = RecordingTransport()
    client = ProxiedNamespace.open(PATH, registry=place.session(), transport=transport)
    return place.stack.enter_context(client), transport


def asked(server: ProxyServer, request: AskRequest) -> object:
    return server.service.answer(ASK, pa.py_buffer(encode_ask(request)))


def test_a_reader_behind_a_proxy_reads_what_stands_in_the_store(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, config=SMALL)
    payloads = fill_log(namespace, LOG, 20, 3)
    place.start()
    client = place.client()
    assert payloads_read(client, LOG) == payloads
    last = client.last_record(LOG)
    assert last is not None
    assert last.payload == payloads[-1]
    assert client.count(LOG, DLSN(2, 0, 0)) == namespace.count(LOG, DLSN(2, 0, 0))
    assert client.end_dlsn(LOG) == namespace.end_dlsn(LOG)


def test_many_readers_read_each_byte_of_the_store_once(place: ProxiedPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = place.bound(LOG, config=LARGE)
    payloads = fill_log(namespace, LOG, 300, 2)
    place.start()
    reads = StoreReads(monkeypatch)
    clients = [place.client() for _ in range(4)]
    found: list[list[bytes]] = []
    threads = [
        threading.Thread(target=lambda client=client: found.append(payloads_read(client, LOG)))
        for client in clients
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == [payloads] * 20
    segment = namespace.segments(LOG)[0]
    assert set(reads.times.values()) == {1}
    assert len(reads.times) == segment.bytes


def test_a_log_that_grows_is_read_once_for_all_that_follow_it(
    place: ProxiedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = place.bound(LOG)
    server = place.start()
    reads = StoreReads(monkeypatch)
    readers = [place.client().open_reader(LOG) for _ in range(5)]
    found: list[list[bytes]] = [[] for _ in readers]

    def follow(reader: LogReader, seen: list[bytes]) -> None:
        while len(seen) < 200:
            seen += [record.payload for record in reader.read(1000, timeout_s=120)]

    threads = [threading.Thread(target=follow, args=pair) for pair in zip(readers, found, strict=True)]
    for thread in threads:
        thread.start()
    with namespace.open_writer(LOG) as writer:
        for n in range(200):
            writer.write(b"%d" % n).result(120)
    for thread in threads:
        thread.join(120)
    assert found == [[b"%d" % n for n in range(200)]] * 5
    assert set(reads.times.values()) == {1}
    assert 0 < server.service.reads.cached_bytes <= len(reads.times)
    for reader in readers:
        reader.close()


def test_what_is_written_through_a_proxy_is_read_through_one_at_once(place: ProxiedPlace) -> None:
    place.bound(LOG)
    place.start()
    place.start()
    client = place.client()
    with client.open_writer(LOG) as writer, client.open_reader(LOG) as reader:
        writer.write(b"first").result(120)
        assert len(reader.read(timeout_s=120)) == 1  # a watch tells of the segment
        for n in range(50):
            writer.write(b"%d" % n).result(120)
            assert [record.payload for record in reader.read()] == [b"%d" % n]


def test_a_reader_that_waits_asks_rarely(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    place.start()
    client, transport = recording(place)
    with namespace.open_writer(LOG) as writer, client.open_reader(LOG) as reader:
        writer.write(b"1").result(120)
        assert len(reader.read(timeout_s=120)) == 1
        before = len(transport.calls)
        assert reader.read(timeout_s=2.0) == []
        assert len(transport.calls) - before < 12


def test_proxies_share_the_segments_and_each_is_asked_at_one(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, config=SMALL)
    payloads = fill_log(namespace, LOG, 60)
    servers = [place.start(), place.start()]
    for _ in range(2):
        client, transport = recording(place)
        assert payloads_read(client, LOG) == payloads
        assert set(transport.asked(wire.BYTES)) == {server.address for server in servers}
    held = [server.service.reads.cached_bytes for server in servers]
    assert all(held)
    assert sum(held) == sum(segment.bytes for segment in namespace.segments(LOG))


def test_a_proxy_that_dies_under_a_reader_is_not_seen_by_it(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, config=SMALL)
    payloads = fill_log(namespace, LOG, 30)
    servers = [place.start(), place.start()]
    client, transport = recording(place)
    with client.open_reader(LOG) as reader:
        found = [record.payload for record in reader.read(4)]
        dying = next(server for server in servers if server.address == transport.asked(wire.BYTES)[-1])
        dying._server.shutdown()  # its node stands: it did not say goodbye
        assert found + payloads_left(reader) == payloads
        dying.close()
        with namespace.open_writer(LOG) as writer:
            writer.write(b"more").result(120)
        assert [record.payload for record in reader.read(timeout_s=120)] == [b"more"]


def test_where_no_proxy_answers_the_store_is_out_of_reach(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    fill_log(namespace, LOG, 3)
    client = place.client(patience_s=0.2)
    with client.open_reader(LOG) as reader, pytest.raises(StoreUnreachable, match="no proxy of this namespace runs"):
        reader.read()
    place.start()
    assert len(payloads_read(place.client(), LOG)) == 3


def test_a_segment_that_is_purged_under_a_reader_is_an_error_or_is_read_on(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, config=SMALL)
    payloads = fill_log(namespace, LOG, 9)
    server = place.start()
    client = place.client()
    first = namespace.segments(LOG)[0].file
    with client.open_reader(LOG) as reader:
        found = [record.payload for record in reader.read(1)]
        namespace.truncate(LOG, DLSN(2, 0, 0))
        namespace.purge(LOG)
        assert isinstance(asked(server, wire.about_segment(wire.OPEN, first)), Refused)
        wait_until(lambda: reader._catalog.state().head.first == DLSN(2, 0, 0), what="the reader hears of it")
    with pytest.raises(LogNotFound):
        client._store.open(first)
    assert found + payloads[1:3] + payloads_read(client, LOG) == payloads


def held_open(directory: Path) -> set[str]:
    """Files below it that were deleted, and that this process has open: their disk space is not free."""
    return {file for file in open_below(directory) if file.endswith(".log (deleted)")}


def test_a_segment_that_was_purged_is_not_kept_open_for_nobody(place: ProxiedPlace, tmp_path: Path) -> None:
    registry, clock = place.session(), ManualClock()
    namespace = place.stack.enter_context(bound_namespace(registry, tmp_path, LOG, config=SMALL))
    fill_log(namespace, LOG, 4)
    kept = namespace.segments(LOG)[-1].file
    proxy = ProxyDescriptor(name="a", address="a proxy")
    service = place.stack.enter_context(ProxyService(namespace, registry, proxy, clock=clock))
    for segment in namespace.segments(LOG):
        request = wire.about_segment(wire.BYTES, segment.file, offset=0, length=100, ahead=0)
        assert isinstance(service.ask(request), AskDone)
    namespace.truncate(LOG, DLSN(kept.segment, 0, 0))
    assert namespace.purge(LOG).segments == kept.segment - 1
    assert len(held_open(tmp_path)) == kept.segment - 1, "whoever reads there may read on"
    clock.advance_s(IDLE_S / 2)
    assert isinstance(service.ask(request), AskDone)
    clock.advance_s(IDLE_S / 2)
    service.reads.sweep()
    assert held_open(tmp_path) == set()
    assert service.reads.open_segments == 1, "somebody has asked about it"
    clock.advance_s(IDLE_S)
    service.reads.sweep()
    assert service.reads.open_segments == 0
    assert isinstance(service.ask(request), AskDone), "it is opened again"


def test_a_log_that_is_deleted_and_made_anew_is_another_one(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    fill_log(namespace, LOG, 3)
    server = place.start()
    client = place.client()
    before = namespace.segments(LOG)[0].file
    assert len(payloads_read(client, LOG)) == 3
    namespace.delete(LOG)
    namespace.create(LOG)
    assert payloads_read(client, LOG) == []
    assert isinstance(asked(server, wire.about_segment(wire.OPEN, before)), Refused)


def test_damage_is_told_with_its_place_by_the_reader(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, config=SMALL)
    payloads = fill_log(namespace, LOG, 6)
    entry_bytes = namespace.segments(LOG)[0].bytes // 3
    damage_segment(namespace, LOG, 2, entry_bytes + 100)
    place.start()
    told = []
    for one in (namespace, place.client()):
        with one.open_reader(LOG) as reader:
            assert [record.payload for record in reader.read()] == payloads[:4]
            with pytest.raises(DamagedEntry) as error:
                reader.read()
            told.append((str(error.value), error.value.position, error.value.offset))
    assert told[0] == told[1]
    assert told[0][1:] == (str(DLSN(2, 1, 0)), entry_bytes)


def read_as_planned(namespace: LogNamespace, log: str) -> list[bytes]:
    with namespace.open_reader(log) as reader:
        return list(chain(*payloads_planned(reader, DLSN.INITIAL, 100)))


@pytest.mark.parametrize("read", [payloads_read, read_as_planned])
def test_what_was_damaged_is_read_once_its_file_is_brought_back(
    place: ProxiedPlace, read: Callable[[LogNamespace, str], list[bytes]]
) -> None:
    namespace = place.bound(LOG, config=SMALL)
    payloads = fill_log(namespace, LOG, 6)
    at = namespace.segments(LOG)[0].bytes // 3 + 100
    damage_segment(namespace, LOG, 2, at)
    place.start()
    client = place.client()
    with pytest.raises(DamagedEntry):
        read(client, LOG)
    damage_segment(namespace, LOG, 2, at)  # the byte is what it was
    assert read(client, LOG) == payloads


def test_ranges_are_read_by_processes_that_have_no_registry(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, config=SMALL)
    payloads = fill_log(namespace, LOG, 9)
    place.start()
    with place.client().open_reader(LOG) as reader:
        assert list(chain(*payloads_planned(reader, DLSN.INITIAL, 4))) == payloads
        plan = reader.plan(DLSN.INITIAL, 3, 1 << 30)
    assert plan is not None
    [split] = pickle.loads(pickle.dumps(plan.splits))
    assert sum(batch.num_rows for batch in split.read()) == 3
    namespace.truncate(LOG, DLSN(2, 0, 0))
    namespace.purge(LOG)
    with pytest.raises(RangeGone):
        list(split.read())


def test_nobody_reads_a_log_by_another_ones_name(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, "secret")
    fill_log(namespace, LOG, 1)
    fill_log(namespace, "secret", 1)
    server = place.start()
    secret = namespace.segments("secret")[0].file
    assert isinstance(asked(server, wire.about_segment(wire.OPEN, secret)), AskDone)
    assert len(payloads_read(place.client(), "secret")) == 1  # it is held in memory by now
    for name in (secret, SegmentName(f"../{secret.directory}", 1, 1), SegmentName(f"x/../{secret.directory}", 1, 1)):
        for op, fields in (
            (wire.OPEN, {}),
            (wire.BYTES, {"offset": 0, "length": 100, "ahead": 0}),
            (wire.TAIL, {"known": -1, "wait_s": 0}),
            (wire.TAIL, {"known": -1, "wait_s": 1}),
            (wire.SIZE, {}),
            (wire.INDEX, {"kind": "positions"}),
        ):
            answer = asked(server, AskRequest(op, LOG, {"segment": list(name), **fields}))
            assert isinstance(answer, Refused | TryAgain), (name, op)


def test_what_is_not_visible_is_read_and_not_kept(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    server = place.start()
    with namespace.open_writer(LOG) as writer:
        writer.write_bulk(payload_batch([b"shown"])).result(120)
        name = namespace.segments(LOG)[0].file
        shown = place.client()._store.open(name).tail()
        assert isinstance(shown, Tail)
        place.disk.open(f"{name}.log").write(b"not shown")
        answer = asked(server, wire.about_segment(wire.BYTES, name, offset=0, length=shown.end + 9, ahead=1000))
        assert isinstance(answer, AskDone)
        assert answer.data is not None
        assert answer.data.to_pybytes()[shown.end :] == b"not shown"
        assert server.service.reads.cached_bytes == shown.end


def test_a_reader_that_is_closed_while_it_waits_is_told(place: ProxiedPlace) -> None:
    place.bound(LOG)
    place.start()
    client, transport = recording(place)
    with client.open_writer(LOG) as writer:
        writer.write(b"1").result(120)
    with client.open_writer(LOG) as writer:
        writer.write(b"2").result(120)
        reader = client.open_reader(LOG)
        assert len(payloads_left(reader)) == 2
        told: list[BaseException] = []

        def wait() -> None:
            with pytest.raises(ReadCancelled) as error:
                reader.read(timeout_s=120)
            told.append(error.value)

        before = len(transport.asked(wire.TAIL))  # reading has asked, too
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: len(transport.asked(wire.TAIL)) > before + 3, what="it waits")
        reader.close()
        thread.join(120)
        assert told
        with pytest.raises(LogClosed):
            reader.read()


def test_segments_are_only_read_through_a_proxy(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, config=SMALL)
    fill_log(namespace, LOG, 6)
    place.start()
    client = place.client()
    client.truncate(LOG, DLSN(2, 0, 0))
    with pytest.raises(ConfigInvalid, match="is purged on the machine of its store"):
        client.purge(LOG)
    store: SegmentStore = client._store
    name = namespace.segments(LOG)[0].file
    for call in (
        lambda: store.create(name, fsync=True),
        lambda: store.open(name, from_disk=True),
        lambda: store.fence(name),
        lambda: store.make_durable(name),
        lambda: store.names(name.directory),
        lambda: store.announce(name),
        lambda: store.announced(name.directory),
        lambda: store.move(name, name),
        lambda: store.create_log("a"),
        lambda: store.delete_log("a"),
        lambda: store.for_log(LogConfig(ensemble_size=3, write_quorum=3, ack_quorum=2)),
    ):
        with pytest.raises(ConfigInvalid):
            call()


def on_another_machine(place: ProxiedPlace) -> None:
    """Let the registry say that the namespace's directory is another machine's."""
    node = place.registry.get(PATH)
    told = NamespaceDescriptor.from_bytes(node.data, path=PATH)
    elsewhere = told.model_copy(update={"machine": MachineIdentity(id="f" * 32, name="another")})
    place.registry.set(PATH, elsewhere.to_bytes(), node.version)


def test_a_directory_of_another_machine_is_read_through_a_proxy_there(place: ProxiedPlace, tmp_path: Path) -> None:
    namespace = bound_namespace(place.registry, tmp_path / "store", LOG, config=SMALL)
    payloads = fill_log(namespace, LOG, 9)
    server = place.start()
    assert payloads_read(place.client(), LOG) == payloads
    assert server.service.reads.cached_bytes == 0, "readers of this machine map its files"
    on_another_machine(place)
    with pytest.raises(StoreElsewhere):
        LogNamespace.open(PATH, registry=place.registry)
    with pytest.raises(StoreElsewhere):
        place.client(reads="store")
    assert payloads_read(place.client(), LOG) == payloads
    assert server.service.reads.cached_bytes == sum(segment.bytes for segment in namespace.segments(LOG))
