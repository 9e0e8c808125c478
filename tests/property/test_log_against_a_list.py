"""The log against a plain list: appends, rounds, reads, crashes that tear what was not acknowledged, and reopenings.

What was acknowledged, or committed, is there, once and in order, whatever happens. What was neither is there or not,
and if it is there, then in its place and up to some entry of it.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.base.names import LOCKS
from scribengin.errors import Fenced, LogWriteFailed, RecordTooLarge
from scribengin.log import DLSN, LogConfig, LogNamespace, LogWriter, ReadAhead, StagedRange
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import payload_batch, payloads_left, payloads_planned, payloads_read
from scribengin_registry.contract import Registry

LOG = "a-log"
COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=4)
SIZES = st.sampled_from([0, 10, 300, 900])


def refuse(_stop: str) -> None:
    raise OSError(5, "Input/output error")


class LogAgainstAList(RuleBasedStateMachine):
    """`expected` is what readers must see. A new payload is never like another, so order and number are checked at
    once."""

    registry: ClassVar[Registry]
    base: ClassVar[Path]
    places = itertools.count()

    @initialize(
        segment_bytes_max=st.sampled_from([4096, 10_000, 1 << 20]),
        entry_bytes_max=st.sampled_from([1024, 4096]),
        ahead=st.sampled_from([None, ReadAhead(entries_max=3)]),
    )
    def create(self, segment_bytes_max: int, entry_bytes_max: int, ahead: ReadAhead | None) -> None:
        self.directory = Path(tempfile.mkdtemp(dir=self.base))
        place = f"/place-{next(self.places)}"
        LogNamespace.bind(place, self.directory, registry=self.registry)
        self.commit_log = f"{LOCKS}{place}/commit-log"
        self.registry.create(self.commit_log, self.commit_log_of(None), parents=True)
        self.namespace = LogNamespace.open(place, registry=self.registry)
        self.namespace.create(LOG, LogConfig(segment_bytes_max=segment_bytes_max, entry_bytes_max=entry_bytes_max))
        self.expected: list[bytes] = []
        self.given_up = 0
        self.numbers = itertools.count()
        self.committed: StagedRange | None = None
        self.writer = self.open_writer()
        self.follower = self.namespace.open_reader(LOG, read_ahead=ahead)
        self.followed: list[bytes] = []

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.abort()
            self.follower.close()
            shutil.rmtree(self.directory)

    @rule(count=st.integers(1, 5), size=SIZES)
    def write_one_by_one(self, count: int, size: int) -> None:
        payloads = self.new_payloads(count, size)
        for future in [self.writer.write(payload) for payload in payloads]:
            future.result(120)
        self.expected += payloads

    @rule(count=st.integers(1, 12), size=SIZES)
    def write_a_batch(self, count: int, size: int) -> None:
        payloads = self.new_payloads(count, size)
        self.writer.write_bulk(payload_batch(payloads)).result(120)
        self.expected += payloads

    @rule(count=st.integers(1, 12), size=SIZES)
    def write_all_or_nothing(self, count: int, size: int) -> None:
        payloads = self.new_payloads(count, size)
        try:
            written = self.writer.write_atomic(payload_batch(payloads)).result(120)
        except RecordTooLarge:
            return
        assert (written.last.entry, written.last.slot) == (written.first.entry, count - 1)
        self.expected += payloads

    @rule(missing=st.lists(st.booleans(), min_size=1, max_size=12), size=SIZES)
    def write_what_can_be_written(self, missing: list[bool], size: int) -> None:
        payloads = [None if gone else self.new_payloads(1, size)[0] for gone in missing]
        batch = pa.RecordBatch.from_pydict({"payload": pa.array(payloads, pa.binary())})
        result = self.writer.write_bulk(batch, partial=True).result(120)
        assert [result.error(row) is not None for row in range(len(missing))] == missing
        assert [slot is None for slot in result.dlsns().column("slot").to_pylist()] == missing
        self.expected += [payload for payload in payloads if payload is not None]

    @rule(size=SIZES)
    def be_without_room_for_a_new_file(self, size: int) -> None:
        segments = self.namespace.segments(LOG)
        (payload,) = self.new_payloads(1, size)
        with at_failpoint("log.segment_create:before", refuse):
            error = self.writer.write(payload).exception(10)
        if error is None:
            self.expected.append(payload)
        else:  # there was no old segment to write on
            assert isinstance(error, LogWriteFailed)
            assert not segments or not segments[-1].in_progress
            self.writer.abort()
            self.writer = self.open_writer()

    @rule(counts=COUNTS, size=SIZES)
    def run_a_round(self, counts: list[int], size: int) -> None:
        payloads = self.stage(counts, size)
        self.commit()
        if self.committed is not None:
            self.writer.commit_staged(self.committed)
        self.expected += payloads

    @rule(counts=COUNTS, size=SIZES, prepared=st.booleans())
    def roll_a_round_back(self, counts: list[int], size: int, prepared: bool) -> None:
        self.stage(counts, size)
        if prepared:
            self.writer.prepare()
        self.writer.rollback_staged()

    @rule(counts=COUNTS, size=SIZES, committed=st.booleans())
    def recover_in_the_middle_of_a_round(self, counts: list[int], size: int, committed: bool) -> None:
        payloads = self.stage(counts, size)
        self.writer.prepare()
        if committed:
            self.commit()
            self.expected += payloads
        self.writer.recover(self.committed)

    @rule(plain=st.booleans())
    def reopen(self, plain: bool) -> None:
        self.writer.close()
        if plain:
            self.namespace.open_writer(LOG).close()
        self.writer = self.open_writer()

    @rule()
    def be_replaced(self) -> None:
        stale, self.writer = self.writer, self.open_writer()
        with pytest.raises(Fenced):
            stale.write(b"late").result(120)
        stale.abort()

    @rule(counts=COUNTS, size=SIZES, commit=st.sampled_from(["before", "not", "and shown"]), forget=st.booleans())
    def crash_in_a_round(self, counts: list[int], size: int, commit: str, forget: bool) -> None:
        payloads = self.stage(counts, size)
        if commit != "not":
            self.commit()
            self.expected += payloads
        if commit == "and shown" and self.committed is not None:
            self.writer.commit_staged(self.committed)
        self.crash(forget_tail=forget)

    @rule(counts=COUNTS, size=SIZES, keep=st.floats(0, 1), hole=st.booleans(), forget=st.booleans())
    def crash_in_an_append(self, counts: list[int], size: int, keep: float, hole: bool, forget: bool) -> None:
        payloads = self.new_payloads(sum(counts), size)
        safe = self.segment_bytes()
        with at_failpoint("log.segment_sync:before", refuse), pytest.raises(LogWriteFailed):
            self.writer.write_bulk(payload_batch(payloads)).result(120)
        self.crash(forget_tail=forget, tear=lambda path: tear(path, safe.get(path, 0), keep, hole))
        found = payloads_read(self.namespace, LOG)
        assert found[: len(self.expected)] == self.expected
        assert found[len(self.expected) :] == payloads[: len(found) - len(self.expected)]
        self.expected = found

    @rule(counts=COUNTS, size=SIZES, keep=st.floats(0, 1), hole=st.booleans())
    def crash_while_staging(self, counts: list[int], size: int, keep: float, hole: bool) -> None:
        safe = self.segment_bytes()
        self.stage(counts, size)
        self.crash(forget_tail=False, tear=lambda path: tear(path, safe.get(path, 0), keep, hole))

    @rule(records_max=st.integers(1, 7), bytes_max=st.sampled_from([1, 1000, 1 << 20]))
    def read_in_ranges(self, records_max: int, bytes_max: int) -> None:
        with self.namespace.open_reader(LOG) as reader:
            ranges = payloads_planned(reader, self.namespace.first_dlsn(LOG), records_max, bytes_max)
        assert all(len(part) <= records_max for part in ranges)
        assert [payload for part in ranges for payload in part] == self.expected

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def start_at_a_record(self, data: st.DataObject) -> None:
        with self.namespace.open_reader(LOG) as reader:
            records = [record for batch in iter(lambda: reader.read(3), []) for record in batch]
            n = data.draw(st.integers(0, len(records) - 1))
            assert reader.lag(records[n].dlsn) == len(self.expected) - n
        sequence_ids = range(self.given_up, self.given_up + len(self.expected))
        assert [record.sequence_id for record in records] == list(sequence_ids)
        with self.namespace.open_reader(LOG, records[n].dlsn) as reader:
            assert payloads_left(reader) == self.expected[n:]

    @rule(data=st.data(), purge=st.booleans())
    def give_up_the_beginning(self, data: st.DataObject, purge: bool) -> None:
        self.follow()
        count = data.draw(st.integers(0, len(self.expected)))
        with self.namespace.open_reader(LOG) as reader:
            reader.read(max(count, 1))
            before = reader.position if count else DLSN.INVALID
        assert self.namespace.truncate(LOG, before) == (count > 0)
        self.given_up += count
        self.expected, self.followed = self.expected[count:], self.followed[count:]
        if purge:
            self.namespace.purge(LOG)

    @rule(codec=st.sampled_from(["lz4", "zstd"]))
    def read_from_compressed_copies(self, codec: str) -> None:
        config = self.namespace.info(LOG).log.config
        copying = {**config.model_dump(), "copy_codec": codec, "raw_retention_hours": 0}
        self.namespace.configure(LOG, LogConfig.model_validate(copying))
        self.namespace.compress(LOG)
        self.namespace.purge(LOG)
        self.namespace.configure(LOG, config)
        assert all(segment.raw_dropped_ms for segment in self.namespace.segments(LOG) if segment.compressed is not None)

    @rule()
    def follow(self) -> None:
        while len(self.followed) < len(self.expected):
            records = self.follower.read(1000, timeout_s=120)
            assert records, f"{len(self.followed)} of {len(self.expected)} records were seen"
            self.followed += [record.payload for record in records]
        assert self.followed == self.expected

    @invariant()
    def a_new_reader_sees_what_it_must(self) -> None:
        if hasattr(self, "writer"):
            assert payloads_read(self.namespace, LOG) == self.expected
            assert self.namespace.count(LOG) == len(self.expected)

    def open_writer(self) -> LogWriter:
        return self.namespace.open_writer(LOG, steal=True, commit_log=self.commit_log)

    def new_payloads(self, count: int, size: int) -> list[bytes]:
        return [b"%06d" % next(self.numbers) + bytes(size) for _ in range(count)]

    def stage(self, counts: list[int], size: int) -> list[bytes]:
        payloads: list[bytes] = []
        for count in counts:
            part = self.new_payloads(count, size)
            self.writer.stage(payload_batch(part))
            payloads += part
        return payloads

    def commit(self) -> None:
        self.committed = self.writer.prepare()
        self.registry.set(self.commit_log, self.commit_log_of(self.committed))

    def commit_log_of(self, staged: StagedRange | None) -> bytes:
        committed = None
        if staged is not None:
            committed = CommitDescriptor(kind="log", records=staged.records, data=staged.model_dump())
        return CommitLog(
            dataflow="d", task="t", owner="o", generation=1, epoch=1, round=1, committed=committed
        ).to_bytes()

    def crash(self, *, forget_tail: bool, tear: Callable[[Path], None] = lambda _path: None) -> None:
        """End the writer; the machine forgets `.tail`, perhaps, and tears the segment; then the next writer comes."""
        self.writer.abort()
        state = self.namespace.segments(LOG)
        if state and state[-1].in_progress:
            path = self.directory / f"{state[-1].file}.log"
            tear(path)
            if forget_tail:
                path.with_suffix(".tail").unlink(missing_ok=True)
        self.writer = self.open_writer()

    def segment_bytes(self) -> dict[Path, int]:
        return {path: path.stat().st_size for path in self.directory.glob("*/*.log")}


def tear(path: Path, safe: int, keep: float, hole: bool) -> None:
    """Let only a part of what lies behind `safe` reach the disk: the first of it, or all but a hole."""
    data = path.read_bytes()
    at = safe + int(keep * (len(data) - safe))
    path.write_bytes(data[:at] + (bytes(64) + data[at + 64 :] if hole else b""))


@pytest.mark.long
@pytest.mark.parametrize("examples", [15, pytest.param(100, marks=pytest.mark.full)])
def test_the_log_is_a_list(registry: Registry, tmp_path: Path, examples: int) -> None:
    class Machine(LogAgainstAList):
        pass

    Machine.registry = registry
    Machine.base = tmp_path
    run_state_machine_as_test(  # type: ignore[no-untyped-call]  # hypothesis has no types for it
        Machine, settings=settings(max_examples=examples, stateful_step_count=15, deadline=None)
    )
