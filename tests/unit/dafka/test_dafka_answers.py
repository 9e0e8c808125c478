"""What a store reads for those who ask: on from where it stands, however the log changes, and for so many at once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from scribengin.dafka.state import DafkaPartition, ReadStored, Send
from scribengin.dafka.store import AnswerFailed, FoundStored, StoredAnswers, StoredPartitions
from scribengin.dafka.wire import DirectHead, Fetch, Truncated
from scribengin.errors import DamagedEntry, LogBusy
from scribengin.log import LogNamespace, LogReader
from scribengin.testing.log_samples import bound_namespace, damage_segment
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.waiting import wait_until

ASKING, OTHER, PRODUCER = "AA" * 16, "AB" * 16, "BB" * 16
FLIGHTS, TRAINS = DafkaPartition("flights", PRODUCER), DafkaPartition("trains", PRODUCER)
RECORDS = 100


@pytest.fixture
def logs(memory_registry: MemoryRegistry) -> Iterator[LogNamespace]:
    """With 100 records of two partitions."""
    disk = MemoryDisk("answers")
    with bound_namespace(memory_registry, disk.name, store=MEMORY_STORE) as namespace:
        stored = stored_in(namespace)
        for partition in (FLIGHTS, TRAINS):
            writer, first = stored.open_writer(partition)
            txids = pa.array(range(first, first + RECORDS), pa.int64())
            payloads = pa.array([b"%d" % n for n in range(RECORDS)], pa.binary())
            with writer:
                writer.write_bulk(pa.RecordBatch.from_arrays([txids, payloads], ["txid", "payload"])).result(60)
        yield namespace


def stored_in(logs: LogNamespace) -> StoredPartitions:
    return StoredPartitions(logs, "dafka", None, take_over=True, batches=True)


def asked(sequence: int, records: int, to: str = ASKING, partition: DafkaPartition = FLIGHTS) -> ReadStored:
    return ReadStored(to, partition, sequence, records)


def read(answers: StoredAnswers, now_s: float = 0.0) -> list[tuple[str, int, int] | Truncated | AnswerFailed]:
    """Who gets which sequences."""
    return [
        (one.to, one.first, one.first + one.batch.num_rows) if isinstance(one, FoundStored) else one
        for one in answers.read(now_s)
    ]


def truncate(logs: LogNamespace, first_kept: int) -> None:
    name = stored_in(logs).name(FLIGHTS)
    with logs.open_reader(name) as reader:
        logs.truncate(name, reader.read(first_kept + 1)[-1].dlsn)


def test_who_asks_on_is_answered_from_there_and_who_asks_again_from_the_beginning(logs: LogNamespace) -> None:
    answers = StoredAnswers(stored_in(logs))
    answers.begin(asked(0, 10))
    assert answers.has_due
    assert read(answers) == [(ASKING, 0, 10)]
    assert not answers.has_due
    answers.begin(asked(10, 10))
    answers.begin(asked(20, 10))
    assert read(answers) == [(ASKING, 10, 30)]
    answers.begin(asked(5, 3))
    assert read(answers) == [(ASKING, 5, 8)]
    answers.close()


def test_who_asks_on_where_the_log_was_truncated_meanwhile_is_told_and_others_are_answered(logs: LogNamespace) -> None:
    """Nothing ends because of it: who asked gets nothing, asks again in a while, and is told then."""
    answers = StoredAnswers(stored_in(logs))
    answers.begin(asked(0, 10))
    assert read(answers) == [(ASKING, 0, 10)]
    truncate(logs, 90)
    nexts = iter(range(10, 90))

    def gets_nothing() -> bool:
        answers.begin(asked(sequence := next(nexts), 1))
        answers.begin(asked(sequence, 1, OTHER, TRAINS))
        *found, other = read(answers)
        assert other == (OTHER, sequence, sequence + 1)
        return not found

    wait_until(gets_nothing, what="the reader sees that it stands before the first record")
    assert not answers.has_due
    answers.begin(asked(50, 50))
    assert read(answers) == [Truncated(ASKING, PRODUCER, "flights", 90)]
    answers.begin(asked(90, 10))
    assert read(answers) == [(ASKING, 90, 100)]
    answers.close()


def test_who_asks_on_behind_a_log_that_has_ended_gets_nothing_and_others_are_answered(logs: LogNamespace) -> None:
    answers, stored = StoredAnswers(stored_in(logs)), stored_in(logs)
    answers.begin(asked(90, 10))
    assert read(answers) == [(ASKING, 90, 100)]
    with stored.open_writer(FLIGHTS)[0] as writer:
        writer.mark_end_of_stream()

    def gets_nothing() -> bool:
        answers.begin(asked(100, 10))
        answers.begin(asked(0, 1, OTHER))
        assert read(answers)[-1] == (OTHER, 0, 1)
        return not answers.has_due

    wait_until(gets_nothing, what="the reader sees that the log has ended")
    answers.close()


def test_readers_that_wait_make_room_for_those_with_work_the_oldest_first(logs: LogNamespace) -> None:
    answers = StoredAnswers(stored_in(logs), answers_max=2)
    answers.begin(asked(0, 10, ASKING))
    answers.begin(asked(0, 10, OTHER))
    assert read(answers) == [(ASKING, 0, 10), (OTHER, 0, 10)]
    answers.begin(asked(10, 10, ASKING))
    assert read(answers) == [(ASKING, 10, 20)]
    answers.begin(asked(0, 5, OTHER, TRAINS))  # in the place of OTHER's, which waits for longest
    answers.begin(asked(20, 10, ASKING))
    answers.begin(asked(0, 5, ASKING, TRAINS))  # nobody waits: it asks again
    assert sorted(read(answers)) == [(ASKING, 20, 30), (OTHER, 0, 5)]
    answers.close()


def test_a_reader_waits_for_two_seconds_from_what_it_has_read_last(logs: LogNamespace) -> None:
    answers = StoredAnswers(stored_in(logs))
    answers.begin(asked(0, 10))
    answers.tick(9.0)
    assert read(answers, 9.0) == [(ASKING, 0, 10)]
    answers.tick(11.0)
    assert answers.readers == 1
    answers.tick(11.1)
    assert answers.readers == 0


def test_who_asks_for_what_is_truncated_to_its_end_is_told_where_it_goes_on(logs: LogNamespace) -> None:
    """With no answer it would ask for ever."""
    answers = StoredAnswers(stored_in(logs))
    name = stored_in(logs).name(FLIGHTS)
    logs.truncate(name, logs.end_dlsn(name))
    answers.begin(asked(50, 50))
    answers.begin(asked(50, 50, OTHER, TRAINS))
    assert read(answers) == [Truncated(ASKING, PRODUCER, "flights", RECORDS), (OTHER, 50, 100)]
    answers.begin(asked(RECORDS, 1))  # it is not published yet
    assert read(answers) == []
    assert not answers.has_due
    answers.close()


def test_a_store_that_starts_with_a_log_truncated_to_its_end_goes_on_behind_it(logs: LogNamespace) -> None:
    name = stored_in(logs).name(FLIGHTS)
    logs.truncate(name, logs.end_dlsn(name))
    stored = stored_in(logs)
    assert stored.state.stored == {FLIGHTS: (RECORDS, RECORDS), TRAINS: (0, RECORDS)}
    told = stored.state.asked(Fetch(PRODUCER, ASKING, "flights", 0, 10))
    assert told == [Send(Truncated(ASKING, PRODUCER, "flights", RECORDS))]
    assert Send(DirectHead(ASKING, PRODUCER, "flights", RECORDS - 1)) in stored.state._heads(ASKING, ["flights"])
    writer, following = stored.open_writer(FLIGHTS)
    writer.close()
    assert following == RECORDS


def test_who_asks_for_what_somebody_has_deleted_is_told_where_it_goes_on(logs: LogNamespace) -> None:
    stored = stored_in(logs)
    answers = StoredAnswers(stored)
    answers.begin(asked(0, 10, OTHER))
    assert read(answers) == [(OTHER, 0, 10)]
    logs.delete(stored.name(FLIGHTS))
    answers.begin(asked(0, 10))
    assert read(answers) == [Truncated(ASKING, PRODUCER, "flights", RECORDS)]
    answers.close()


def test_a_damaged_log_is_told_of_and_others_are_answered(logs: LogNamespace) -> None:
    """At the start of a store, and when somebody asks. It ends nothing."""
    damage_segment(logs, stored_in(logs).name(FLIGHTS), 1, at=200)
    stored = stored_in(logs)
    assert stored.state.stored[TRAINS] == (0, RECORDS)
    answers = StoredAnswers(stored)
    for _ in range(2):
        failed = answers.begin(asked(0, 10))
        answers.begin(asked(0, 10, OTHER, TRAINS))
        *told, other = read(answers)
        [failed] = [failed] if failed is not None else told
        assert isinstance(failed, AnswerFailed)
        assert (failed.to, failed.partition, type(failed.error)) == (ASKING, FLIGHTS, DamagedEntry)
        assert other in [(OTHER, 0, 10)]
    answers.close()


def test_a_reader_that_cannot_be_closed_ends_nothing(logs: LogNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for something else is answered, and so are all who ask later."""
    answers = StoredAnswers(stored_in(logs))

    def fails(_: LogReader) -> None:
        raise LogBusy("its lock cannot be given back")

    with monkeypatch.context() as patch:
        patch.setattr(LogReader, "close", fails)
        answers.begin(asked(0, 10))
        assert answers.begin(asked(50, 10)) is None  # closes the one of before
        assert read(answers) == [(ASKING, 50, 60)]
        answers.begin(asked(60, 10))
        assert read(answers) == [(ASKING, 60, 70)]
        answers.begin(asked(RECORDS, 10))  # nothing is there yet: it is closed when that is found
        assert read(answers) == []
        answers.begin(asked(0, 1))
        assert read(answers, 1.0) == [(ASKING, 0, 1)]
        answers.tick(9.0)
    assert answers.readers == 0
    answers.begin(asked(0, 10))
    assert read(answers) == [(ASKING, 0, 10)]
    answers.close()
