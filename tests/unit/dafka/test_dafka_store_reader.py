"""What a store answers to many who ask at once. Its thread never runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from scribengin.dafka import DafkaConfig
from scribengin.dafka.state import DafkaPartition, Send, StoredRange
from scribengin.dafka.store.logs import StoredPartitions
from scribengin.dafka.store.reader import StoreReader
from scribengin.dafka.wire import (
    ConsumerHello,
    DirectHead,
    Fetch,
    FindTime,
    GetHeads,
    HeadsTold,
    KnownOfTime,
    LiveBatch,
    Message,
    StoreHello,
    TimeFound,
)
from scribengin.errors import ColdSegmentMissing
from scribengin.log import LogNamespace
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE

NOBODY = DafkaConfig.model_validate(
    {"beacon": {"sub_address": "tcp://127.0.0.1:9", "pub_address": "tcp://127.0.0.1:9"}}
)
PARTITIONS = [DafkaPartition("flights", f"{n:032X}") for n in range(500)]


ME = "AA" * 16


class StillReader(StoreReader):
    """Without a thread: a test calls what would run on it, and looks at what is sent."""

    def start(self) -> None:
        self.answers: Counter[type] = Counter()
        self.most_at_once = 0
        self.told: list[TimeFound] = []

    def send(self, instructions: Iterable[object]) -> None:
        done = list(instructions)
        self.most_at_once = max(self.most_at_once, len(done))
        sent = [one.message for one in done if isinstance(one, Send)]
        self.answers.update(map(type, sent))
        self.told += (one for one in sent if isinstance(one, TimeFound))


@pytest.fixture
def logs(memory_registry: MemoryRegistry) -> Iterator[LogNamespace]:
    disk = MemoryDisk("reader")
    with bound_namespace(memory_registry, disk.name, store=MEMORY_STORE) as namespace:
        yield namespace


@pytest.fixture
def reader(logs: LogNamespace) -> Iterator[StillReader]:
    partitions = StoredPartitions(logs, "dafka", None, take_over=False, batches=True)
    for partition in PARTITIONS:
        partitions.state.found(partition, StoredRange(0, 10))
    made = StillReader(partitions, NOBODY)
    yield made
    made._release()


def test_a_thousand_who_ask_for_all_heads_at_once_are_answered_one_after_the_other(reader: StillReader) -> None:
    to = reader.address
    reader.on_messages([ConsumerHello(to, f"{n:032X}", ("flights",)) for n in range(200)], "", 0.0)
    assert reader.answers == {DirectHead: 200 * len(PARTITIONS), HeadsTold: 200}
    assert reader.most_at_once == len(PARTITIONS) + 1


def test_who_asks_a_thousand_times_at_once_is_answered_once(reader: StillReader) -> None:
    asked: list[Message] = [GetHeads("", "AA" * 16), ConsumerHello(reader.address, "AA" * 16, ("flights",))]
    reader.on_messages(asked * 1000, "", 0.0)
    assert reader.answers == {DirectHead: 2 * len(PARTITIONS), HeadsTold: 2}


def test_what_is_no_question_is_no_trouble_and_hides_none(reader: StillReader) -> None:
    """Two messages may have the same fields."""
    others: list[Message] = [StoreHello("flights", "AA" * 16), LiveBatch("flights", "AA" * 16, "flights", 0, [b""])]
    reader.on_messages([*others, GetHeads("flights", "AA" * 16)], "", 0.0)
    assert reader.answers == {DirectHead: len(PARTITIONS), HeadsTold: 1}


def test_whoever_asks_for_a_trillion_records_is_answered_in_pieces_and_so_are_not_too_many(
    reader: StillReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[DafkaPartition] = []
    monkeypatch.setattr(reader._logs, "open_reader", lambda partition, _sequence: opened.append(partition))
    last = 2**32 - 1  # more no count can say
    reader.on_messages([Fetch(PARTITIONS[0].address, f"{n:032X}", "flights", 0, last) for n in range(5000)], "", 0.0)
    assert len(opened) == reader._answers.readers == 1000


def asked_for_a_time(reader: StillReader) -> TimeFound:
    subject, producer = PARTITIONS[0]
    reader.on_messages([FindTime(reader.address, ME, producer, subject, 5)], "", 0.0)
    reader.on_wake()
    [told] = reader.told
    return told


def test_of_a_log_that_was_deleted_a_store_says_that_nothing_is_kept_before_what_comes_next(
    reader: StillReader,
) -> None:
    told = asked_for_a_time(reader)
    assert (told.known, told.sequence) == (KnownOfTime.BEGINS, 10)
    assert (reader.failures.count, reader.failures.failing) == (0, {})


def test_of_a_log_that_cannot_be_read_a_store_says_nothing_and_that_it_fails(
    reader: StillReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are kept: whoever asks is not to begin behind them."""

    def failing(*_: object) -> None:
        raise ColdSegmentMissing("a file is not there", segment=3)

    monkeypatch.setattr("scribengin.dafka.store.reader.find_time", failing)
    assert asked_for_a_time(reader).known is KnownOfTime.NOTHING
    assert list(reader.failures.failing) == PARTITIONS[:1]
