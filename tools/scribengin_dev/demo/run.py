"""The demo itself, step by step. Everything that it says at its end was read back from the outputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import pandas as pd

from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin_dev.demo.audit import read_files, read_logs
from scribengin_dev.demo.display import Display
from scribengin_dev.demo.flights import LOGS, Flights, static_tables
from scribengin_dev.demo.report import OutputRow, Standstill
from scribengin_dev.demo.verdict import compare
from scribengin_dev.harness.casualties import Casualty, kill_machine, kill_master, kill_worker, working_workers
from scribengin_dev.harness.installation import Installation
from scribengin_dev.harness.producer import Producer
from scribengin_dev.harness.progress import FlowProgress
from scribengin_dev.harness.standstill import gap_around_ms, longest_gap_ms, of_stream

DELAYS, NAMES = "flight_delays", "flight_names"
DATAFLOWS = Path(__file__).resolve().parents[3] / "dataflows"
Kill = Literal["worker", "master", "both", "machine", "none"]

_START_TIMEOUT_S = 900.0
_WORK_TIMEOUT_S = 900.0
_ALL_RECORDS_S = 45.0
_PRODUCING_S_MIN = 12.0
_FIRST_RECORDS = 250
_ALL_RECORDS = 336_776


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo found. `named` is the second dataflow's output, for the chart."""

    outputs: tuple[OutputRow, ...]
    standstills: tuple[Standstill, ...]
    named: pd.DataFrame

    @property
    def exact(self) -> bool:
        """Nothing lost, nothing twice, nothing else."""
        return all(output.verdict.exact for output in self.outputs)


