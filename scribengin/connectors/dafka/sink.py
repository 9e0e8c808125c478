"""A topic of Dafka as a sink: every stream is a producer that survives the task's move.

Dafka knows no transactions: what was published is seen. So a round waits in a log, as that of a sink of logs, until the
registry has decided about it. `complete_commit` shows it there, and publishes what the log holds of it, each record
under the sequence that it was given when it was staged; the round is complete once `min_acks` stores have it.

    write, prepare_commit    staged in the log; the sequence of a record is its key there
    the transaction          names the range of the log, and the first sequence
    complete_commit          visible in the log, published, acknowledged

Whoever comes next, or comes late, publishes the same bytes under the same sequences: stores acknowledge again what they
have, and consumers pass over it. A stale owner never gets so far as to publish what was not committed: the log has
fenced it. The producer's address comes from the log, and from which of its lives: who deletes it begins with another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from struct import Struct

import numpy as np
import pyarrow as pa

from scribengin.base.clock import Clock
from scribengin.base.commit_log import CommitDescriptor
from scribengin.base.failpoints import failpoint
from scribengin.connectors.contract import (
    PAYLOAD,
    RECORD_SCHEMA,
    Attempt,
    Sink,
    SinkStreamDescriptor,
    SinkStreamWriter,
)
from scribengin.connectors.dafka.config import KIND, DafkaSinkConfig
from scribengin.connectors.dafka.publishing import DafkaPublisher, RoundPublisher, published
from scribengin.connectors.log.holds import Holds
from scribengin.connectors.log.reaching import open_namespace
from scribengin.connectors.log.sink import KIND as LOG_KIND
from scribengin.connectors.log.sink import LogSink, LogSinkConfig
from scribengin.dafka import DafkaPartition
from scribengin.errors import DataflowError, LogExists, PositionTruncated
from scribengin.log import DLSN, LogConfig, LogNamespace, StagedRange
from scribengin_registry.contract import Registry

_SEQUENCE = Struct(">Q")
_KEPT_BYTES = 64 * 1024 * 1024
"""Of rounds that stores have, so much stays in the log before it is truncated, whoever has published them."""
_NULLS = 10_000
_WAITING = LogConfig(explicit_truncation=True)


class DafkaSink(Sink):
    """A topic, as one producer a stream."""

    def __init__(
        self,
        name: str,
        config: DafkaSinkConfig,
        registry: Registry,
        clock: Clock,
        holds: Holds,
        publisher: Callable[[str, DafkaSinkConfig], RoundPublisher] = DafkaPublisher,
        *,
        looking: bool = False,
        awaited: bool = False,
    ) -> None:
        """`looking`: as of Environment. `awaited`: as of `open_namespace`.

        Raises ConfigInvalid, NamespaceNotBound, InvalidLogName.
        """
        self._looking = looking
        self._unreached: dict[str, range] = {}
        """By stream, the sequences that were committed, and that nobody has sent to who has read it."""
        self._name = name
        self._config = config
        self._publisher = publisher
        said = LogSinkConfig(kind="log", log=config.waiting_log, namespace=config.namespace)
        self._rounds = LogSink(name, said, registry, clock, holds, awaited=awaited)
        self._namespace = open_namespace(config.namespace, registry=registry, clock=clock, awaited=awaited)

    @property
    def resource(self) -> str:
        return f"dafka:{self._rounds.resource.removeprefix('log:')}:{self._config.topic}"

    @property
    def side_columns(self) -> pa.Schema:
        return pa.schema([])

    @property
    def guarantee_note(self) -> str:
        wanted = self._config.min_acks
        stores = "a store has" if wanted == 1 else f"{wanted} stores have"
        return f"for consumers that go by sequence, once {stores} a round"

    def refuse_unwritable(self) -> None:
        self._rounds.refuse_unwritable()

    def streams(self, count: int) -> list[SinkStreamDescriptor]:
        return [SinkStreamDescriptor(sink=self._name, resource=self.resource, name=str(k)) for k in range(count)]

    def create(self, streams: Sequence[SinkStreamDescriptor]) -> None:
        for stream in streams:
            log = self._log(stream)
            if not self._namespace.exists(log):
                try:
                    self._namespace.create(log, _WAITING)
                except LogExists:
                    continue  # somebody else has just done the same

    def open_writer(self, stream: SinkStreamDescriptor, attempt: Attempt) -> SinkStreamWriter:
        rounds = self._rounds.open_writer(stream, attempt)
        publisher = self._publisher(self._name, self._config)
        return DafkaSinkWriter(rounds, publisher, self._namespace, self._log(stream), self.partition(stream))

    def committed(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        end = _ever_committed(self._namespace, self._log(stream)).stop
        reached = 0
        for first, contents in published(self._config, self.partition(stream), end, looking=self._looking):
            reached = first + len(contents)
            if contents:
                yield _records(contents)
        self._unreached[stream.name] = range(min(reached, end), end)

    def unreachable(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        left, log = self._unreached.get(stream.name, range(0)), self._log(stream)
        at = left.start
        while at < left.stop:
            try:
                for first, payloads in _kept(self._namespace, log, range(at, left.stop)):
                    known = min(first, left.stop)
                    for null in range(at, known, _NULLS):
                        yield _records([None] * min(_NULLS, known - null))
                    at = known
                    if contents := payloads[: left.stop - at]:
                        yield _records(contents)
                        at += len(contents)
            except PositionTruncated:
                continue  # whoever writes it has truncated it meanwhile: it begins later now

    def close(self) -> None:
        self._rounds.close()
        self._namespace.close()

    def _log(self, stream: SinkStreamDescriptor) -> str:
        return f"{self._config.waiting_log}/{stream.name}"

    def partition(self, stream: SinkStreamDescriptor) -> DafkaPartition:
        """The topic, and the producer that the stream is. Raises LogNotFound."""
        with self._namespace.open_reader(self._log(stream)) as reader:
            lives = f"{stream.resource}/{stream.name}/{reader.directory}"
        return DafkaPartition(self._config.topic, sha256(lives.encode()).hexdigest()[:32].upper())


class DafkaSinkWriter(SinkStreamWriter):
    """Stages rounds in a log, and publishes those that were committed."""

    def __init__(
        self,
        rounds: SinkStreamWriter,
        publisher: RoundPublisher,
        namespace: LogNamespace,
        log: str,
        partition: DafkaPartition,
    ) -> None:
        self._rounds = rounds
        self._publisher = publisher
        self._namespace = namespace
        self._log = log
        self._partition = partition
        self._committed_end = self._next = self._published = 0
        self._maybe_published = 0
        """Where what may have been published ends, by whom ever."""
        self._kept_bytes = 0

    def recover(self, committed: CommitDescriptor | None) -> None:
        self._rounds.recover(None if committed is None else _in_log(committed))
        self._committed_end = 0
        self._kept_bytes = self._namespace.info(self._log).bytes
        if committed is not None:
            self._maybe_published = max(self._maybe_published, _sequences(committed).stop)
            self.complete_commit(committed)
        else:
            kept = _ever_committed(self._namespace, self._log)
            self._maybe_published = max(self._maybe_published, kept.stop)
            self._publish(None, kept)
            self._committed_end = kept.stop
        self._next = self._committed_end

    @property
    def payload_bytes_max(self) -> int | None:
        return self._rounds.payload_bytes_max

    def check(self, batch: pa.RecordBatch) -> None:
        self._rounds.check(batch.select([PAYLOAD]))

    def write(self, batch: pa.RecordBatch) -> None:
        keys = _keys(self._next, batch.num_rows)
        payload = batch.column(PAYLOAD)
        self._rounds.write(pa.RecordBatch.from_arrays([keys, payload], ["key", PAYLOAD]))
        self._next += batch.num_rows

    def prepare_commit(self) -> CommitDescriptor | None:
        staged = self._rounds.prepare_commit()
        if staged is None:
            return None
        return CommitDescriptor(
            kind=KIND, records=staged.records, data={"staged": staged.data, "first": self._committed_end}
        )

    def complete_commit(self, committed: CommitDescriptor) -> None:
        in_log = _in_log(committed)
        staged = StagedRange.from_json(in_log.data, path=self._log)
        self._rounds.complete_commit(in_log)
        sequences = _sequences(committed)
        if self._publish(_begin(staged), sequences):
            self._forget_before(staged)
        self._committed_end = max(self._committed_end, sequences.stop)
        self._next = max(self._next, sequences.stop)

    def rollback(self) -> None:
        self._rounds.rollback()
        self._next = self._committed_end

    def close(self) -> None:
        try:
            self._publisher.close()
        finally:
            self._rounds.close()

    def _publish(self, begin: DLSN | None, sequences: range) -> bool:
        """Have stores take records of the log, which begin there, unless they have them. Whether it was so. `begin`
        None: those are all that it keeps. Who comes after another dataflow does not know which of them stores have."""
        if not sequences or sequences.stop <= self._published:
            return False
        before, self._maybe_published = self._maybe_published, max(self._maybe_published, sequences.stop)
        contents = _contents(self._namespace, self._log, begin, sequences)
        with failpoint("dafka.publish"):
            self._publisher.publish(self._partition, sequences.start, contents, published=before)
        self._published = sequences.stop
        return True

    def _forget_before(self, staged: StagedRange) -> None:
        """Stores have what was before this round. The round itself stays: whoever recovers publishes it again."""
        self._kept_bytes += staged.bytes
        if self._kept_bytes >= _KEPT_BYTES:
            self._namespace.truncate(self._log, _begin(staged))
            self._kept_bytes = 0


def _contents(namespace: LogNamespace, log: str, begin: DLSN | None, sequences: range) -> Iterator[list[bytes]]:
    """What the log holds of them, from there on (None: from its first record). Raises DataflowError if it is not what
    was staged."""
    first = sequences.start
    with closing(namespace.open_reader(log, begin)) as reader:
        while first < sequences.stop:
            batch = reader.read_batch()
            if batch is None or _sequence_of(batch.column("key")[0].as_py(), log) != first:
                raise DataflowError(f"log '{log}' does not hold the round that was committed: restore it")
            batch = batch.slice(0, sequences.stop - first)
            yield batch.column(PAYLOAD).to_pylist()
            first += batch.num_rows


def _kept(namespace: LogNamespace, log: str, asked: range) -> Iterator[tuple[int, list[bytes]]]:
    """What the log still holds of these sequences, and of what follows: the sequence of the first of some, and the
    payloads. At last where they end, and nothing. Raises PositionTruncated."""
    with closing(namespace.open_reader(log)) as reader:
        while (batch := reader.read_batch()) is not None:
            first = _sequence_of(batch.column("key")[0].as_py(), log)
            if first >= asked.stop:
                break
            past = max(0, asked.start - first)
            if past < batch.num_rows:
                yield first + past, batch.column(PAYLOAD).to_pylist()[past:]
    yield asked.stop, []


def _records(payloads: Sequence[bytes | None]) -> pa.RecordBatch:
    """Records of which there is nothing else."""
    nulls = {column.name: pa.nulls(len(payloads), column.type) for column in RECORD_SCHEMA}
    return pa.record_batch({**nulls, PAYLOAD: pa.array(payloads, pa.binary())}, schema=RECORD_SCHEMA)


def _in_log(committed: CommitDescriptor) -> CommitDescriptor:
    """What the log is told of a round."""
    if committed.kind != KIND or "staged" not in committed.data or "first" not in committed.data:
        raise DataflowError(f"a commit log names a round of a '{committed.kind}' sink, and not of Dafka's; restore it")
    return CommitDescriptor(kind=LOG_KIND, records=committed.records, data=dict(committed.data["staged"]))


def _sequences(committed: CommitDescriptor) -> range:
    """Those of the round's records."""
    first = int(committed.data["first"])
    return range(first, first + committed.records)


def _begin(staged: StagedRange) -> DLSN:
    return DLSN(staged.segment, staged.first_entry, 0)


def _ever_committed(namespace: LogNamespace, log: str) -> range:
    """The sequences of the records that a stream's log keeps. They end where the next record begins, also if none is
    kept: records have the numbers that the log gives them. Each end is what a record says, as the log may go on between
    the two looks. Raises LogNotFound."""
    with closing(namespace.open_reader(log)) as reader:
        first = reader.read(1)
    last = namespace.last_record(log)
    if not first or last is None:
        end = namespace.info(log).end_sequence
        return range(end, end)
    return range(_sequence_of(first[0].key, log), _sequence_of(last.key, log) + 1)


def _keys(first: int, count: int) -> pa.Array:
    """The sequences of so many records, as keys."""
    raw = np.arange(first, first + count, dtype=">u8").tobytes()
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_SEQUENCE.size), count, [None, pa.py_buffer(raw)])
    return fixed.cast(pa.binary())


def _sequence_of(key: bytes | None, log: str) -> int:
    if key is None or len(key) != _SEQUENCE.size:
        raise DataflowError(f"log '{log}' holds records that are none of the sink's: let it have a log of its own")
    return int(_SEQUENCE.unpack(key)[0])
