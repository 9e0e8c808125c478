"""What a task writes of a sink whose records are divided: each record to the stream of its key, and to no other."""

from __future__ import annotations

import pyarrow as pa
import pytest

from scribengin.base.commit_log import CommitDescriptor
from scribengin.connectors.contract import DIVIDED_BY, SinkStreamDescriptor, SinkStreamWriter
from scribengin.dataflow.round.task_sink import TaskSink
from scribengin.errors import RecordMisplaced
from scribengin.log.clients import hash_partitioner

KEYS = [f"k{n}".encode() for n in range(40)]


class Kept(SinkStreamWriter):
    """A writer that keeps the payloads that it is given."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def recover(self, committed: CommitDescriptor | None) -> None: ...

    def check(self, batch: pa.RecordBatch) -> None: ...

    def write(self, batch: pa.RecordBatch) -> None:
        self.payloads += batch.column("payload").to_pylist()

    def prepare_commit(self) -> CommitDescriptor | None: ...

    def complete_commit(self, committed: CommitDescriptor) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


def sink_of(*numbers: int, among: int | None) -> tuple[TaskSink, dict[int, Kept]]:
    sink, writers = TaskSink(), {number: Kept() for number in numbers}
    for number, writer in writers.items():
        said = {} if among is None else {"number": number, "among": among}
        sink.add(SinkStreamDescriptor(sink="out", resource="log:/out", name=str(number), **said), f"/{number}", writer)
    return sink, writers


def batch_of(keys: list[bytes]) -> pa.RecordBatch:
    column = pa.array(keys, pa.binary())
    return pa.record_batch([column, column], names=["payload", DIVIDED_BY])


def of_stream(number: int, among: int) -> list[bytes]:
    chosen = hash_partitioner(pa.array(KEYS, pa.binary()), among).to_pylist()
    return [key for key, stream in zip(KEYS, chosen, strict=True) if stream == number]


@pytest.mark.parametrize("among", [4, None])  # None: as tasks were written down before several of them shared a sink
def test_one_task_has_all_streams(among: int | None) -> None:
    sink, writers = sink_of(0, 1, 2, 3, among=among)
    sink.write(batch_of(KEYS))
    assert {number: one.payloads for number, one in writers.items()} == {n: of_stream(n, 4) for n in range(4)}


def test_each_of_two_tasks_has_every_second_stream() -> None:
    sink, writers = sink_of(1, 3, among=4)
    sink.write(batch_of([*of_stream(3, 4), *of_stream(1, 4)]))
    assert {number: one.payloads for number, one in writers.items()} == {n: of_stream(n, 4) for n in (1, 3)}


def test_a_record_of_another_task_is_refused_before_anything_is_staged() -> None:
    sink, writers = sink_of(1, 3, among=4)
    stray = of_stream(2, 4)[0]
    said = f"the key '{stray.decode()}' belongs to stream 2 of a sink, of which this task writes 1, 3: it was read"
    with pytest.raises(RecordMisplaced, match=said):
        sink.check(batch_of([*of_stream(1, 4), stray]))
    assert not any(one.payloads for one in writers.values())
