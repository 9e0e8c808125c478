"""What a task writes of one sink: one stream, or several among which the records are divided."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from scribengin.base.commit_log import CommitDescriptor
from scribengin.connectors.contract import DIVIDED_BY, SinkStreamWriter
from scribengin.log.clients.partitioners import hash_partitioner, split_batch


class TaskSink:
    """The open writers of one task's streams of one sink. Used by one thread."""

    def __init__(self) -> None:
        self.writers: dict[str, SinkStreamWriter] = {}
        """By the path of the commit log, in the order of the task's streams."""

    @property
    def payload_bytes_max(self) -> int | None:
        """As a writer's. They are alike."""
        return next(iter(self.writers.values())).payload_bytes_max

    def check(self, batch: pa.RecordBatch) -> None:
        """As a writer's, of each part of the batch."""
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
        writers = list(self.writers.values())
        if DIVIDED_BY not in batch.schema.names:
            yield writers[0], batch
        elif batch.num_rows:
            chosen = hash_partitioner(batch.column(DIVIDED_BY), len(writers)).to_numpy()
            for number, part in split_batch(batch.drop_columns([DIVIDED_BY]), chosen).items():
                yield writers[number], part
