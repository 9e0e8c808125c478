"""A log and its cold storage through random schedules: written, copied, dropped, truncated, purged, stopped anywhere.

After every step all that was acknowledged and not given up is read, in order, by whoever reads it anew and by somebody
who has been reading all the time. In the end no file is left that nobody names, and none is missed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pytest

from scribengin.errors import PositionTruncated, StoreUnreachable
from scribengin.log import DLSN, LogReader
from scribengin.log.metadata.segments import SegmentDescriptor
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import payloads_read
from scribengin.testing.memory.disk_states import Operation
from scribengin.testing.memory.files import MemoryFiles
from tests.dying import Stopped
from tests.servers.cold import HOUR_S, LOG, ColdLog

STEPS = 40
STOPS = [
    f"{name}:{moment}"
    for name in (
        *("log.cold_index", "log.cold_mark", "log.cold_remove", "log.cold_write", "log.metadata", "log.segment_remove"),
        *("files.append", "files.close", "files.create", "files.make_directory", "files.remove", "files.sync"),
        "files.sync_directory",
    )
    for moment in ("before", "after")
]


@dataclass
class Schedule:
    """One seed's life of a log, and what it should hold."""

    log: ColdLog
    seed: int
    payloads: list[bytes] = field(default_factory=list)
    first: int = 0
    seen: int = 0
    reader: LogReader | None = None
    """Somebody who reads on and on, and has read the records before `seen`."""
    unmounted: ExitStack | None = None
    """What mounts cold storage again; None: it is mounted."""
    below: MemoryFiles | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.log.namespace.configure(LOG, self.log.config())

    def run(self) -> None:
        """All of it. Raises AssertionError."""
        often = [self._write, self._purge]
        steps = [*often, *often, self._offload, self._age, self._truncate, self._fail]
        for _ in range(STEPS):
            step = self.random.choice(steps)
            step()
            self._check()
        self.log.files.away = False
        if self.unmounted is not None:
            self._unmount_or_mount()
        self.log.namespace.offload(LOG)
        self.log.drop_hot()
        self._check()
        listed = self.log.namespace.segments(LOG)
        assert self.log.hot() == []
        assert self.log.cold() == [segment.segment for segment in listed]
        assert self.log.findings() == []
        for _ in range(len(self.payloads)):
            self._read_on()
        assert self.seen == len(self.payloads)
        if self.reader is not None:
            self.reader.close()

    def _write(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            payload = b"%06d" % len(self.payloads) + bytes(self.random.choice((10, 3000, 5000)))
            with self.log.namespace.open_writer(LOG, steal=True) as writer:
                writer.write(payload).result(120)
            self.payloads.append(payload)

    def _offload(self) -> None:
        with suppress(StoreUnreachable):
            self._stopped_or_not(lambda: self.log.namespace.offload(LOG))

    def _purge(self) -> None:
        with suppress(StoreUnreachable):
            self._stopped_or_not(lambda: self.log.namespace.purge(LOG))

    def _age(self) -> None:
        self.log.clock.advance_s(self.random.choice((0.1, 0.6, 2)) * HOUR_S)

    def _truncate(self) -> None:
        if self.random.random() < 0.5 or len(self.payloads) - self.first < 4:
            return
        with suppress(StoreUnreachable):
            first = self.random.randint(self.first, len(self.payloads) - 2)
            segment = self._segment_of(first)
            if segment is not None:
                self.log.namespace.truncate(LOG, DLSN(segment.segment, first - segment.start_sequence, 0))
                self.first = first

    def _fail(self) -> None:
        """Cold storage loses its power, or goes away, or is not mounted, or is back."""
        what = self.random.randrange(4)
        if what < 2:
            self.log.files.crash(self.random.randint(0, 1 << 30))
        elif what == 2:
            self.log.files.away = not self.log.files.away
        elif self.log.namespace.info(LOG).head.cold_tokens:  # before that nobody can tell
            self._unmount_or_mount()

    def _unmount_or_mount(self) -> None:
        if self.unmounted is None:
            self.unmounted = ExitStack()
            self.below = self.unmounted.enter_context(self.log.unmounted())
        else:
            assert self.below is not None
            assert self.below.names("/") == [], "nothing is made below the mount"
            self.unmounted.close()
            self.unmounted = None

    def _segment_of(self, sequence: int) -> SegmentDescriptor | None:
        segments = self.log.namespace.segments(LOG)
        return next((one for one in segments if one.start_sequence <= sequence < one.end_sequence), None)

    def _stopped_or_not(self, work: Callable[[], object]) -> None:
        if self.random.random() < 0.4:
            work()
            return
        stop, occurrence = self.random.choice(STOPS), self.random.randint(1, 5)
        try:
            with at_failpoint(stop, self._die, occurrence=occurrence), suppress(Stopped):
                work()
        finally:
            self.log.files.hook = lambda _operation: None

    def _die(self, _stop: str) -> None:
        """And tidy nothing up."""

        def refuse(_operation: Operation) -> None:
            raise Stopped

        self.log.files.hook = refuse
        raise Stopped

    def _check(self) -> None:
        with suppress(StoreUnreachable):
            assert payloads_read(self.log.namespace, LOG) == self.payloads[self.first :]
        try:
            self._read_on()
        except PositionTruncated:
            self._begin_at(self.first)
        except StoreUnreachable:
            self._begin_at(self.seen)

    def _begin_at(self, sequence: int) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader, self.seen = None, sequence

    def _read_on(self) -> None:
        if self.reader is None:
            self.seen = max(self.seen, self.first)
            segment = self._segment_of(self.seen)
            start = None if segment is None else DLSN(segment.segment, self.seen - segment.start_sequence, 0)
            if segment is None and self.seen == len(self.payloads):
                start = self.log.namespace.end_dlsn(LOG)
            self.reader = self.log.namespace.open_reader(LOG, start)
        for record in self.reader.read(self.random.choice((1, 3, 1000)), wait_for_all=False):
            if record.sequence_id >= self.seen:  # what was truncated is passed over
                assert record.sequence_id == max(self.seen, self.first)
                assert record.payload == self.payloads[record.sequence_id]
                self.seen = record.sequence_id + 1


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(12, 40))])
def test_no_schedule_loses_a_record_or_leaves_a_file(cold_log: ColdLog, seed: int) -> None:
    Schedule(cold_log, seed).run()
