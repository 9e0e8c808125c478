"""The demo itself, step by step. Everything that it says at its end was read back from the outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scribengin.base.text.counting import many
from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.registry.view import DataflowView
from scribengin_dev.demo.audit import read_files, read_logs
from scribengin_dev.demo.flights import LOGS, Flights, static_tables
from scribengin_dev.demo.report import OutputRow, average_delays
from scribengin_dev.demo.steps import DATAFLOWS, FIRST_RECORDS, DemoResult, DemoSteps, through
from scribengin_dev.demo.verdict import compare
from scribengin_dev.harness.producer import Feed
from scribengin_dev.harness.progress import FlowProgress, last_commit_ms

DELAYS, NAMES = "flight_delays", "flight_names"

YEAR_S = 45.0
_LOGS = "flights/"


@dataclass(slots=True)
class Demo(DemoSteps):
    """One run."""

    def run(self) -> DemoResult:
        """Do everything. Raises DataflowError when a dataflow fails or something does not happen in time."""
        producer = self.feed()
        try:
            delays_config, names_config = self._submit()
            with (
                FlowProgress(self.place, delays_config, "flights", grows=self.grows) as delays,
                FlowProgress(self.place, names_config, "delayed", grows=self.grows) as names,
            ):
                self.await_workers(delays, delays_config)
                self.await_workers(names, names_config)
                self._produce(producer, delays, names)
                self._drain(producer, delays, names)
                return self._measure(producer, delays, names)
        finally:
            producer.stop()

    def feed(self) -> Feed:
        """What appends the flights: to four logs, from when it is started."""
        logs = [f"{_LOGS}{k}" for k in range(LOGS)]
        for log in logs:
            self.place.namespace.create(log)
        return self.producer(logs, [self.flights.records(k) for k in range(LOGS)], YEAR_S)

    @property
    def grows(self) -> bool:
        """Whether more streams come while it runs."""
        return False

    @property
    def appended_to(self) -> tuple[str, str]:
        """What has the flights in the end: as the table says it, and how the names of its logs begin."""
        return "log flights/*", _LOGS

    def source(self) -> Mapping[str, str]:
        """What else than logs flight_delays reads, as settings of its description."""
        return {}

    def first(self) -> Flights:
        """The flights that are there before the others, for Spark to warm up."""
        return self.flights.first(LOGS * FIRST_RECORDS)

    def _submit(self) -> tuple[DataflowConfig, DataflowConfig]:
        launcher = {"launcher": self.place.containers.launcher}
        if self.place.containers.memory_mb is not None:
            launcher["container.memory_mb"] = str(self.place.containers.memory_mb)
        if self.place.containers.environment:
            launcher["yarn.environment"] = json.dumps(self.place.containers.environment)
        cancelled = {"sinks.cancelled.path": json.dumps(self._cancelled)}
        delays = load_config(DATAFLOWS / DELAYS, {**cancelled, **self.source(), **launcher})
        names = load_config(DATAFLOWS / NAMES, launcher)
        for config in (delays, names):
            self.place.submit(config)
            self.display.say(f"submitted {config.name}: {many(config.workers, 'worker')}")
        self.display.say("masters start their workers now, and each worker starts Spark: that may take a minute")
        return delays, names

    def _produce(self, producer: Feed, delays: FlowProgress, names: FlowProgress) -> None:
        """Append everything at the producer's pace, and kill half way."""
        producer.start()
        self.display.say("appending the first flights, for Spark to warm up")
        first = self.first()

        def warm() -> bool:
            return delays.consumed() >= len(first) and names.consumed() >= len(first.delayed())

        self._follow(warm, producer, delays, names, "the first rounds")
        producer.go_on()
        self.display.say(f"appending {producer.total:,} flights")
        self.while_it_appends(producer, lambda done, what: self._follow(done, producer, delays, names, what))
        self._follow(lambda: producer.done, producer, delays, names, "all flights to be appended")
        self.display.say("all flights are appended")

    def while_it_appends(self, producer: Feed, follow: Callable[[Callable[[], bool], str], None]) -> None:
        """Kill whom the command line says half way; `follow` waits until something is so."""
        follow(lambda: 2 * producer.appended >= producer.total, "half of the flights")
        self.kill_of(DELAYS)

    def _drain(self, producer: Feed, delays: FlowProgress, names: FlowProgress) -> None:
        """Until everything is through. All of the second dataflow's input is there once the first one has stopped."""
        for flow in (delays, names):
            self._follow(through(flow), producer, delays, names, f"{flow.dataflow} to read everything")
            self.stop(flow.dataflow)
        self.display.hide()

    def _follow(
        self, done: Callable[[], bool], producer: Feed, delays: FlowProgress, names: FlowProgress, what: str
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

    def _measure(self, producer: Feed, delays: FlowProgress, names: FlowProgress) -> DemoResult:
        self.display.say("reading the outputs back")
        airlines, planes = static_tables()
        namespace = self.place.namespace
        appended_to, prefix = self.appended_to
        prefixes = (prefix, "delayed/", "named/")
        flights, delayed, named = (read_logs(namespace, prefix) for prefix in prefixes)
        cancelled = read_files(self._cancelled)
        begun_ms = producer.begun_ms or 0
        delays_s, names_s = ((last_commit_ms(flow) - begun_ms) / 1000 for flow in (delays, names))
        appended = compare(appended_to, self.flights.appended(), flights)
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
