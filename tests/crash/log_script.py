"""A log's life on a recorded disk: written, staged, rolled, read, truncated, killed and recovered, as a seed says.

The script says along the way what it was promised (`Expectation`), at its place in the disk's record. So for every
moment of the record it is known what a recovery after a power failure at that moment must bring back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from scribengin.base.clock import SystemClock
from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.errors import EndOfStream, ScribenginError
from scribengin.log import DLSN, LogConfig, LogNamespace, LogReader, LogWriter, StagedRange, TransactionId
from scribengin.log.format.records import LogRecord
from scribengin.testing.memory.disk_states import Operation, Sync
from scribengin_registry.contract import Registry
from tests.crash.disk_recorder import RecordedDisk
from tests.crash.recorded_registry import RecordedRegistry

NAMESPACE = "/logs"
LOG = "flights/0"
COMMIT_LOG = "/scribengin/locks/commit-log"


class Crash(BaseException):
    """Ends a writer at an operation, as the end of its process would."""


@dataclass(frozen=True)
class Expectation:
    """What was promised so far. `possible` was submitted and may follow `certain`, from its beginning; if `atomic`, all
    of it or nothing. `firsts`: the sequence ids that the first record kept may have."""

    certain: tuple[bytes, ...] = ()
    possible: tuple[bytes, ...] = ()
    atomic: bool = False
    firsts: tuple[int, ...] = (0,)
    sealed: bool = False

    def wrong(self, records: list[LogRecord], certain: int) -> str | None:
        """What is wrong with what a reader sees, when the first `certain` records must be there."""
        history = self.certain + self.possible
        first = records[0].sequence_id if records else min(self.firsts[-1], len(history))
        end = first + len(records)
        if [record.sequence_id for record in records] != list(range(first, end)):
            return f"sequence ids {[record.sequence_id for record in records]}"
        if first not in self.firsts and records:
            return f"the first record is {first}, kept are those from {self.firsts}"
        if end > len(history) or end < certain:
            return f"{end} records are there, {certain} were promised, {len(history)} written"
        if self.atomic and end not in (len(self.certain), len(history)):
            return f"{end} records are there: a part of what is committed at once"
        if any(record.payload != payload for record, payload in zip(records, history[first:], strict=False)):
            return "the records are not those that were written"
        return None


def open_namespace(registry: Registry) -> LogNamespace:
    """The script's namespace, in a registry where it is bound."""
    return LogNamespace.open(NAMESPACE, registry=registry)


def records_of(reader: LogReader) -> list[LogRecord]:
    """Everything that is left to read just now."""
    records: list[LogRecord] = []
    with suppress(EndOfStream):
        while more := reader.read(1000):
            records.extend(more)
    return records


def all_records(namespace: LogNamespace) -> list[LogRecord]:
    """Everything that a new reader of the log sees."""
    with namespace.open_reader(LOG) as reader:
        return records_of(reader)


def commit_log_of(staged: StagedRange | None) -> bytes:
    """The commit log of the script's rounds, naming what was committed last."""
    committed = None
    if staged is not None:
        committed = CommitDescriptor(kind="log", records=staged.records, data=staged.model_dump())
    return CommitLog(dataflow="d", task="t", owner="o", generation=1, epoch=1, round=1, committed=committed).to_bytes()


class JumpingClock(SystemClock):
    """Time passes as always, and by hours when the script says so."""

    hours = 0

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000 * self.hours


