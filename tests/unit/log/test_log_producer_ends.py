"""A producer of logs that cannot begin, or is ended while somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pytest

from scribengin.base.threads import pause
from scribengin.errors import LogClosed, LogError
from scribengin.log import DlsnRange, LogNamespace, LogWriter
from scribengin.log.clients import LogProducer, RecordMetadata
from scribengin.testing.log_samples import payloads_read

LOG = "flights/0"


@pytest.fixture
def logs(logs: LogNamespace) -> LogNamespace:
    logs.create(LOG)
    return logs


class NoThread:
    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_what_is_refused_for_want_of_a_thread_is_not_sent_and_what_follows_is(
    logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LogProducer(logs, linger_ms=0) as producer:
        with monkeypatch.context() as patch:
            patch.setattr("scribengin.log.clients.producer.background", lambda _name, _run: NoThread())
            with pytest.raises(RuntimeError, match="new thread"):
                producer.send("flights", b"refused")
            producer.flush()
        assert producer.send("flights", b"taken").result(60).partition == 0
    assert payloads_read(logs, LOG) == [b"taken"]


@pytest.mark.parametrize("unwritten", [False, True])
def test_whoever_flushes_hears_that_the_producer_was_aborted_before_all_was_sent(
    logs: LogNamespace, monkeypatch: pytest.MonkeyPatch, unwritten: bool
) -> None:
    """Whether or not the end of the writer was sooner than the write of what it had been handed."""
    logs.create("flights/1")
    if unwritten:
        monkeypatch.setattr(LogWriter, "write_atomic", closed_before_it_was_written)
    producer = LogProducer(logs, linger_ms=0, timeout_s=60)
    with ThreadPoolExecutor(2) as others, logs.open_writer(LOG):
        sent = producer.send("flights", b"sent", partition=0)
        while producer._sending is None:
            pause(0.001)
        left = producer.send("flights", b"left", partition=1)
        flushed = others.submit(producer.flush)
        while not producer._changed._waiters:  # type: ignore[attr-defined]  # it waits
            pause(0.001)
        aborted = others.submit(producer.abort)
        with pytest.raises(LogClosed):
            left.result(60)
    with pytest.raises(LogClosed, match="the producer is closed"):
        flushed.result(60)
    assert isinstance(sent.exception(60), LogClosed if unwritten else LogClosed | None)
    aborted.result(60)


def closed_before_it_was_written(_writer: LogWriter, _batch: pa.RecordBatch) -> Future[DlsnRange]:
    answer: Future[DlsnRange] = Future()
    answer.set_exception(LogClosed("the writer was closed before this was written"))
    return answer


@pytest.mark.parametrize("ending", [LogProducer.flush, LogProducer.close])
def test_whoever_is_told_of_a_record_cannot_wait_for_all_of_them_and_hears_so(
    logs: LogNamespace, ending: Callable[[LogProducer], None]
) -> None:
    refused: Future[BaseException] = Future()

    def told(_error: BaseException | None, _metadata: RecordMetadata | None) -> None:
        with pytest.raises(LogError, match="in `on_delivery`") as error:
            ending(producer)
        refused.set_result(error.value)

    with LogProducer(logs, linger_ms=0) as producer:
        producer.send("flights", b"a", on_delivery=told)
        assert "another thread" in str(refused.result(60))
        producer.flush()
        assert producer.send("flights", b"b").result(60).partition == 0
    assert payloads_read(logs, LOG) == [b"a", b"b"]
