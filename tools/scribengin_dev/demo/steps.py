"""What the demos have in common: dataflows are followed while a producer appends, and somebody is killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa

from scribengin.dataflow.config import DataflowConfig
from scribengin_dev.demo.display import Display
from scribengin_dev.demo.flights import Flights
from scribengin_dev.demo.report import OutputRow, Standstill
from scribengin_dev.harness.casualties import Casualty, kill_machine, kill_master, kill_worker, working_workers
from scribengin_dev.harness.installation import Installation
from scribengin_dev.harness.producer import Feed, Producer
from scribengin_dev.harness.progress import FlowProgress
from scribengin_dev.harness.standstill import gap_around_ms, longest_gap_ms, of_stream

DATAFLOWS = Path(__file__).resolve().parents[3] / "dataflows"
Kill = Literal["worker", "master", "both", "machine", "none"]
FIRST_RECORDS = 250
"""Of each log, for Spark to warm up."""
_START_TIMEOUT_S = 900.0
_WORK_TIMEOUT_S = 900.0
_PRODUCING_S_MIN = 12.0
_ALL_RECORDS = 336_776


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What a demo found. `averages`: airlines and the average delay of their delayed flights, for the chart."""

    outputs: tuple[OutputRow, ...]
    standstills: tuple[Standstill, ...]
    averages: Sequence[tuple[str, float]]
    session_timeout_s: float

    @property
    def exact(self) -> bool:
        """Nothing lost, nothing twice, nothing else."""
        return all(output.verdict.exact for output in self.outputs)


@dataclass(slots=True)
class DemoSteps:
    """The steps of one run."""

    place: Installation
    flights: Flights
    kill: Kill
    display: Display
    casualties: list[Casualty] = field(default_factory=list)

    def producer(self, logs: Sequence[str], batches: Sequence[pa.RecordBatch], year_s: float) -> Producer:
        """It appends each batch to its log, in step, at the pace at which all flights of the year take `year_s`."""
        duration_s, clock = self.duration_s(year_s), self.place.clock
        return Producer(self.place.namespace, logs, batches, first=FIRST_RECORDS, duration_s=duration_s, clock=clock)

    def duration_s(self, year_s: float) -> float:
        """How long the flights take where all of the year take `year_s`."""
        return max(_PRODUCING_S_MIN, year_s * len(self.flights) / _ALL_RECORDS)

    def await_workers(self, flow: FlowProgress, config: DataflowConfig) -> None:
        """Until every worker has tasks, and every task has an owner."""

        def at_work() -> bool:
            self.place.check(flow.dataflow)
            flow.commits.check()
            taken_over = {commit.stream for commit in flow.commits.seen()} & set(flow.streams)
            working = len(working_workers(self.place, flow.dataflow))
            self.display.show(
                {
                    f"workers of {flow.dataflow} whose Spark runs": (working, config.workers),
                    f"streams taken over of {flow.dataflow}": (len(taken_over), len(flow.streams)),
                }
            )
            return working >= config.workers and len(taken_over) == len(flow.streams)

        self.place.wait_until(at_work, _START_TIMEOUT_S, f"the workers of {flow.dataflow}")
        self.display.say(f"{flow.dataflow} runs: its workers have taken over all tasks")

    def follow(
        self,
        done: Callable[[], bool],
        producer: Feed,
        flows: Sequence[FlowProgress],
        counts: Callable[[], Mapping[str, tuple[int, int]]],
        what: str,
    ) -> None:
        """Wait for `done`, showing how far things are, and raising what goes wrong meanwhile."""

        def look() -> bool:
            producer.check()
            for flow in flows:
                self.place.check(flow.dataflow)
            self.display.show({"appended": (producer.appended, producer.total), **counts()})
            return done()

        self.place.wait_until(look, _WORK_TIMEOUT_S, what)

    def kill_of(self, dataflow: str) -> None:
        """Kill whom the command line says, of this dataflow."""
        if self.kill in ("master", "both"):
            self._record_death(kill_master(self.place, dataflow), "master")
        if self.kill in ("worker", "both"):
            self._record_death(kill_worker(self.place, dataflow), "worker")
        if self.kill == "machine":
            self._record_death(kill_machine(self.place, dataflow), "machine")

    def stop(self, dataflow: str) -> None:
        """Let a dataflow end that has read everything."""
        self.place.desire(dataflow, "stopped")
        self.place.await_state(dataflow, "stopped", timeout_s=_WORK_TIMEOUT_S)
        self.display.say(f"{dataflow} has read everything and stopped")

    def standstills(self, flow: FlowProgress) -> list[Standstill]:
        """How long its tasks stood still around each death."""
        bereft = {task for casualty in self.casualties for task in casualty.tasks}
        found = []
        for casualty in self.casualties:
            for commits in filter(None, (of_stream(flow.commits.seen(), log) for log in flow.streams)):
                task, stream = commits[0].task, commits[0].stream
                if task in casualty.tasks:
                    gap_ms = gap_around_ms(commits, casualty.at_ms)
                elif not casualty.tasks and task not in bereft:
                    gap_ms = longest_gap_ms(commits, casualty.at_ms)
                else:
                    continue
                found.append(Standstill(casualty.name, task, stream, gap_ms, task in casualty.tasks))
        return found

    def _record_death(self, casualty: Casualty, what: str) -> None:
        self.casualties.append(casualty)
        had = f", which had the tasks {', '.join(casualty.tasks)}" if casualty.tasks else ""
        self.display.say(f"killed the {what} {casualty.name} (pid {casualty.pid}) with SIGKILL{had}", "bold red")


def through(flow: FlowProgress) -> Callable[[], bool]:
    """Whether a dataflow has committed everything that is in its source."""
    return lambda: flow.lag() == 0
