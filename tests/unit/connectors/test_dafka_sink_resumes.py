"""Where a stream of Dafka's sink goes on: behind all that was ever committed, whatever its log keeps of that, and with
stores having all before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.connectors.contract import Attempt, SinkStreamWriter
from scribengin.connectors.dafka import sink as sink_module
from scribengin.connectors.dafka.config import DafkaSinkConfig
from scribengin.connectors.dafka.sink import DafkaSink, _ever_committed
from scribengin.connectors.log.holds import Holds
from scribengin.dafka import DafkaPartition
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import DataflowError, SystemUnreachable
from scribengin.log import LogNamespace, LogRecord
from scribengin.testing.memory.registry import MemoryRegistry

NODE, LOG = "/scribengin/locks/commit-log", "dafka-rounds/flights/0"


class Stores:
    """What stores have: they take what follows, acknowledge what they have, and wait for what is missing before."""

    def __init__(self) -> None:
        self.stored: defaultdict[DafkaPartition, list[bytes]] = defaultdict(list)
        self.fails = False

    def publish(
        self, partition: DafkaPartition, first: int, contents: Iterable[list[bytes]], *, published: int
    ) -> None:
        if self.fails:
            raise SystemUnreachable("before anything was published")
        stored = self.stored[partition]
        assert len(stored) <= published, "what it says that may have been published is less than what was"
        for batch in contents:
            assert first <= len(stored), f"stores wait for {len(stored)} for ever, and get {first}"
            stored += batch[len(stored) - first :]
            first += len(batch)

    def close(self) -> None:
        """Nothing is held."""


class Sinks:
    """A sink of one stream, and the owners that it has had."""

    def __init__(self, registry: MemoryRegistry, logs: LogNamespace) -> None:
        self.registry = registry
        self.logs = logs
        self.stores = Stores()
        self._epoch = 0
        config = DafkaSinkConfig.parse({"kind": "dafka", "topic": "flights", "namespace": "/logs"}, source="a test")
        self.sink = DafkaSink("out", config, registry, SYSTEM_CLOCK, Holds(STREAM_NODES), lambda *_: self.stores)
        self.stream = self.sink.streams(1)[0]
        self.sink.create([self.stream])

    def owner(self, committed: CommitDescriptor | None = None) -> SinkStreamWriter:
        self._epoch += 1
        log = CommitLog(
            dataflow="flow", task="task-0", owner="me", generation=1, epoch=self._epoch, round=1, committed=committed
        )
        if self.registry.find(NODE) is None:
            self.registry.create(NODE, parents=True)
        self.registry.set(NODE, log.to_bytes())
        writer = self.sink.open_writer(self.stream, Attempt("me", self._epoch, NODE))
        writer.recover(committed)
        return writer

    def truncate_all(self) -> None:
        self.logs.truncate(LOG, self.logs.end_dlsn(LOG))
        assert self.logs.last_record(LOG) is None

    @property
    def stored(self) -> list[bytes]:
        [records] = self.stores.stored.values()
        return records


@pytest.fixture
def sinks(memory_registry: MemoryRegistry, tmp_path: Path) -> Iterator[Sinks]:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=memory_registry)
    with LogNamespace.open("/logs", registry=memory_registry) as logs:
        sinks = Sinks(memory_registry, logs)
        with closing(sinks.sink):
            yield sinks


def numbered(first: int, end: int) -> list[bytes]:
    return [b"record %d" % n for n in range(first, end)]


def staged(writer: SinkStreamWriter, first: int, end: int) -> CommitDescriptor:
    writer.write(pa.record_batch({"payload": numbered(first, end)}))
    prepared = writer.prepare_commit()
    assert prepared is not None
    return prepared


def test_a_dataflow_whose_waiting_log_keeps_nothing_goes_on_behind_what_was_published(sinks: Sinks) -> None:
    """Under the sequences of before, stores would acknowledge its records, and pass over them."""
    with closing(sinks.owner()) as writer:
        for at in (0, 5):
            staged(writer, 90, 99)
            writer.rollback()  # takes no numbers
            writer.complete_commit(staged(writer, at, at + 5))
    sinks.truncate_all()
    with closing(sinks.owner()) as writer:
        writer.complete_commit(staged(writer, 10, 15))
    assert sinks.stored == numbered(0, 15)


def test_what_a_log_keeps_begins_with_its_first_record_though_it_goes_on_meanwhile(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sinks.owner()) as writer:
        writer.complete_commit(staged(writer, 0, 5))
        second = staged(writer, 5, 10)

        def last_record_of_a_log_that_goes_on(name: str) -> LogRecord | None:
            writer.complete_commit(second)
            return LogNamespace.last_record(sinks.logs, name)

        monkeypatch.setattr(sinks.logs, "last_record", last_record_of_a_log_that_goes_on)
        assert _ever_committed(sinks.logs, LOG) == range(10)


def test_what_the_dataflow_before_committed_and_did_not_publish_is_published(sinks: Sinks) -> None:
    """Stores would wait for it for ever, and take nothing behind it."""
    with closing(sinks.owner()) as writer:
        writer.complete_commit(staged(writer, 0, 5))
        sinks.stores.fails = True
        with pytest.raises(SystemUnreachable):
            writer.complete_commit(staged(writer, 5, 10))
    sinks.stores.fails = False
    with closing(sinks.owner()) as writer:
        writer.complete_commit(staged(writer, 10, 15))
    assert sinks.stored == numbered(0, 15)


def test_the_same_dataflow_goes_on_behind_its_commit(sinks: Sinks) -> None:
    with closing(sinks.owner()) as writer:
        writer.complete_commit(staged(writer, 0, 5))
        committed = staged(writer, 5, 10)
    with closing(sinks.owner(committed)) as writer:
        assert sinks.stored == numbered(0, 10)
        writer.complete_commit(staged(writer, 10, 15))
    assert sinks.stored == numbered(0, 15)


def test_what_stores_have_is_truncated_though_no_owner_publishes_much(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them knows what it has published itself. What owners before it have left, counts, too."""
    monkeypatch.setattr(sink_module, "_KEPT_BYTES", 2_000)
    committed = None
    for at in range(0, 100, 5):
        with closing(sinks.owner(committed)) as writer:
            committed = staged(writer, at, at + 5)
            writer.complete_commit(committed)
    assert sinks.stored == numbered(0, 100)
    assert sinks.logs.info(LOG).records < 50