class LogScript:
    """Runs one seed's life of a log, on a disk and a registry that keep records."""

    def __init__(self, disk: RecordedDisk, registry: Registry, seed: int, *, fsync: bool = True) -> None:
        self.random = random.Random(seed)
        self.disk = disk
        self.registry = RecordedRegistry(registry, changed=disk.mark, before=self._count_down)
        disk.hook = self._disk_hook
        codec = self.random.choice(("none", "none", "lz4", "zstd"))
        size = self.random.choice((4096, 8192, 1024 * 1024))
        self.config = LogConfig(codec=codec, segment_bytes_max=size, entry_bytes_max=1024, fsync=fsync)
        if codec == "none" and self.random.random() < 0.7:
            copies = {"copy_codec": "zstd", "raw_retention_hours": 1.0}
            self.config = LogConfig.model_validate(self.config.model_dump() | copies)
        self.clock = JumpingClock()
        self.expected = Expectation()
        self._stops_in: int | None = None
        self._stops_at_sync = False
        """Rather than after so many operations: with written data that is not durable."""
        self._dead = False
        self._txid = 0

    def run(self, steps: int) -> None:
        """Bind, create, and do so many things to the log."""
        self._stops_in = self.random.randint(0, 12)
        with suppress(Crash):
            self._create()
        self._stops_in, self._dead = None, False
        self._create()
        self._expect()
        self.writer = self._opened()
        for step in range(steps):
            action = self.random.choice(self._actions())
            if self.random.random() < 0.3:
                self._killed_in(action)
            elif step == steps - 1 and self.random.random() < 0.3:
                self.writer.mark_end_of_stream()
                self._expect(sealed=True)
            else:
                action()
        self.writer.close()

    def _create(self) -> None:
        """Bind and create, as far as nobody who was killed has done it before."""
        LogNamespace.bind(NAMESPACE, self.disk.root / "deep" / "store", registry=self.registry)
        if self.registry.find(COMMIT_LOG) is None:
            self.registry.create(COMMIT_LOG, commit_log_of(None), parents=True)
        self.namespace = LogNamespace.open(NAMESPACE, registry=self.registry, clock=self.clock)
        if not self.namespace.exists(LOG):
            self.namespace.create(LOG, self.config)

    def _actions(self) -> list[Callable[[], None]]:
        bulk, burst, commit, roll_back = self._bulk, self._burst, self._commit_round, self._roll_back_round
        often = [bulk, bulk, bulk, burst, burst, commit, commit]
        rare = [self._read, self._truncate, self._age, self._age, self._open_again, self._take_over]
        return [*often, roll_back, self._leave_round, *rare]

    # --- what it does ------------------------------------------------------------------------------------------------

    def _bulk(self) -> None:
        batch = self._batch()
        self._expect(possible=self._payloads(batch))
        self.writer.write_bulk(batch).result(120)
        self._kept()

    def _burst(self) -> None:
        """Several writes that gather in groups; each is promised when its future says so."""
        count = self.random.randint(1, 6)
        payloads = [self._payload() for _ in range(count)]
        self._expect(possible=tuple(payload for _txid, payload in payloads))
        before = self.expected

        def done(number: int, future: Future[DLSN]) -> None:
            if future.exception() is None:
                self._expect(
                    certain=before.certain + before.possible[: number + 1], possible=before.possible[number + 1 :]
                )

        futures = []
        for number, (txid, payload) in enumerate(payloads):
            futures.append(self.writer.write(payload, txid=txid))
            futures[-1].add_done_callback(lambda future, number=number: done(number, future))  # type: ignore[misc]
        for future in futures:
            future.result(120)

    def _commit_round(self) -> None:
        batches = [self._batch() for _ in range(self.random.randint(1, 3))]
        staged = self._staged(batches)
        self._expect(possible=tuple(p for batch in batches for p in self._payloads(batch)), atomic=True)
        self.registry.set(COMMIT_LOG, commit_log_of(staged))
        self._kept()
        if self.random.random() < 0.25:
            self._take_over()  # whoever comes next completes it
        else:
            self.writer.commit_staged(staged)

    def _roll_back_round(self) -> None:
        self._staged([self._batch()])
        self.writer.rollback_staged()

    def _leave_round(self) -> None:
        """Stage, perhaps without prepare, and go: whoever comes next rolls it back."""
        self.writer.stage(self._batch())
        if self.random.random() < 0.5:
            self.writer.prepare()
        self._take_over()

    def _read(self) -> None:
        """Read everything, and look one record up: readers keep indexes of completed segments."""
        self._check(all_records(self.namespace))
        with self.namespace.open_reader(LOG, TransactionId(self.random.randint(0, self._txid))) as reader:
            reader.read(1)

    def _truncate(self) -> None:
        records = all_records(self.namespace)
        if records:
            cut = self.random.choice(records)
            before = self.expected.firsts
            self._expect(firsts=(*before, cut.sequence_id))
            self.namespace.truncate(LOG, cut.dlsn)
            self._expect(firsts=(cut.sequence_id,))
            if self.random.random() < 0.5:
                self.namespace.purge(LOG)

    def _age(self) -> None:
        """Let segments grow old: raw files make way for their compressed copies, first for readers, then on disk."""
        for _ in range(2):
            self.clock.hours += 2
            self.namespace.purge(LOG)
        self._read()

    def _open_again(self) -> None:
        self.writer.close()
        self.writer = self._opened()

    def _take_over(self) -> None:
        self.writer.abort()
        self.writer = self._opened()

    def _killed_in(self, action: Callable[[], None]) -> None:
        """Kill the writer at some operation of the action, and let the next one recover, or be killed as well."""
        for _ in range(2):
            self._stops_in = self.random.randint(0, 10)
            self._stops_at_sync = self.random.random() < 0.4
            try:
                action()
            except (Crash, ScribenginError) as error:
                if not self._dead:
                    raise AssertionError(f"nothing was killed, and yet: {error!r}") from error
            action = self._take_over
            self._stops_in, self._dead = None, False
            if self.random.random() < 0.7:
                break
        self.writer.abort()
        self.writer = self.namespace.open_writer(LOG, steal=True, commit_log=COMMIT_LOG)
        records = all_records(self.namespace)
        self._check(records)
        first = records[0].sequence_id if records else max(self.expected.firsts)
        known = (self.expected.certain + self.expected.possible)[:first]
        kept = known + tuple(record.payload for record in records)
        self._expect(certain=kept, firsts=(first,) if records else self.expected.firsts)

    # --- how it does it ----------------------------------------------------------------------------------------------

    def _opened(self) -> LogWriter:
        return self.namespace.open_writer(LOG, steal=True, commit_log=COMMIT_LOG)

    def _check(self, records: list[LogRecord]) -> None:
        wrong = self.expected.wrong(records, len(self.expected.certain))
        assert wrong is None, f"with the power on: {wrong}"

    def _staged(self, batches: list[pa.RecordBatch]) -> StagedRange:
        for batch in batches:
            self.writer.stage(batch)
        staged = self.writer.prepare()
        assert staged is not None
        return staged

    def _payload(self) -> tuple[int, bytes]:
        self._txid += 1
        size = self.random.choice((0, 10, 10, 300, 900, 2500))
        return self._txid, b"%06d " % self._txid + self.random.randbytes(size)

    def _batch(self) -> pa.RecordBatch:
        rows = [self._payload() for _ in range(self.random.randint(1, 6))]
        txids, payloads = zip(*rows, strict=True)
        return pa.RecordBatch.from_arrays(
            [pa.array(txids, pa.int64()), pa.array(payloads, pa.binary())], names=["txid", "payload"]
        )

    def _payloads(self, batch: pa.RecordBatch) -> tuple[bytes, ...]:
        return tuple(batch.column("payload").to_pylist())

    def _kept(self) -> None:
        self._expect(certain=self.expected.certain + self.expected.possible)

    def _expect(
        self,
        *,
        certain: tuple[bytes, ...] | None = None,
        possible: tuple[bytes, ...] = (),
        atomic: bool = False,
        firsts: tuple[int, ...] | None = None,
        sealed: bool = False,
    ) -> None:
        with self.disk.lock:
            self.expected = replace(
                self.expected,
                certain=self.expected.certain if certain is None else certain,
                possible=possible,
                atomic=atomic,
                firsts=self.expected.firsts if firsts is None else firsts,
                sealed=sealed,
            )
            self.disk.mark(self.expected)

    def _disk_hook(self, operation: Operation) -> None:
        self._count_down(operation)

    def _count_down(self, operation: Operation | None = None) -> None:
        if self._stops_in is not None and not self._dead:
            at_sync = isinstance(operation, Sync) and operation.path.endswith(".log")
            self._dead = at_sync if self._stops_at_sync else self._stops_in == 0
            self._stops_in -= 1
        if self._dead:
            raise Crash