@dataclass(slots=True)
class Demo:
    """One run."""

    place: Installation
    flights: Flights
    kill: Kill
    display: Display
    _casualties: list[Casualty] = field(default_factory=list)

    def run(self) -> DemoResult:
        """Do everything. Raises DataflowError when a dataflow fails or something does not happen in time."""
        logs = [f"flights/{k}" for k in range(LOGS)]
        for log in logs:
            self.place.namespace.create(log)
        batches = [self.flights.records(k) for k in range(LOGS)]
        duration_s = max(_PRODUCING_S_MIN, _ALL_RECORDS_S * len(self.flights) / _ALL_RECORDS)
        producer = Producer(
            self.place.namespace, logs, batches, first=_FIRST_RECORDS, duration_s=duration_s, clock=self.place.clock
        )
        delays_config, names_config = self._submit()
        with (
            FlowProgress(self.place, delays_config, "flights") as delays,
            FlowProgress(self.place, names_config, "delayed") as names,
        ):
            try:
                self._await_workers(delays, delays_config)
                self._await_workers(names, names_config)
                self._produce(producer, delays, names)
                self._drain(producer, delays, names)
            finally:
                producer.stop()
            return self._measure(producer, delays, names)

    def _submit(self) -> tuple[DataflowConfig, DataflowConfig]:
        launcher = {"launcher": self.place.containers.launcher}
        if self.place.containers.environment:
            launcher["yarn.environment"] = json.dumps(self.place.containers.environment)
        delays = load_config(DATAFLOWS / DELAYS, {"sinks.cancelled.path": json.dumps(self._cancelled), **launcher})
        names = load_config(DATAFLOWS / NAMES, launcher)
        for config in (delays, names):
            self.place.submit(config)
            workers = "1 worker" if config.workers == 1 else f"{config.workers} workers"
            self.display.say(f"submitted {config.name}: {workers}, {LOGS} tasks")
        self.display.say("masters start their workers now, and each worker starts Spark: that may take a minute")
        return delays, names

    def _await_workers(self, flow: FlowProgress, config: DataflowConfig) -> None:
        """Until every worker has tasks, and every task has an owner."""

        def working() -> bool:
            self.place.check(flow.dataflow)
            flow.commits.check()
            taken_over = {commit.stream for commit in flow.commits.seen()} & set(flow.streams)
            self.display.show({f"tasks taken over of {flow.dataflow}": (len(taken_over), len(flow.streams))})
            ready = len(working_workers(self.place, flow.dataflow)) >= config.workers
            return ready and len(taken_over) == len(flow.streams)

        self.place.wait_until(working, _START_TIMEOUT_S, f"the workers of {flow.dataflow}")
        self.display.say(f"{flow.dataflow} runs: its workers have taken over all tasks")

    def _produce(self, producer: Producer, delays: FlowProgress, names: FlowProgress) -> None:
        """Append everything at the producer's pace, and kill half way."""
        producer.start()
        self.display.say("appending the first flights, for Spark to warm up")
        first = self.flights.first(LOGS * _FIRST_RECORDS)

        def warm() -> bool:
            return delays.consumed() >= len(first) and names.consumed() >= len(first.delayed())

        self._follow(warm, producer, delays, names, "the first rounds")
        producer.go_on()
        self.display.say(f"appending {producer.total:,} flights to flights/0 ... flights/{LOGS - 1}")
        self._follow(lambda: 2 * producer.appended >= producer.total, producer, delays, names, "half of the flights")
        if self.kill in ("master", "both"):
            self._record_death(kill_master(self.place, DELAYS), "master")
        if self.kill in ("worker", "both"):
            self._record_death(kill_worker(self.place, DELAYS), "worker")
        if self.kill == "machine":
            self._record_death(kill_machine(self.place, DELAYS), "machine")
        self._follow(lambda: producer.done, producer, delays, names, "all flights to be appended")
        self.display.say("all flights are appended")

    def _record_death(self, casualty: Casualty, what: str) -> None:
        self._casualties.append(casualty)
        had = f", which had the tasks {', '.join(casualty.tasks)}" if casualty.tasks else ""
        self.display.say(f"killed the {what} {casualty.name} (pid {casualty.pid}) with SIGKILL{had}", "bold red")

    def _drain(self, producer: Producer, delays: FlowProgress, names: FlowProgress) -> None:
        """Until everything is through. All of the second dataflow's input is there once the first one has stopped."""
        for flow in (delays, names):
            what = f"{flow.dataflow} to read everything"
            self._follow(partial(_through, flow), producer, delays, names, what)
            self.place.desire(flow.dataflow, "stopped")
            self.place.await_state(flow.dataflow, "stopped", timeout_s=_WORK_TIMEOUT_S)
            self.display.say(f"{flow.dataflow} has read everything and stopped")
        self.display.hide()

    def _follow(
        self, done: Callable[[], bool], producer: Producer, delays: FlowProgress, names: FlowProgress, what: str
    ) -> None:
        """Wait for `done`, showing how far things are, and raising what goes wrong meanwhile."""
        expected = len(self.flights.delayed())

        def look() -> bool:
            producer.check()
            for flow in (delays, names):
                self.place.check(flow.dataflow)
            self.display.show(
                {
                    "appended": (producer.appended, producer.total),
                    f"read by {DELAYS}": (delays.consumed(), producer.total),
                    f"read by {NAMES}": (names.consumed(), expected),
                }
            )
            return done()

        self.place.wait_until(look, _WORK_TIMEOUT_S, what)

    # -- measuring

    def _measure(self, producer: Producer, delays: FlowProgress, names: FlowProgress) -> DemoResult:
        self.display.say("reading the outputs back")
        airlines, planes = static_tables()
        namespace = self.place.namespace
        flights, delayed, named = (read_logs(namespace, prefix) for prefix in ("flights/", "delayed/", "named/"))
        cancelled = read_files(self._cancelled)
        begun_ms = producer.begun_ms or 0
        delays_s, names_s = ((_last_commit_ms(flow) - begun_ms) / 1000 for flow in (delays, names))
        appended = compare("log flights/*", self.flights.appended(), flights)
        outputs = (
            OutputRow(len(self.flights), appended, producer.took_s),
            OutputRow(len(flights), compare("log delayed/*", self.flights.delayed(), delayed), delays_s),
            OutputRow(len(flights), compare("files cancelled", self.flights.cancelled(), cancelled), delays_s),
            OutputRow(len(delayed), compare("log named/*", self.flights.named(airlines, planes), named), names_s),
        )
        return DemoResult(outputs, tuple(self._standstills(delays)), named)

    @property
    def _cancelled(self) -> str:
        """What the file sink writes: a path or URL of a directory."""
        return f"{self.place.containers.files}/cancelled"

    def _standstills(self, flow: FlowProgress) -> list[Standstill]:
        rounds = [of_stream(flow.commits.seen(), log) for log in flow.streams]
        bereft = {task for casualty in self._casualties for task in casualty.tasks}
        found = []
        for casualty in self._casualties:
            for commits in filter(None, rounds):
                task, stream = commits[0].task, commits[0].stream
                if task in casualty.tasks:
                    gap_ms = gap_around_ms(commits, casualty.at_ms)
                elif not casualty.tasks and task not in bereft:
                    gap_ms = longest_gap_ms(commits, casualty.at_ms)
                else:
                    continue
                found.append(Standstill(casualty.name, task, stream, gap_ms, task in casualty.tasks))
        return found


def _through(flow: FlowProgress) -> bool:
    return flow.lag() == 0


def _last_commit_ms(flow: FlowProgress) -> int:
    return max((commit.at_ms for commit in flow.commits.seen()), default=0)
