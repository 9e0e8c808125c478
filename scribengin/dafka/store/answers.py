"""What requesters still are to get of what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from scribengin.dafka.state import DafkaPartition, ReadStored
from scribengin.dafka.store.failures import PASSING, LogFailure
from scribengin.dafka.store.logs import StoredPartitions
from scribengin.dafka.wire import Truncated
from scribengin.errors import EndOfStream, LogNotFound, PositionTruncated
from scribengin.log import LogReader

_ANSWERS_MAX = 1000
_RECORDS_AT_ONCE = 2000
_ASKS_ON_S = 2.0

_Asked = tuple[str, DafkaPartition]
"""Who asks, and for what."""


@dataclass
class _Answering:
    """What a requester still is to get: sequences from `next` up to `end`, from where `reader` stands. It was read from
    last at `used_s`. Without a reader there is no log any more."""

    next: int
    end: int
    reader: LogReader | None
    used_s: float = 0.0


class FoundStored(NamedTuple):
    """Records that a requester has asked for: sequences from `first` on, as the log has them."""

    to: str
    partition: DafkaPartition
    first: int
    batch: pa.RecordBatch


class AnswerFailed(NamedTuple):
    """The log of a partition that a requester has asked for cannot be read. He gets nothing, and asks again."""

    to: str
    partition: DafkaPartition
    error: LogFailure


class StoredAnswers:
    """What requesters still are to get of what is stored, each with a reader of its own.

    Who asks again is answered from there; who asks for what follows, behind the rest, and from the same reader. So
    readers that have read all wait for a while. They give way to those with work: `answers_max` counts both.
    """

    def __init__(self, logs: StoredPartitions, *, answers_max: int = _ANSWERS_MAX) -> None:
        self._logs = logs
        self._answers_max = answers_max
        self._due: dict[_Asked, _Answering] = {}
        self._waiting: dict[_Asked, _Answering] = {}
        """Those that have read all, in the order in which they have."""

    @property
    def readers(self) -> int:
        """How many readers are open."""
        return len(self._due) + len(self._waiting)

    @property
    def has_due(self) -> bool:
        """Whether anybody is still to get some."""
        return bool(self._due)

    def begin(self, asked: ReadStored) -> AnswerFailed | None:
        """Somebody has asked. If there are too many, he has to ask again."""
        key = (asked.to, asked.partition)
        end = asked.sequence + asked.records
        answer = self._due.get(key) or self._waiting.pop(key, None)
        if answer is not None:
            self._due[key] = answer
            if answer.end == asked.sequence:
                answer.end = end
                return None
            self._end(self._due, key)
        if self.readers >= self._answers_max and self._waiting:
            self._end(self._waiting, next(iter(self._waiting)))
        if self.readers < self._answers_max:
            try:
                self._due[key] = _Answering(asked.sequence, end, self._open(asked))
            except PASSING as error:
                return AnswerFailed(*key, error)
        return None

    def _open(self, asked: ReadStored) -> LogReader | None:
        try:
            return self._logs.open_reader(asked.partition, asked.sequence)
        except LogNotFound:  # `read` finds that nothing is kept
            return None

    def read(self, now_s: float) -> Iterator[FoundStored | Truncated | AnswerFailed]:
        """A few records for each who is to get some, or what he is to be told instead."""
        for key, answer in list(self._due.items()):
            found: FoundStored | Truncated | AnswerFailed | None
            try:
                found = self._found(key, answer, now_s)
            except PASSING as error:
                self._end(self._due, key)
                found = AnswerFailed(*key, error)
            if found is not None:
                yield found

    def _found(self, key: _Asked, answer: _Answering, now_s: float) -> FoundStored | Truncated | None:
        """Raises what the log store raises."""
        to, partition = key
        batch = _batch(answer)
        first: int | None = self._logs.nothing_before(partition) if batch is None else batch.column("txid")[0].as_py()
        if first is not None and first > answer.next:  # truncated meanwhile
            self._end(self._due, key)
            return Truncated(to, partition.address, partition.subject, first)
        if batch is None:
            self._end(self._due, key)
            return None
        at = answer.next
        answer.next = batch.column("txid")[-1].as_py() + 1
        answer.used_s = now_s
        if answer.next >= answer.end:
            self._waiting[key] = self._due.pop(key)
        return FoundStored(to, partition, at, batch)

    def tick(self, now_s: float) -> None:
        """Let go of readers that nobody asks on."""
        for key, answer in list(self._waiting.items()):
            if now_s - answer.used_s <= _ASKS_ON_S:
                break
            self._end(self._waiting, key)

    def close(self) -> None:
        """Let go of all readers."""
        for answers in (self._due, self._waiting):
            for key in list(answers):
                self._end(answers, key)

    @staticmethod
    def _end(answers: dict[_Asked, _Answering], key: _Asked) -> None:
        """Nothing is lost where a reader that nobody needs cannot be closed."""
        answer = answers.pop(key, None)
        if answer is not None and answer.reader is not None:
            with suppress(*PASSING):
                answer.reader.close()


def _batch(answer: _Answering) -> pa.RecordBatch | None:
    """What comes next in the log. None: nothing, or the reader stands where the log was truncated, or has ended, or is
    not there any more. Who asked, asks again in a while, and a new reader finds what is left."""
    if answer.reader is None:
        return None
    try:
        batch = answer.reader.read_batch(min(_RECORDS_AT_ONCE, answer.end - answer.next), place=False)
    except (PositionTruncated, EndOfStream, LogNotFound):
        return None
    return batch if batch is not None and batch.num_rows else None
