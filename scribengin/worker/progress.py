"""What a task's owner counts for its report: records, rates, lag, times, and for how long nothing has moved. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scribengin.dataflow.registry.descriptors import LAG_STREAMS_MAX, PhaseTimes, RoundTimes, StreamLag
from scribengin.dataflow.round.rounds import RoundOutcome
from scribengin.spark.transform.spec import StateReport

TaskFields = dict[str, object]
"""The fields of a TaskReport. It is made once it is told, and not each time that somebody looks whether it is to be."""
Flows = tuple[dict[str, float], dict[str, float]]
"""The rates of an EdgeRates: by source, and by sink."""
RATE_SPAN_S = 10.0
_RATE_AGE_MIN_S = 1.0
_MEAN_WEIGHT = 0.2


class SmoothedRate:
    """Something a second, as a mean in which what is RATE_SPAN_S old counts for a third (1/e)."""

    def __init__(self, now_s: float) -> None:
        self._begun_s = self._counted_s = now_s
        self._weighted = 0.0

    def add(self, count: int, now_s: float) -> None:
        """That many more."""
        self._weighted = self._decayed(now_s) + count
        self._counted_s = now_s

    def at(self, now_s: float) -> float:
        """The rate, to a tenth. What has just begun is divided by its own age, not by the span."""
        age_s = max(now_s - self._begun_s, _RATE_AGE_MIN_S)
        return round(self._decayed(now_s) / (RATE_SPAN_S * -math.expm1(-age_s / RATE_SPAN_S)), 1)

    def _decayed(self, now_s: float) -> float:
        return self._weighted * math.exp((self._counted_s - now_s) / RATE_SPAN_S)


class _RatesByName:
    """The rates of several things, all begun at the same time."""

    def __init__(self, now_s: float) -> None:
        self._begun_s = now_s
        self._rates: dict[str, SmoothedRate] = {}

    def add(self, counts: Mapping[str, int], now_s: float) -> None:
        for name, count in counts.items():
            self._rates.setdefault(name, SmoothedRate(self._begun_s)).add(count, now_s)

    def at(self, now_s: float) -> dict[str, float]:
        return {name: rate.at(now_s) for name, rate in self._rates.items()}


class Progress:
    """What one task did under one generation."""

    def __init__(self, now_s: float) -> None:
        self.rounds = self.records_in = self.records_out = self.records_bad = self.failures = 0
        self.last_commit_ms: int | None = None
        self.round_ms: float | None = None
        self.lag_records = self.lag_paused = 0
        self._looked_s: float | None = None
        self.times: RoundTimes | None = None
        self._lag: tuple[StreamLag, ...] = ()
        self._kept: StateReport | None = None
        self._read = _RatesByName(now_s)
        self._written = _RatesByName(now_s)
        self._moved_s = now_s

    def committed(self, outcome: RoundOutcome, now_ms: int, now_s: float) -> None:
        """A round was committed."""
        self.rounds += 1
        self.records_in += outcome.records_in
        self.records_out += outcome.records_out
        self.records_bad += outcome.records_bad
        self.round_ms = round(outcome.total_s * 1000, 3)
        self.last_commit_ms = now_ms
        self.times = _smoothed(self.times, outcome)
        self._read.add(outcome.read, now_s)
        self._written.add(outcome.written, now_s)
        self._moved_s = now_s

    def looked(self, lags: Sequence[StreamLag], now_s: float, kept: StateReport | None = None) -> None:
        """So far is the task behind, and that is what state it keeps."""
        self._kept = kept
        self._looked_s = now_s
        self.lag_records = sum(stream.records for stream in lags)
        self.lag_paused = sum(stream.records for stream in lags if stream.paused)
        self._lag = tuple(sorted(lags, key=lambda stream: -stream.records)[:LAG_STREAMS_MAX])
        if self.lag_records == self.lag_paused:
            self._moved_s = now_s

    def moved(self, now_s: float) -> None:
        """Something was done, and nothing was committed yet."""
        self._moved_s = now_s

    def flows(self, now_s: float) -> Flows:
        """Records a second, by source and by sink."""
        return self._read.at(now_s), self._written.at(now_s)

    def report(self, now_s: float, *, busy: bool) -> TaskFields:
        """The fields of a TaskReport that are counted here. `busy`: its owner is about something with it just now, or
        is going to be."""
        sources, sinks = self.flows(now_s)
        behind = busy or self.lag_records > self.lag_paused
        return {
            "rounds": self.rounds,
            "records_in": self.records_in,
            "records_out": self.records_out,
            "records_bad": self.records_bad,
            "lag_records": None if self._looked_s is None else self.lag_records,
            "lag_paused": self.lag_paused,
            "lag_age_s": None if self._looked_s is None else round(now_s - self._looked_s, 1),
            "last_commit_ms": self.last_commit_ms,
            "round_ms": self.round_ms,
            "failures": self.failures,
            "in_per_s": round(sum(sources.values()), 1),
            "out_per_s": round(sum(sinks.values()), 1),
            "behind_s": round(now_s - self._moved_s, 1) if behind else 0.0,
            "lag": self._lag,
            "times": self.times,
            "kept": self._kept,
        }


def _smoothed(before: RoundTimes | None, outcome: RoundOutcome) -> RoundTimes:
    last = {phase: seconds * 1000 for phase, seconds in outcome.phases_s.items()}
    mean = last if before is None else {p: _mean(getattr(before.mean, p), ms) for p, ms in last.items()}
    return RoundTimes(last=_times(last), mean=_times(mean))


def _mean(before: float, now: float) -> float:
    return before + _MEAN_WEIGHT * (now - before)


def _times(milliseconds: dict[str, float]) -> PhaseTimes:
    return PhaseTimes(**{phase: round(ms, 1) for phase, ms in milliseconds.items()})
