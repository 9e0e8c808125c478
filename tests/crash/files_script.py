"""A file sink's life on a recorded disk: rounds, owners, merges, deletions of its dataflow, and kills, as a seed says.

The script says along the way what readers must see (`Delivered`), at its place in the disk's record. So for every
moment of the record it is known what a power failure at that moment must leave of the output.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from scribengin.base.clock import SystemClock
from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.connectors.contract import Attempt, SinkStreamWriter
from scribengin.connectors.files import FileSink, FileSinkConfig
from scribengin.dataflow.registry.paths import SINKS, STREAM_NODES
from scribengin.errors import ScribenginError
from scribengin.testing.memory.disk_states import Operation
from scribengin_registry.contract import Registry
from tests.crash.log_script import Crash
from tests.crash.recorded_registry import RecordedRegistry

COMMIT_LOG = "/commit-log"
OUT = "deep/out"
_SHAPES: list[dict[str, Any]] = [
    {},
    {"file_format": "binary"},
    {"codec": "zstd"},
    {"partition": {"columns": ["kind"]}},
]


@dataclass(frozen=True)
class Delivered:
    """What readers must see: `certain`, and `possible` as well once the commit log's round is `round`."""

    settings: str
    """Of the sink, as JSON."""
    certain: tuple[bytes, ...] = ()
    possible: tuple[bytes, ...] = ()
    round: int = 0

    def wanted(self, round_: int | None) -> list[bytes]:
        """All that must be there, when that is what the commit log says (None: there is none)."""
        return list(self.certain + (self.possible if round_ is not None and round_ >= self.round else ()))


