"""Of what readers of a file sink have seen, a power failure takes back the end for a while, and not the middle."""

from __future__ import annotations

from contextlib import closing, suppress

import pytest

from scribengin.base.commit_log import CommitDescriptor
from scribengin.connectors.contract import PAYLOAD, Attempt, SinkStreamWriter
from scribengin.connectors.files.sink.sink import FileSink, FileSinkConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import payload_batch
from scribengin.testing.memory.disk_states import Operation
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.memory.registry import MemoryEnsemble
from tests.crash.failing_disk import FailingDisk, PowerFailure

PAYLOADS = [b"one", b"two", b"three", b"four"]
"""Each is a segment of its own."""
SEEDS = 20
"""Of what a power failure leaves."""


class OneStream:
    """A sink of files in memory, and what it shows."""

    def __init__(self, root: str) -> None:
        config = FileSinkConfig(kind="hdfs", path=f"{root}out", merge_bytes=1)
        self._sink = FileSink("out", config, MemoryEnsemble().connect(), STREAM_NODES, ManualClock())
        [self._stream] = self._sink.streams(1)
        self._sink.create([self._stream])

    def writer(self, epoch: int) -> SinkStreamWriter:
        return self._sink.open_writer(self._stream, Attempt("a test", epoch, "/commit-log"))

    def staged(self) -> tuple[SinkStreamWriter, CommitDescriptor]:
        """A round that waits to be completed."""
        writer = self.writer(1)
        writer.recover(None)
        for payload in PAYLOADS:
            writer.write(payload_batch([payload]))
        committed = writer.prepare_commit()
        assert committed is not None
        return writer, committed

    def seen(self) -> list[bytes]:
        return [p for batch in self._sink.committed(self._stream) for p in batch.column(PAYLOAD).to_pylist()]

    def close(self) -> None:
        self._sink.close()


def operations_to_complete() -> int:
    files, counted = MemoryFiles(), list[Operation]()
    with files.opened_by("in-memory") as root, closing(OneStream(root)) as stream:
        writer, committed = stream.staged()
        files.hook = counted.append
        writer.complete_commit(committed)
    return len(counted)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_a_power_failure_takes_back_is_the_end_of_what_was_seen(seed: int) -> None:
    operations = operations_to_complete()
    for fails_before in range(operations + 1):
        files = MemoryFiles()
        with files.opened_by("in-memory") as root, closing(OneStream(root)) as stream:
            writer, committed = stream.staged()
            FailingDisk(files, fails_before)
            with suppress(PowerFailure):
                writer.complete_commit(committed)
            files.hook = lambda _operation: None
            before = stream.seen()
            files.crash(seed)
            after = stream.seen()
            assert after == before[: len(after)]
            assert len(after) >= len(before) - 1
            if fails_before == operations:
                assert after == PAYLOADS, "who has completed a round may rely on it"
            stream.writer(2).recover(committed)
            assert stream.seen() == PAYLOADS
