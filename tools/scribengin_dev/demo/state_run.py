"""The demo of state: the chain of `dataflows/flights.yaml`, whose windows, sessions and join are held against pandas.

Whom the command line says is killed among the processes that count delays by hour and airline: what those had counted
is with their successor. Once all is through, one more flight a log and one more hour of weather close all windows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pandas as pd

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView
from scribengin.operations.chain.config import full_name, load_chain
from scribengin_dev.demo.audit import read_logs
from scribengin_dev.demo.flights import (
    LOGS,
    closed_weather,
    delays_by_hour,
    sessions,
    static_tables,
    weather_batch,
    weather_records,
    weathered,
)
from scribengin_dev.demo.report import OutputRow
from scribengin_dev.demo.steps import DATAFLOWS, DemoResult, DemoSteps, through
from scribengin_dev.demo.verdict import ID, compare
from scribengin_dev.harness.producer import Producer
from scribengin_dev.harness.progress import FlowProgress, last_commit_ms

CHAIN = "flights"
_LATE_DAYS = 60
"""What the demo waits for late flights. It sends days in a second, and a task that stands still falls back so far."""
_REST_HOURS = 12
_YEAR_S = 150.0
_CLOSING_TIMEOUT_S = 120.0
_SENT_TO = (*(f"flights/{k}" for k in range(LOGS)), "weather/0")


@dataclass(frozen=True, slots=True)
class _Output:
    """What the logs below `prefix` should hold; `key` tells its records apart, and `flow` writes them."""

    flow: str
    prefix: str
    expected: pd.DataFrame
    key: tuple[str, ...]


@dataclass(slots=True)
class StateDemo(DemoSteps):
    """One run."""

    _flows: dict[str, list[FlowProgress]] = field(default_factory=dict)
    """By the key of the chain's file, one for each source."""
    _sent: dict[str, int] = field(default_factory=dict)
    """How many records there will be, by source."""

    def run(self) -> DemoResult:
        """Do everything. Raises DataflowError when a dataflow fails or something does not happen in time."""
        weather = weather_records(self.flights)
        configs = self._submit()
        batches = [*(self.flights.records(k) for k in range(LOGS)), weather_batch(weather)]
        producer = self.producer(_SENT_TO, batches, _YEAR_S)
        outputs = self._expected(weather)
        self._sent = {"flights": len(self.flights), "delayed": len(self.flights.delayed()), "weather": len(weather)}
        with ExitStack() as following:
            for key, config in configs.items():
                self._flows[key] = [
                    following.enter_context(FlowProgress(self.place, config, source)) for source in config.sources
                ]
            following.callback(producer.stop)
            for key, config in configs.items():
                for flow in self._flows[key]:
                    self.await_workers(flow, config)
            self._produce(producer)
            self._read_all(producer)
            self._close_windows(weather)
            self._drain(producer, outputs)
            return self._measure(producer, outputs)

    def _submit(self) -> Mapping[str, DataflowConfig]:
        late_s = _LATE_DAYS * 86_400
        settings = {
            "delays.workers": 1,
            "delays.round.records_max": 2000,
            "delays.sinks.cancelled.path": f"{self.place.containers.files}/cancelled",
            "weather.state.watermarks.flights.delay_s": late_s,
            "weather.state.watermarks.weather.delay_s": late_s,
            "carriers.state.watermarks.delayed.delay_s": late_s,
            "aircraft.settings.late_hours": 24 * _LATE_DAYS,
            "aircraft.settings.rest_hours": _REST_HOURS,
        }
        chain = load_chain(DATAFLOWS / "flights.yaml", {key: json.dumps(value) for key, value in settings.items()})
        self.place.submit_chain(chain)
        self.display.say(f"submitted the chain {chain.name}: {', '.join(chain.dataflows)}")
        self.display.say("masters start their workers now, and each worker starts Spark: that may take a minute")
        return chain.dataflows

    def _expected(self, weather: pd.DataFrame) -> tuple[_Output, ...]:
        return (
            _Output("carriers", "hours/", delays_by_hour(self.flights), ("hour", "carrier")),
            _Output("aircraft", "sessions/", sessions(self.flights, _REST_HOURS), ("tailnum", "begins")),
            _Output("weather", "weathered/", weathered(self.flights, weather), (ID,)),
        )

    def _produce(self, producer: Producer) -> None:
        """Append everything at the producer's pace, and kill half way."""
        producer.start()
        self.display.say("appending the first flights, for Spark to warm up")
        self._follow(producer, lambda: self._consumed("carriers") > 0, "the first rounds")
        producer.go_on()
        self.display.say(f"appending {producer.total:,} flights and hours of weather")
        self._follow(producer, lambda: 2 * producer.appended >= producer.total, "half of the flights")
        self.kill_of(full_name(CHAIN, "carriers"))
        self._follow(producer, lambda: producer.done, "all flights to be appended")
        self.display.say("all flights are appended")

    def _read_all(self, producer: Producer) -> None:
        """Until everything is through, in the order of the chain."""
        for flows in self._flows.values():
            for flow in flows:
                self._follow(producer, through(flow), f"{flow.dataflow} to read everything")

    def _close_windows(self, weather: pd.DataFrame) -> None:
        """Not before everything is through: of a stream that is behind, records would be late."""
        closed = self.flights.closed(_LATE_DAYS + 2)
        last = [*(closed.records(k) for k in range(LOGS)), weather_batch(closed_weather(weather, closed))]
        for log, batch in zip(_SENT_TO, last, strict=True):
            with self.place.namespace.open_writer(log) as writer:
                writer.write_bulk(batch.slice(batch.num_rows - 1)).result()
        self.display.say("everything is read; the last windows close")

    def _drain(self, producer: Producer, outputs: Sequence[_Output]) -> None:
        """Until all windows have come out, or do not."""
        self._read_all(producer)
        given_up_s = self.place.clock.monotonic_s() + _CLOSING_TIMEOUT_S

        def closed() -> bool:
            missing = any(self._written(output) < len(output.expected) for output in outputs)
            return not missing or self.place.clock.monotonic_s() > given_up_s

        self._follow(producer, closed, "the last windows")
        for key in self._flows:
            self.stop(full_name(CHAIN, key))
        self.display.hide()

    def _follow(self, producer: Producer, done: Callable[[], bool], what: str) -> None:
        self.follow(done, producer, [flow for flows in self._flows.values() for flow in flows], self._counts, what)

    def _counts(self) -> Mapping[str, tuple[int, int]]:
        return {
            f"read by {key}": (self._consumed(key), sum(self._sent[flow.source] for flow in flows))
            for key, flows in self._flows.items()
        }

    def _consumed(self, key: str) -> int:
        return sum(flow.consumed() for flow in self._flows[key])

    def _written(self, output: _Output) -> int:
        namespace = self.place.namespace
        return sum(namespace.count(name) for name in namespace.names(output.prefix))

    def _measure(self, producer: Producer, outputs: Sequence[_Output]) -> DemoResult:
        self.display.say("reading the outputs back")
        begun_ms = producer.begun_ms or 0
        rows, found = [], {output.flow: read_logs(self.place.namespace, output.prefix) for output in outputs}
        for output in outputs:
            expected, written = (_keyed(table, output.key) for table in (output.expected, found[output.flow]))
            took_s = (max(map(last_commit_ms, self._flows[output.flow])) - begun_ms) / 1000
            verdict = compare(f"log {output.prefix}*", expected, written)
            rows.append(OutputRow(self._consumed(output.flow), verdict, took_s))
        (counted,) = self._flows["carriers"]
        timeout_s = DataflowView(self.place.registry, counted.dataflow).config().value.session_timeout_s
        return DemoResult(tuple(rows), tuple(self.standstills(counted)), _averages(found["carriers"]), timeout_s)


def _keyed(table: pd.DataFrame, key: Sequence[str]) -> pd.DataFrame:
    """With one column that tells the rows apart."""
    return table.assign(**{ID: table[list(key)].astype(str).agg(" ".join, axis=1)}) if len(table) else table


def _averages(hours: pd.DataFrame) -> list[tuple[str, float]]:
    """As `average_delays`, of the windows."""
    if not len(hours):
        return []
    airlines, _ = static_tables()
    sums = hours.merge(airlines, on="carrier").groupby("name")[["minutes", "flights"]].sum()
    means = (sums["minutes"] / sums["flights"]).sort_values(ascending=False)
    return [(str(airline), float(minutes)) for airline, minutes in means.items()]
