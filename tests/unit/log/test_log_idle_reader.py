"""A reader that waits for a log which nobody writes looks seldom, and is told at once when somebody does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scribengin.log import LogNamespace, LogReader
from scribengin.log.read.catalog import LogCatalog
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.simulation.scheduler import Scheduler, SimulatedProcess
from scribengin.testing.simulation.takeover import taken_over
from scribengin.testing.simulation.world import SimulatedClock

LOG = "log"
Wait = Callable[[Scheduler, SimulatedProcess, LogNamespace, LogReader], None]


def test_it_looks_ten_times_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [0]

    def end_sequence(self: LogCatalog) -> int:
        looks[0] += 1
        return real(self)

    def wait(_scheduler: Scheduler, _process: SimulatedProcess, _logs: LogNamespace, reader: LogReader) -> None:
        monkeypatch.setattr(LogCatalog, "end_sequence", end_sequence)
        assert not reader.wait(reader.position, 10.0)

    real = LogCatalog.end_sequence
    _at_the_end_of_a_log(wait)
    assert 1 <= looks[0] <= 110


def test_it_is_told_at_once_that_somebody_writes() -> None:
    def wait(scheduler: Scheduler, process: SimulatedProcess, logs: LogNamespace, reader: LogReader) -> None:
        def write() -> None:
            with logs.open_writer(LOG) as writer:
                writer.write(b"1").result()
                written_s.append(scheduler.now_s)
                scheduler.pass_time(5.0)

        scheduler.spawn(process, "writer", write, delay_s=3.21)
        assert reader.wait(reader.position, 10.0)
        seen_s.append(scheduler.now_s)

    written_s: list[float] = []
    seen_s: list[float] = []
    _at_the_end_of_a_log(wait)
    assert seen_s[0] - written_s[0] < 0.05


def _at_the_end_of_a_log(wait: Wait) -> None:
    """In simulated time, with a reader that has read all there is: one record, whose writer has gone."""
    scheduler, process, disk = Scheduler(1), SimulatedProcess("test"), MemoryDisk("idle")
    ended: list[bool] = []

    def run() -> None:
        clock = SimulatedClock(scheduler)
        with MemoryEnsemble(clock).connect() as session:
            LogNamespace.bind("/logs", disk.name, registry=session, store=MEMORY_STORE)
            with LogNamespace.open("/logs", registry=session, clock=clock) as logs:
                logs.create(LOG)
                with logs.open_writer(LOG) as writer:
                    writer.write(b"0").result()
                with logs.open_reader(LOG) as reader:
                    reader.read(10)
                    wait(scheduler, process, logs, reader)
        ended.append(True)

    with taken_over(scheduler):
        scheduler.spawn(process, "main", run)
        scheduler.run(lambda: bool(ended))
        scheduler.close([process])
