"""What a task writes of one sink: one stream, or several among which the records are divided."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from scribengin.base.commit_log import CommitDescriptor
from scribengin.connectors.contract import DIVIDED_BY, SinkStreamDescriptor, SinkStreamWriter
from scribengin.errors import RecordMisplaced
from scribengin.log.clients.partitioners import hash_partitioner, split_batch


class TaskSink:
    """The open writers of one task's streams of one sink. Used by one thread."""

    def __init__(self) -> None:
        self.writers: dict[str, SinkStreamWriter] = {}
        """By the path of the commit log, in the order of the task's streams."""
        self._numbered: dict[int, SinkStreamWriter] = {}
        self._among: int | None = None

    def add(self, stream: SinkStreamDescriptor, log_path: str, writer: SinkStreamWriter) -> None:
        """The open writer of a further one of the task's streams."""
        self.writers[log_path] = writer
        # Before several tasks shared a divided sink, one had all of it, and its streams no numbers.
        self._numbered[len(self._numbered) if stream.number is None else stream.number] = writer
        self._among = stream.among

    @property
    def payload_bytes_max(self) -> int | None:
        """As a writer's. They are alike."""
        return next(iter(self.writers.values())).payload_bytes_max

    def check(self, batch: pa.RecordBatch) -> None:
        """As a writer's, of each part of the batch. Raises RecordMisplaced for what another task has to write."""
        for writer, part in self._parts(batch):
            writer.check(part)

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage each part in its stream."""
        for writer, part in self._parts(batch):
            writer.write(part)

    def prepare_commit(self) -> dict[str, CommitDescriptor]:
        """What is staged, made durable, by the path of the commit log. Streams that got nothing are left out."""
        prepared = {log_path: writer.prepare_commit() for log_path, writer in self.writers.items()}
        return {log_path: descriptor for log_path, descriptor in prepared.items() if descriptor is not None}

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[SinkStreamWriter, pa.RecordBatch]]:
        if DIVIDED_BY not in batch.schema.names:
            yield next(iter(self.writers.values())), batch
        elif batch.num_rows:
            keys = batch.column(DIVIDED_BY)
            chosen = hash_partitioner(keys, self._among or len(self.writers)).to_numpy()
            for number, part in split_batch(batch.drop_columns([DIVIDED_BY]), chosen).items():
                if number not in self._numbered:
                    raise self._of_another_task(keys[int(np.flatnonzero(chosen == number)[0])].as_py(), number)
                yield self._numbered[number], part

    def _of_another_task(self, key: bytes, number: int) -> RecordMisplaced:
        own = ", ".join(map(str, self._numbered))
        return RecordMisplaced(
            f"the key '{key.decode(errors='replace')}' belongs to stream {number} of a sink, of which this task writes "
            f"{own}: it was read from a stream of another task's keys. Have what writes the sources divide them by "
            "`partition_by` among `streams` as a log sink does, and submit a dataflow that reads those"
        )
