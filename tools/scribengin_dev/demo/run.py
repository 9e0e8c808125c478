"""The demo itself, step by step. Everything that it says at its end was read back from the outputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.registry.view import DataflowView
from scribengin_dev.demo.audit import read_files, read_logs
from scribengin_dev.demo.flights import LOGS, static_tables
from scribengin_dev.demo.report import OutputRow, average_delays
from scribengin_dev.demo.steps import DATAFLOWS, FIRST_RECORDS, DemoResult, DemoSteps, last_commit_ms, through
from scribengin_dev.demo.verdict import compare
from scribengin_dev.harness.producer import Producer
from scribengin_dev.harness.progress import FlowProgress

DELAYS, NAMES = "flight_delays", "flight_names"

_YEAR_S = 45.0


@dataclass(slots=True)
class Demo(DemoSteps):
    """One run."""

    def run(self) -> DemoResult:
        """Do everything. Raises DataflowError when a dataflow fails or something does not happen in time."""
        logs = [f"flights/{k}" for k in range(LOGS)]
        for log in logs:
            self.place.namespace.create(log)
        batches = [self.flights.records(k) for k in range(LOGS)]
        producer = self.producer(logs, batches, _YEAR_S)
        delays_config, names_config = self._submit()
        with (
            FlowProgress(self.place, delays_config, "flights") as delays,
            FlowProgress(self.place, names_config, "delayed") as names,
        ):
            try:
                self.await_workers(delays, delays_config)
                self.await_workers(names, names_config)
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

    def _produce(self, producer: Producer, delays: FlowProgress, names: FlowProgress) -> None:
        """Append everything at the producer's pace, and kill half way."""
        producer.start()
        self.display.say("appending the first flights, for Spark to warm up")
        first = self.flights.first(LOGS * FIRST_RECORDS)

        def warm() -> bool:
            return delays.consumed() >= len(first) and names.consumed() >= len(first.delayed())

        self._follow(warm, producer, delays, names, "the first rounds")
        producer.go_on()
        self.display.say(f"appending {producer.total:,} flights to flights/0 ... flights/{LOGS - 1}")
        self._follow(lambda: 2 * producer.appended >= producer.total, producer, delays, names, "half of the flights")
        self.kill_of(DELAYS)
        self._follow(lambda: producer.done, producer, delays, names, "all flights to be appended")
        self.display.say("all flights are appended")

    def _drain(self, producer: Producer, delays: FlowProgress, names: FlowProgress) -> None:
        """Until everything is through. All of the second dataflow's input is there once the first one has stopped."""
        for flow in (delays, names):
            self._follow(through(flow), producer, delays, names, f"{flow.dataflow} to read everything")
            self.stop(flow.dataflow)
        self.display.hide()

    def _follow(
        self, done: Callable[[], bool], producer: Producer, delays: FlowProgress, names: FlowProgress, what: str
    ) -> None:
        expected = len(self.flights.delayed())
        self.follow(
            done,
            producer,
            (delays, names),
            lambda: {
                f"read by {DELAYS}": (delays.consumed(), producer.total),
                f"read by {NAMES}": (names.consumed(), expected),
            },
            what,
        )

    # -- measuring

    def _measure(self, producer: Producer, delays: FlowProgress, names: FlowProgress) -> DemoResult:
        self.display.say("reading the outputs back")
        airlines, planes = static_tables()
        namespace = self.place.namespace
        flights, delayed, named = (read_logs(namespace, prefix) for prefix in ("flights/", "delayed/", "named/"))
        cancelled = read_files(self._cancelled)
        begun_ms = producer.begun_ms or 0
        delays_s, names_s = ((last_commit_ms(flow) - begun_ms) / 1000 for flow in (delays, names))
        appended = compare("log flights/*", self.flights.appended(), flights)
        outputs = (
            OutputRow(len(self.flights), appended, producer.took_s),
            OutputRow(len(flights), compare("log delayed/*", self.flights.delayed(), delayed), delays_s),
            OutputRow(len(flights), compare("files cancelled", self.flights.cancelled(), cancelled), delays_s),
            OutputRow(len(delayed), compare("log named/*", self.flights.named(airlines, planes), named), names_s),
        )
        timeout_s = DataflowView(self.place.registry, DELAYS).config().value.session_timeout_s
        return DemoResult(outputs, tuple(self.standstills(delays)), average_delays(named), timeout_s)

    @property
    def _cancelled(self) -> str:
        """What the file sink writes: a path or URL of a directory."""
        return f"{self.place.containers.files}/cancelled"
