"""Records through a proxy, over real sockets: in the log once, in order, with the errors of the log itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest

from scribengin.errors import (
    LogClosed,
    LogError,
    OverCapacity,
    ProxyUnreachable,
    RecordTooLarge,
    TransactionIdOutOfOrder,
)
from scribengin.log import LogConfig
from scribengin.proxy import ProxyServer
from scribengin.proxy.wire.answers import AskDone
from scribengin.proxy.wire.requests import AskRequest
from scribengin.testing.log_samples import payload_batch, payloads_read
from scribengin_registry.java.process import free_port
from tests.integration.proxy.proxied import LOG, ProxiedPlace, proxied_place


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    yield from proxied_place()


def test_records_of_two_clients_are_in_the_log_where_the_proxy_says(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    place.start()
    with place.client().open_writer(LOG) as one, place.client().open_writer(LOG) as other:
        first = [one.write(b"A%d" % n) for n in range(20)]
        second = other.write_bulk(payload_batch([b"B%d" % n for n in range(20)]))
        places = [future.result(120) for future in first]
        found = second.result(120)
        assert one.flush() == places[-1]
    records = {record.dlsn: record.payload for record in namespace.open_reader(LOG).read(100)}
    assert [records[place] for place in places] == [b"A%d" % n for n in range(20)]
    assert (records[found.first], records[found.last]) == (b"B0", b"B19")
    assert len(records) == 40


def test_a_writer_raises_what_the_log_itself_would(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, config=LogConfig(record_bytes_max=10))
    place.start()
    with place.client().open_writer(LOG) as writer, place.client().open_writer(LOG) as late:
        with pytest.raises(RecordTooLarge):
            writer.write(bytes(11))
        writer.write(b"1", txid=100).result(120)
        with pytest.raises(TransactionIdOutOfOrder):
            writer.write(b"2", txid=99)
        with pytest.raises(LogError, match="a record has no column 'kye': did you mean 'key'"):
            writer.write_bulk(pa.record_batch({"payload": [b"2"], "kye": [b"k"]}))
        with pytest.raises(TransactionIdOutOfOrder):
            late.write(b"3", txid=7).result(120)
        late.write(b"4", txid=100).result(120)
    with pytest.raises(LogClosed):
        late.write(b"5")
    assert payloads_read(namespace, LOG) == [b"1", b"4"]


def test_what_is_refused_of_a_request_takes_nothing_else_along(place: ProxiedPlace) -> None:
    """Records that went together are refused one by one."""
    namespace = place.bound(LOG)
    place.start()
    with place.client().open_writer(LOG) as writer, place.client().open_writer(LOG) as other:
        other.write(b"far", txid=1000).result(120)
        futures = [writer.write(b"%d" % n, txid=998 + n) for n in range(5)]
        refused = [n for n, future in enumerate(futures) if future.exception(120) is not None]
        assert refused == [0, 1]
    assert payloads_read(namespace, LOG) == [b"far", b"2", b"3", b"4"]


def test_a_batch_that_is_larger_than_a_request_stands_in_the_log_in_order(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG)
    place.start()
    payloads = [bytes([n % 256]) * 50_000 for n in range(60)]
    keys = pa.array([b"k%d" % n for n in range(60)])
    batch = pa.RecordBatch.from_arrays([pa.array(payloads), keys], names=["payload", "key"])
    with place.client().open_writer(LOG) as writer:
        found = writer.write_bulk(batch).result(120)
        partial = writer.write_bulk(payload_batch([b"x"]), partial=True).result(120)
    assert payloads_read(namespace, LOG) == [*payloads, b"x"]
    assert found.first < found.last
    assert partial.records_written == 1


def test_an_atomic_batch_is_one_entry(place: ProxiedPlace) -> None:
    place.bound(LOG, config=LogConfig(entry_bytes_max=4096))
    place.start()
    with place.client().open_writer(LOG) as writer:
        for _ in range(5):
            writer.write(bytes(1000))
        found = writer.write_atomic(payload_batch([bytes(1500)] * 2)).result(120)
        assert found.first.entry == found.last.entry
        with pytest.raises(RecordTooLarge):
            writer.write_atomic(payload_batch([bytes(1500)] * 3))


def test_an_atomic_batch_is_one_entry_whatever_the_proxy_opened_its_log_with(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, config=LogConfig(entry_bytes_max=4096))
    place.start()
    client = place.client()
    client.open_writer(LOG).close()
    namespace.configure(LOG, LogConfig(entry_bytes_max=1024 * 1024))
    batch = payload_batch([bytes(1000)] * 20)
    with client.open_writer(LOG) as writer:
        with pytest.raises(RecordTooLarge, match=r"takes 4096 at once.*, then ProxiedNamespace.release\('flights/0'\)"):
            writer.write_atomic(batch).result(120)
        client.release(LOG)
        found = writer.write_atomic(batch).result(120)
    assert found.first.entry == found.last.entry
    with namespace.open_reader(LOG, whole_entries=True) as reader:
        read = reader.read_batch(1)
    assert read is not None
    assert read.num_rows == 20


def test_what_is_too_large_is_told_with_what_makes_the_proxy_take_it(place: ProxiedPlace) -> None:
    """It keeps what it has opened the log with: to configure the log anew is not enough."""
    namespace = place.bound(LOG, config=LogConfig(record_bytes_max=10, entry_bytes_max=4096))
    place.start()
    client = place.client()
    large, row = bytes(11), payload_batch([bytes(11)])
    with client.open_writer(LOG) as writer:
        (refused,) = writer.write_bulk(row, partial=True).result(120).refused
        told: list[BaseException] = [refused.error]
        for write in (
            lambda: writer.write(large),
            lambda: writer.write_bulk(row),
            lambda: writer.write_atomic(payload_batch([bytes(10)] * 400)),
        ):
            with pytest.raises(RecordTooLarge) as raised:
                write()
            told.append(raised.value)
    namespace.configure(LOG, LogConfig(record_bytes_max=11))
    with client.open_writer(LOG) as writer:
        with pytest.raises(RecordTooLarge) as raised:
            writer.write(large).result(120)
        told.append(raised.value)
        client.release(LOG)
        writer.write(large).result(120)
    for error in told:
        assert str(error).count("then ProxiedNamespace.release('flights/0')") == 1
    assert payloads_read(namespace, LOG) == [large]


def test_a_log_that_is_written_too_fast_is_refused_and_nothing_is_written(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, "other")
    server = place.start(log_rates={"bytes_s_hard": 1})
    client = place.client()
    with client.open_writer(LOG) as writer, client.open_writer("other") as other:
        writer.write(bytes(100_000)).result(120)
        with pytest.raises(OverCapacity, match="1 bytes a second"):
            writer.write(b"2").result(120)
        other.write(b"its own rate").result(120)
    assert payloads_read(namespace, LOG) == [bytes(100_000)]
    assert payloads_read(namespace, "other") == [b"its own rate"]
    assert counted_by(server)["requests_refused"] == 1


def counted_by(server: ProxyServer) -> Mapping[str, object]:
    said = server.service.ask(AskRequest("info"))
    assert isinstance(said, AskDone)
    return said.said


def test_what_all_logs_of_a_proxy_take_together_is_limited_too(place: ProxiedPlace) -> None:
    namespace = place.bound(LOG, "other")
    server = place.start(service_rates={"bytes_s_hard": 1})
    client = place.client()
    with client.open_writer(LOG) as writer, client.open_writer("other") as other:
        writer.write(bytes(100_000)).result(120)
        with pytest.raises(OverCapacity, match="log 'other' is written too fast: this proxy: 1 bytes a second"):
            other.write(b"2").result(120)
    assert (payloads_read(namespace, LOG), payloads_read(namespace, "other")) == ([bytes(100_000)], [])
    assert counted_by(server)["requests_refused"] == 1


@pytest.mark.parametrize(("of", "told"), [("log_rates", f"log '{LOG}'"), ("service_rates", "this proxy")])
def test_what_is_above_a_soft_limit_is_taken_warned_of_and_counted(
    place: ProxiedPlace, caplog: pytest.LogCaptureFixture, of: str, told: str
) -> None:
    namespace = place.bound(LOG)
    server = place.start(**{of: {"bytes_s_soft": 1}})
    with place.client().open_writer(LOG) as writer:
        writer.write(bytes(100_000)).result(120)
        writer.write(b"2").result(120)
    assert payloads_read(namespace, LOG) == [bytes(100_000), b"2"]
    assert f"more is written than the soft limit: {told}: 1 bytes a second" in caplog.messages
    assert counted_by(server)["requests_over_soft"] == 1


def test_who_finds_full_proxies_gets_to_one_with_room_or_is_told_to_start_one(place: ProxiedPlace) -> None:
    roomy, *full = sorted((free_port() for _ in range(3)), reverse=True)
    logs = [f"log-{n}" for n in range(10)]
    place.bound("a", "b", *logs)
    for port in full:
        place.start(logs_max=1, balance_s=0, port=port)
    hasty = place.client(patience_s=1)
    with hasty.open_writer("a") as first, hasty.open_writer("b") as second:
        first.write(b"1").result(60)
        second.write(b"1").result(60)
        with pytest.raises(ProxyUnreachable, match=r"log 'log-0'.*`logs_max`.*start another proxy"):
            hasty.open_writer(logs[0])
    place.start(balance_s=0, port=roomy)
    client = place.client()
    for log in logs:
        with client.open_writer(log) as writer:
            writer.write(b"1").result(60)
