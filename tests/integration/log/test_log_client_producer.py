"""A producer in the style of Kafka's, over logs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest

from scribengin.errors import (
    Fenced,
    InconsistentLog,
    LogClosed,
    LogError,
    LogNotFound,
    OwnershipAcquireFailed,
    RecordTooLarge,
)
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.log.clients import LogProducer, RecordMetadata, int_partitioner, partition_logs
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect

LOGS = partition_logs("clicks", 3)
HOUR_MS = 3_600_000


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", *LOGS, "views/0")


@pytest.fixture
def elsewhere(namespace: LogNamespace, registry_hosts: str) -> Iterator[LogNamespace]:
    """The same namespace through a session of its own, as another process has it."""
    with connect(registry_hosts, session_timeout_s=100) as session:
        yield LogNamespace.open(namespace.path, registry=session)


def test_every_record_is_told_where_it_was_written(namespace: LogNamespace) -> None:
    told: list[tuple[BaseException | None, RecordMetadata | None]] = []
    with LogProducer(namespace, linger_ms=HOUR_MS) as producer:
        assert producer.partitions_for("clicks") == [0, 1, 2]
        futures = [
            producer.send("clicks", b"%d" % n, key=b"k%d" % (n % 7), on_delivery=lambda *args: told.append(args))
            for n in range(100)
        ]
        other = producer.send("views", b"v")
        producer.flush()
        assert all(future.done() for future in futures)
        assert other.result() == RecordMetadata("views", 0, DLSN.INITIAL)
    read = {}
    for partition, log in enumerate(LOGS):
        with namespace.open_reader(log) as reader:
            read.update({RecordMetadata("clicks", partition, r.dlsn): (r.key, r.payload) for r in reader.read(1000)})
    assert {future.result(): (b"k%d" % (n % 7), b"%d" % n) for n, future in enumerate(futures)} == read
    assert sorted(told, key=lambda answer: str(answer[1])) == sorted(
        ((None, future.result()) for future in futures), key=lambda answer: str(answer[1])
    )
    assert len({dlsn.entry for dlsn in (future.result().dlsn for future in futures)}) == 1  # one entry a partition


def test_a_key_or_a_number_chooses_the_partition_and_the_rest_goes_in_turn(namespace: LogNamespace) -> None:
    with LogProducer(namespace, partitioner=int_partitioner) as producer:
        producer.send("clicks", b"by key", key=b"5")
        producer.send("clicks", b"by number", key=b"5", partition=0)
        for n in range(3):
            producer.send("clicks", b"in turn %d" % n)
    found = [payloads_read(namespace, log) for log in LOGS]
    assert found == [[b"by number", b"in turn 0"], [b"in turn 1"], [b"by key", b"in turn 2"]]


def test_a_batch_is_sent_when_it_lingered_or_is_full_and_not_before(namespace: LogNamespace) -> None:
    with LogProducer(namespace, linger_ms=0) as producer:
        producer.send("views", b"at once").result(120)
    with LogProducer(namespace, linger_ms=HOUR_MS, batch_bytes=1000) as producer:
        early = [producer.send("views", bytes(300)) for _ in range(3)]
        late = producer.send("views", bytes(300))  # does not fit any more
        assert len({future.result(120).dlsn.entry for future in early}) == 1
        assert not late.done()
        full = producer.send("views", bytes(2000))  # larger than a batch: it pushes the other out, and goes at once
        assert late.result(120).dlsn.entry + 1 == full.result(120).dlsn.entry
        lingering = producer.send("views", b"x")
        assert not lingering.done()
    assert lingering.done()


def test_records_stand_in_their_log_in_the_order_of_sending(namespace: LogNamespace) -> None:
    with LogProducer(namespace, linger_ms=0, batch_bytes=200) as producer:
        threads = [
            threading.Thread(
                target=lambda t=t: [producer.send("views", b"%d-%d" % (t, n), partition=0) for n in range(500)]
            )
            for t in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    found = payloads_read(namespace, "views/0")
    for t in range(2):
        assert [payload for payload in found if payload.startswith(b"%d-" % t)] == [
            b"%d-%d" % (t, n) for n in range(500)
        ]


def test_send_waits_while_too_much_is_under_way(namespace: LogNamespace) -> None:
    entered, go, sent = threading.Event(), threading.Event(), threading.Event()

    def hold(_stop: str) -> None:
        entered.set()
        assert go.wait(120)

    with (
        LogProducer(namespace, linger_ms=0, buffer_bytes_max=1000) as producer,
        at_failpoint("log.segment_sync:before", hold),
    ):
        first = producer.send("views", bytes(2000))
        assert entered.wait(120)

        def more() -> None:
            producer.send("views", b"x")
            sent.set()

        thread = threading.Thread(target=more)
        thread.start()
        assert not first.done()
        assert not sent.is_set()
        go.set()
        thread.join(120)
    assert sent.is_set()


@pytest.mark.usefixtures("unheard")
def test_what_a_fenced_log_did_not_acknowledge_fails_and_the_next_batch_opens_it_again(
    namespace: LogNamespace, elsewhere: LogNamespace
) -> None:
    told: list[object] = []
    with LogProducer(namespace, linger_ms=0, timeout_s=0.05) as producer:
        producer.send("views", b"before").result(120)
        owner = elsewhere.open_writer("views/0", steal=True)
        lost = producer.send("views", b"lost", on_delivery=lambda error, _where: told.append(error))
        assert isinstance(lost.exception(10), Fenced)
        assert told == [lost.exception()]
        refused = producer.send("views", b"refused")
        assert isinstance(refused.exception(10), OwnershipAcquireFailed)
        with pytest.raises(Fenced):
            producer.flush()
        producer.send("clicks", b"elsewhere").result(120)
        owner.close()
        producer.send("views", b"after").result(120)
        producer.flush()
    assert payloads_read(namespace, "views/0") == [b"before", b"after"]


def test_closing_sends_what_lingers_and_aborting_fails_it(namespace: LogNamespace) -> None:
    producer = LogProducer(namespace, linger_ms=HOUR_MS)
    sent = producer.send("views", b"sent")
    producer.close()
    producer.close()
    assert sent.result().dlsn == DLSN.INITIAL
    with pytest.raises(LogClosed):
        producer.send("views", b"closed")
    producer = LogProducer(namespace, linger_ms=HOUR_MS)
    dropped = [producer.send("clicks", b"dropped", partition=n % 3) for n in range(10)]
    producer.abort()
    assert not wait(dropped, 10).not_done
    assert all(isinstance(future.exception(), LogClosed) for future in dropped)
    assert all(namespace.info(log).writer is None for log in LOGS)
    with pytest.raises(ZeroDivisionError):
        _fail_while_sending(namespace)
    assert payloads_read(namespace, "views/0") == [b"sent"]


def test_what_cannot_be_sent_is_refused_at_once(namespace: LogNamespace) -> None:
    for log in ("gap/0", "gap/2"):
        namespace.create(log)
    namespace.create("tiny/0", LogConfig(record_bytes_max=10))
    with LogProducer(namespace, linger_ms=HOUR_MS) as producer:
        good = producer.send("tiny", b"0123456789")
        with pytest.raises(RecordTooLarge):
            producer.send("tiny", b"0123456789a")
        with pytest.raises(RecordTooLarge):
            producer.send("tiny", b"", key=b"0123456789a")
        with pytest.raises(LogError, match="value and key are bytes"):
            producer.send("tiny", "text")  # type: ignore[arg-type]  # what it is about
        with pytest.raises(LogNotFound, match="no topic 'absent'"):
            producer.send("absent", b"x")
        with pytest.raises(LogNotFound, match="has no partition 1"):
            producer.send("tiny", b"x", partition=1)
        with pytest.raises(InconsistentLog, match=r"\[0, 2\]"):
            producer.partitions_for("gap")
        producer.flush()
        assert good.done()


def test_a_log_that_takes_small_entries_gets_small_batches(registry: Registry, tmp_path: Path) -> None:
    namespace = bound_namespace(registry, tmp_path / "store", "views/0", config=LogConfig(entry_bytes_max=1024))
    with LogProducer(namespace, linger_ms=HOUR_MS) as producer:
        futures = [producer.send("views", b"%03d" % n + bytes(n), key=b"k") for n in range(200)]
        large = producer.send("views", bytes(100_000))
    places = [future.result().dlsn for future in futures]
    assert places == sorted(set(places))
    assert large.result().dlsn > places[-1]
    with namespace.open_reader("views/0") as reader:
        assert [record.dlsn for record in reader.read(1000)] == [*places, large.result().dlsn]


def test_a_failure_of_the_sending_thread_fails_every_record_and_every_later_call(namespace: LogNamespace) -> None:
    producer = LogProducer(namespace, linger_ms=HOUR_MS)
    futures = [producer.send("clicks", b"x", partition=n) for n in range(3)]
    with at_failpoint("log.lock:before", _broken):
        with pytest.raises(_Broken):
            producer.flush()
        wait_until(lambda: all(future.done() for future in futures))
    assert all(isinstance(future.exception(), _Broken) for future in futures)
    with pytest.raises(_Broken):
        producer.send("clicks", b"y")
    with pytest.raises(_Broken):
        producer.close()


class _Broken(BaseException):
    """Nothing that is expected."""


def _broken(_stop: str) -> None:
    raise _Broken


def _fail_while_sending(namespace: LogNamespace) -> None:
    with LogProducer(namespace, linger_ms=HOUR_MS) as producer:
        producer.send("views", b"dropped")
        raise ZeroDivisionError
