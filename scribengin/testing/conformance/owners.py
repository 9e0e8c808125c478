"""The owners that the conformance suite for sinks plays: their attempts, their commit logs, and what readers see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitDescriptor, CommitLog, Decision, resolve_prepared
from scribengin.connectors.contract import (
    PAYLOAD,
    Attempt,
    Sink,
    SinkStreamDescriptor,
    SinkStreamWriter,
    TransactionCoordinator,
)
from scribengin.errors import ScribenginError
from scribengin.testing.conformance.expecting import expect_equal
from scribengin_registry.contract import Registry

MakeSink = Callable[[], Sink]

_SEEN_MAX_S = 60.0


class CheckedStream:
    """One stream of the sink, its commit log, and the owners that come and go."""

    def __init__(self, make_sink: MakeSink, registry: Registry, descriptor: SinkStreamDescriptor, node: str) -> None:
        self._make_sink = make_sink
        self._registry = registry
        self.descriptor = descriptor
        self._node = node
        with closing(make_sink()) as sink:
            self._is_decided = sink.coordinator_id(descriptor) is not None
        log = CommitLog(dataflow="conformance", task="task-0", owner="nobody", generation=0, epoch=0, round=0)
        registry.create(node, log.to_bytes(), parents=True)

    def take(self) -> ConformanceOwner:
        """What a new owner does: fence the commit log, then open a writer, in a process of its own, and recover. Before
        that a transaction coordinator is asked about what is prepared."""
        log, version = self._log()
        log = log.model_copy(update={"epoch": log.epoch + 1, "owner": f"owner-{log.epoch + 1}"})
        version = self._registry.set(self._node, log.to_bytes(), version)
        sink = self._make_sink()
        coordinator = self._coordinator(sink)
        if coordinator is not None:
            resolution = resolve_prepared({self._node: log}, coordinator.name, coordinator.recover())
            if resolution.changed:
                log = resolution.changed[self._node]
                version = self._registry.set(self._node, log.to_bytes(), version)
            if resolution.missing:
                coordinator.establish(resolution.last)
        owner = ConformanceOwner(self, sink, Attempt(log.owner, log.epoch, self._node, coordinator), version)
        owner.writer.recover(log.committed)
        return owner

    def reopen(self, stale: ConformanceOwner) -> ConformanceOwner:
        """A stale owner whose process stalled between fencing and opening its writer, or asking its coordinator."""
        sink = self._make_sink()
        coordinator = self._coordinator(sink)
        if coordinator is not None:
            coordinator.recover()
        return ConformanceOwner(self, sink, replace(stale.attempt, coordinator=coordinator), version=-2)

    def move(self, committed: CommitDescriptor | None, version: int, coordinator: TransactionCoordinator | None) -> int:
        """A round's commit, all of it. Raises VersionConflict for an owner that was fenced."""
        log, _ = self._log()
        kept = log.committed if committed is None else committed
        moved = log.model_copy(update={"round": log.round + 1, "committed": kept})
        if coordinator is not None and coordinator.staged:
            decision = Decision(coordinator=coordinator.name, epoch=log.epoch, round=moved.round)
            coordinator.prepare(decision)
            prepared = log.preparing(moved, decision)
            version = self._registry.set(self._node, prepared.to_bytes(), version)
            coordinator.commit()
            moved = prepared.forward()
        return self._registry.set(self._node, moved.to_bytes(), version)

    def _coordinator(self, sink: Sink) -> TransactionCoordinator | None:
        return (
            None if sink.coordinator_id(self.descriptor) is None else sink.open_coordinator(self.descriptor, "task-0")
        )

    def committed(self) -> CommitDescriptor | None:
        """What the commit log names, as another process reads it."""
        return self._log()[0].committed

    def payloads(self) -> list[bytes]:
        """What readers see now."""
        with closing(self._make_sink()) as sink:
            return [p for batch in sink.committed(self.descriptor) for p in batch.column(PAYLOAD).to_pylist()]

    def maintain(self, *, idle: bool) -> None:
        with closing(self._make_sink()) as sink:
            sink.maintain(self._registry, idle=idle)

    def expect_payloads(self, wanted: Sequence[bytes], when: str) -> None:
        """A system that decides may answer a commit before each of its readers sees it: of such a one, records that are
        still missing at the end are waited for."""
        expected, found = list(wanted), self.payloads()
        limit_s = SYSTEM_CLOCK.monotonic_s() + _SEEN_MAX_S
        while self._is_decided and found == expected[: len(found)] != expected and SYSTEM_CLOCK.monotonic_s() < limit_s:
            found = self.payloads()
        expect_equal(found, expected, f"what readers see {when}")

    def _log(self) -> tuple[CommitLog, int]:
        node = self._registry.get(self._node)
        return CommitLog.from_bytes(node.data, path=self._node), node.version


class ConformanceOwner:
    """One attempt: its own sink, its writer, and the version of the commit log that it may move."""

    def __init__(self, stream: CheckedStream, sink: Sink, attempt: Attempt, version: int) -> None:
        self._stream = stream
        self._sink = sink
        self.attempt = attempt
        self._version = version
        self.writer: SinkStreamWriter = sink.open_writer(stream.descriptor, attempt)

    def write(self, payloads: Sequence[bytes]) -> None:
        self.writer.write(batch_of(payloads))

    def prepare(self) -> CommitDescriptor:
        prepared = self.writer.prepare_commit()
        if prepared is None:
            raise AssertionError(
                "broken promise: prepare_commit() after write() returns a CommitDescriptor, and no None"
            )
        return CommitDescriptor.from_bytes(prepared.to_bytes(), path="a CommitDescriptor")

    def commit(self, prepared: CommitDescriptor | None) -> None:
        self._version = self._stream.move(prepared, self._version, self.attempt.coordinator)

    def round(self, payloads: Sequence[bytes]) -> CommitDescriptor:
        """A whole round."""
        self.write(payloads)
        prepared = self.prepare()
        self.commit(prepared)
        self.writer.complete_commit(prepared)
        return prepared

    def leave(self) -> None:
        """Close everything, twice."""
        for _twice in range(2):
            self.writer.close()
        for _twice in range(2):
            if self.attempt.coordinator is not None:
                self.attempt.coordinator.close()
        for _twice in range(2):
            self._sink.close()


def batch_of(payloads: Sequence[bytes]) -> pa.RecordBatch:
    return pa.record_batch({PAYLOAD: pa.array(payloads, pa.binary())})


def raises(act: Callable[[], object]) -> bool:
    try:
        act()
    except ScribenginError:
        return True
    return False


def attempted(*acts: Callable[[], object]) -> str:
    """Try each of them; a stale owner may be told so, or not. What it was told, for the message."""
    told = []
    for act in acts:
        try:
            act()
            told.append("done")
        except ScribenginError as error:
            told.append(type(error).__name__)
    return ", ".join(told)