def test_a_committed_round_that_its_log_does_not_keep_is_told_of(sinks: Sinks) -> None:
    """It may never have been published, and nobody else has it."""
    with closing(sinks.owner()) as writer:
        committed = staged(writer, 0, 5)
        sinks.stores.fails = True
        with pytest.raises(SystemUnreachable):
            writer.complete_commit(committed)
    sinks.stores.fails = False
    sinks.truncate_all()
    with pytest.raises(DataflowError, match=r"log 'dafka-rounds/flights/0' does not hold the round that was committed"):
        sinks.owner(committed)


@pytest.mark.parametrize(
    ("read", "truncated", "expected"),
    [
        ([(0, numbered(0, 15))], 0, []),
        ([(0, numbered(0, 4)), (4, numbered(4, 7))], 0, numbered(7, 15)),
        ([(0, numbered(0, 7))], 10, [None] * 3 + numbered(10, 15)),
        ([], 15, [None] * 15),
        ([(15, [])], 15, []),
        ([(12, numbered(12, 15))], 10, []),
    ],
    ids=[
        "all is read",
        "some is",
        "some of it only stores have",
        "only stores have it",
        "retention took it",
        "the end",
    ],
)
def test_what_was_committed_and_is_not_read_is_told_of(
    sinks: Sinks,
    monkeypatch: pytest.MonkeyPatch,
    read: list[tuple[int, list[bytes]]],
    truncated: int,
    expected: list[bytes | None],
) -> None:
    with closing(sinks.owner()) as writer:
        for first in (0, 5, 10):
            writer.complete_commit(staged(writer, first, first + 5))
            if first + 5 == truncated:
                sinks.truncate_all()
    monkeypatch.setattr(sink_module, "published", lambda *_, **__: iter(read))
    payloads = [one for batch in sinks.sink.committed(sinks.stream) for one in batch.column("payload").to_pylist()]
    assert payloads == [one for _, contents in read for one in contents]
    found = [one for batch in sinks.sink.unreachable(sinks.stream) for one in batch.column("payload").to_pylist()]
    assert found == expected


@pytest.mark.parametrize("while_it_is_read", [False, True])
def test_what_is_truncated_while_it_is_told_of_is_told_of_without_its_payloads(
    sinks: Sinks, monkeypatch: pytest.MonkeyPatch, while_it_is_read: bool
) -> None:
    """The dataflow runs, and its writer truncates the log as soon as stores have what was out of reach."""
    with closing(sinks.owner()) as writer:
        for first in (0, 5, 10):
            writer.complete_commit(staged(writer, first, first + 5))
        monkeypatch.setattr(sink_module, "published", lambda *_, **__: iter([(0, numbered(0, 2))]))
        assert sum(batch.num_rows for batch in sinks.sink.committed(sinks.stream)) == 2
        told = iter(sinks.sink.unreachable(sinks.stream))
        found = next(told).column("payload").to_pylist() if while_it_is_read else []
        sinks.truncate_all()
        found += [one for batch in told for one in batch.column("payload").to_pylist()]
    assert len(found) == 13
    assert [one for one in found if one is not None] == numbered(2, 2 + sum(one is not None for one in found))
