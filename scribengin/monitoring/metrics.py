"""What masters and workers tell Prometheus, on the client's default registry beside the log store's own series.

Counts are those of the reports, made when they are asked for: they begin at 0 when a worker takes a task over, which
Prometheus takes for a counter's reset, and a task's series go with its owner. Labels are bounded: a task shows at most
LAG_STREAMS_MAX streams and one more series for all others (source and stream empty), and a histogram has no task.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import REGISTRY, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scribengin.dataflow.registry.descriptors import DataflowStatus, TaskReport
from scribengin.dataflow.round.rounds import RoundOutcome
from scribengin.errors import ScribenginError

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_ROUND_SECONDS = Histogram(
    "scribengin_round_seconds", "Rounds that were committed, by phase.", ("dataflow", "phase"), buckets=_SECONDS
)
_TASK = ("dataflow", "task")
_STREAM = (*_TASK, "source", "stream")


def observe_round(dataflow: str, outcome: RoundOutcome) -> None:
    """A round of `dataflow` was committed in this process."""
    for phase, seconds in outcome.phases_s.items():
        _ROUND_SECONDS.labels(dataflow, phase).observe(seconds)


class _Series(Collector):
    """Series that are made when Prometheus asks, until `close`."""

    def __init__(self) -> None:
        REGISTRY.register(self)

    def describe(self) -> Iterator[Metric]:
        """Nothing: then nobody asks for the values just to learn the names."""
        return iter(())

    def close(self) -> None:
        """Stop showing them."""
        REGISTRY.unregister(self)


class WorkerSeries(_Series):
    """The series of a worker's tasks. `reports` is asked at every scrape, on the scraper's thread."""

    def __init__(self, dataflow: str, reports: Callable[[], Iterable[TaskReport]]) -> None:
        self._dataflow = dataflow
        self._reports = reports
        super().__init__()

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        reports = list(self._reports())
        yield self._counts("records_in", "Records read, in rounds that were committed.", reports)
        yield self._counts("records_out", "Records written, in rounds that were committed.", reports)
        yield self._counts("records_bad", "Records that could not be transformed.", reports)
        yield self._counts("rounds", "Rounds that were committed.", reports)
        yield self._counts("failures", "Rounds and take-overs that went wrong.", reports, "task_failures")
        yield self._commits(reports)
        yield self._lag(reports)
        yield self._lag_ages(reports)
        yield from self._state(reports)

    def _counts(self, field: str, text: str, reports: Iterable[TaskReport], name: str | None = None) -> Metric:
        family = CounterMetricFamily(f"scribengin_{name or field}", text, labels=_TASK)
        for report in reports:
            family.add_metric((self._dataflow, report.task), getattr(report, field))
        return family

    def _commits(self, reports: Iterable[TaskReport]) -> Metric:
        family = GaugeMetricFamily(
            "scribengin_last_commit_timestamp_seconds", "When a round was last committed.", labels=_TASK
        )
        for report in reports:
            if report.last_commit_ms is not None:
                family.add_metric((self._dataflow, report.task), report.last_commit_ms / 1000)
        return family

    def _lag(self, reports: Iterable[TaskReport]) -> Metric:
        family = GaugeMetricFamily("scribengin_lag_records", "Records that have still to be read.", labels=_STREAM)
        for report in reports:
            task = (self._dataflow, report.task)
            for stream in report.lag:
                family.add_metric((*task, stream.source, stream.stream), stream.records)
            others = (report.lag_records or 0) - sum(stream.records for stream in report.lag)
            if others:
                family.add_metric((*task, "", ""), others)
        return family

    def _lag_ages(self, reports: Iterable[TaskReport]) -> Metric:
        family = GaugeMetricFamily(
            "scribengin_lag_age_seconds",
            "How long ago the lag was looked up: not at all before the first look.",
            labels=_TASK,
        )
        for report in reports:
            if report.lag_age_s is not None:
                family.add_metric((self._dataflow, report.task), report.lag_age_s)
        return family

    def _state(self, reports: Iterable[TaskReport]) -> Iterator[Metric]:
        """What tasks with state keep."""
        rows = GaugeMetricFamily("scribengin_state_rows", "Rows of state, by operator.", labels=(*_TASK, "operator"))
        size = GaugeMetricFamily("scribengin_state_bytes", "State on disk and in memory.", labels=_TASK)
        late = CounterMetricFamily(
            "scribengin_late_rows", "Rows that came later than the watermark, and were dropped.", labels=_TASK
        )
        routed = CounterMetricFamily(
            "scribengin_late_rows_routed", "Records that went to the sink for late ones.", labels=_TASK
        )
        watermark = GaugeMetricFamily(
            "scribengin_watermark_timestamp_seconds",
            "The watermark, with the source that holds it back.",
            labels=(*_TASK, "source"),
        )
        for report in reports:
            if report.kept is None:
                continue
            task = (self._dataflow, report.task)
            for operator, count in report.kept.rows.items():
                rows.add_metric((*task, operator), count)
            size.add_metric(task, report.kept.bytes)
            late.add_metric(task, report.kept.late)
            routed.add_metric(task, report.kept.late_routed)
            if report.kept.watermark_ms is not None:
                watermark.add_metric((*task, report.kept.held_back_by or ""), report.kept.watermark_ms / 1000)
        yield from (rows, size, late, routed, watermark)


class MasterSeries(_Series):
    """The series of a master: whether it leads, and what its dataflow has, as the status in the registry says.

    `leads` and `status` are asked at every scrape. While the registry is away there is only the flag.
    """

    def __init__(self, dataflow: str, leads: Callable[[], bool], status: Callable[[], DataflowStatus]) -> None:
        self._dataflow = dataflow
        self._leads = leads
        self._status = status
        super().__init__()

    def collect(self) -> Iterator[Metric]:
        """All of them; of a master that does not lead, the flag."""
        leads = self._leads()
        yield self._gauge("leader", "1: this master leads its dataflow; 0: it waits behind another one.", int(leads))
        if not leads:
            return
        try:
            status = self._status()
        except ScribenginError:
            return
        yield self._gauge("workers", "Workers, also those that start or end.", len(status.workers))
        yield self._tasks(status)

    def _gauge(self, name: str, text: str, value: int) -> Metric:
        family = GaugeMetricFamily(f"scribengin_{name}", text, labels=("dataflow",))
        family.add_metric((self._dataflow,), value)
        return family

    def _tasks(self, status: DataflowStatus) -> Metric:
        unassigned = set(status.tasks_unassigned)
        states: Multiset[str] = Multiset(task.state for task in status.tasks if task.task not in unassigned)
        states["unassigned"] = len(unassigned)
        states["untold"] = max(0, status.tasks_total - states.total())
        family = GaugeMetricFamily(
            "scribengin_tasks", "Tasks by state; untold: not reported of yet.", labels=("dataflow", "state")
        )
        for state, count in sorted(states.items()):
            family.add_metric((self._dataflow, state), count)
        return family