class OneStream:
    """A file sink with one stream, and the commit log that its owners move: as a task does it."""

    def __init__(self, registry: Registry, root: Path | str, settings: dict[str, Any]) -> None:
        self.registry = registry
        config = FileSinkConfig.parse({"kind": "hdfs", "path": f"{root}/{OUT}", **settings}, source="a test")
        self.sink = FileSink("out", config, registry, STREAM_NODES, SystemClock())
        self.writer: SinkStreamWriter | None = None

    @property
    def stream(self) -> Any:
        return self.sink.streams(1)[0]

    def create(self) -> None:
        """What submitting the dataflow makes."""
        self.sink.create([self.stream])
        if self.registry.find(COMMIT_LOG) is None:
            log = CommitLog(dataflow="d", task="t", owner="nobody", generation=0, epoch=0, round=0)
            self.registry.create(COMMIT_LOG, log.to_bytes())

    def take_over(self) -> SinkStreamWriter:
        """Fence, then recover."""
        self.leave()
        log = self.log()
        log = log.model_copy(update={"epoch": log.epoch + 1})
        self.registry.set(COMMIT_LOG, log.to_bytes())
        self.writer = self.sink.open_writer(self.stream, Attempt("owner", log.epoch, COMMIT_LOG))
        self.writer.recover(log.committed)
        return self.writer

    def leave(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.writer = None

    def log(self) -> CommitLog:
        return CommitLog.from_bytes(self.registry.get(COMMIT_LOG).data, path=COMMIT_LOG)

    def commit(self, prepared: CommitDescriptor) -> None:
        log = self.log()
        moved = log.model_copy(update={"round": log.round + 1, "committed": prepared})
        self.registry.set(COMMIT_LOG, moved.to_bytes())

    def delete(self) -> None:
        """Bring everything to its end, and forget it, as deleting the dataflow does."""
        self.take_over()
        self.leave()
        self.sink.maintain(self.registry, idle=True)
        for node in (SINKS, COMMIT_LOG):
            if self.registry.find(node) is not None:
                self.registry.delete(node, recursive=True)

    def visible(self) -> list[bytes]:
        batches = self.sink.committed(self.stream)
        return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


def batch_of(payloads: list[bytes]) -> pa.RecordBatch:
    kinds = [f"kind {payload[5:6]!r}" for payload in payloads]
    return pa.record_batch({"payload": pa.array(payloads, pa.binary()), "kind": pa.array(kinds, pa.string())})


class PoweredDisk(Protocol):
    """What the script lives on: its root, who sees each operation before it happens, and where it says things."""

    root: Any
    hook: Any

    def mark(self, event: object) -> None: ...


class FilesScript:
    """Runs one seed's life of a sink, on a disk and a registry that keep records."""

    def __init__(self, disk: PoweredDisk, registry: Registry, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = disk
        disk.hook = self._count_down
        self.registry = RecordedRegistry(registry, changed=disk.mark, before=self._count_down)
        settings = {
            **_SHAPES[seed % len(_SHAPES)],
            "merge_bytes": self.random.choice((1, 300, 5_000)),
            "merge_age_s": 0,
        }
        self.delivered = Delivered(json.dumps(settings))
        self.flow = OneStream(self.registry, disk.root, settings)
        self._stops_in: int | None = None
        self._number = 0

    def run(self, steps: int) -> None:
        """Create it, and do so many things to it."""
        self._say(self.delivered.certain)
        self.flow.create()
        self.flow.take_over()
        for _ in range(steps):
            action = self.random.choice(self._actions())
            if self.random.random() < 0.3:
                self._killed_in(action)
            else:
                action()
        self.flow.delete()
        self._check()

    def _actions(self) -> list[Callable[[], None]]:
        rounds = [self._round] * 5
        return [*rounds, self._leave_round, self._roll_back, self._take_over, self._merge, self._merge, self._again]

    def _round(self) -> None:
        prepared = self._staged()
        possible = self._payloads
        self._say(self.delivered.certain, possible, self.flow.log().round + 1)
        self.flow.commit(prepared)
        self._say(self.delivered.certain + possible)
        if self.random.random() < 0.2:
            self.flow.take_over()  # whoever comes next completes it
        else:
            self._writer.complete_commit(prepared)

    def _leave_round(self) -> None:
        self._staged()
        self.flow.take_over()

    def _roll_back(self) -> None:
        self._staged()
        self._writer.rollback()

    def _take_over(self) -> None:
        self.flow.take_over()

    def _merge(self) -> None:
        self.flow.sink.maintain(self.registry, idle=self.random.random() < 0.3)

    def _again(self) -> None:
        """Delete the dataflow, and submit it again."""
        self.flow.delete()
        self.flow.create()
        self.flow.take_over()

    def _killed_in(self, action: Callable[[], None]) -> None:
        """Die at some operation of the action; what comes next begins where that left it."""
        self._stops_in = self.random.randint(0, 14)
        try:
            action()
        except Crash:
            self._stops_in = None
        except ScribenginError as error:
            raise AssertionError(f"nothing was killed, and yet: {error!r}") from error
        self._stops_in = None
        self.flow.leave()
        self.flow = OneStream(self.registry, self.disk.root, json.loads(self.delivered.settings))
        self.flow.create()
        self._say(tuple(self.delivered.wanted(self.flow.log().round)))
        self.flow.take_over()
        self._check()

    @property
    def _writer(self) -> SinkStreamWriter:
        assert self.flow.writer is not None
        return self.flow.writer

    def _staged(self) -> CommitDescriptor:
        self._payloads: tuple[bytes, ...] = ()
        for _ in range(self.random.randint(1, 3)):
            batch = [self._payload() for _ in range(self.random.randint(1, 4))]
            self._payloads += tuple(batch)
            self._writer.write(batch_of(batch))
        prepared = self._writer.prepare_commit()
        assert prepared is not None
        return prepared

    def _payload(self) -> bytes:
        self._number += 1
        noise = self.random.randbytes(self.random.choice((0, 3, 40, 700))).replace(b"\n", b"\xff")
        return b"%05d " % self._number + noise

    def _say(self, certain: tuple[bytes, ...], possible: tuple[bytes, ...] = (), round_: int = 0) -> None:
        self.delivered = Delivered(self.delivered.settings, certain, possible, round_)
        self.disk.mark(self.delivered)

    def _check(self) -> None:
        with suppress(FileNotFoundError):
            found, wanted = sorted(self.flow.visible()), sorted(self.delivered.certain)
            assert found == wanted, f"with the power on: {len(found)} records, and {len(wanted)} were committed"

    def _count_down(self, _operation: Operation | None = None) -> None:
        if self._stops_in is not None:
            self._stops_in -= 1
            if self._stops_in < 0:
                raise Crash
