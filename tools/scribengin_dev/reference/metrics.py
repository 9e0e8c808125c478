"""Every series that Prometheus is told: asked of the collectors themselves, with one of everything to tell."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import REGISTRY
from prometheus_client.core import Metric

from scribengin.dataflow.registry.descriptors import DataflowStatus, StreamLag, TaskReport
from scribengin.dataflow.round.rounds import RoundOutcome
from scribengin.log.metrics import LogMetrics, ReaderLag, ReaderLagCollector, SegmentsPlaced
from scribengin.monitoring.metrics import MasterSeries, WorkerSeries, observe_round

_OURS = "scribengin_"
_HEAD = """# Metrics

Made from the code by `python -m scribengin_dev.reference`. Masters and workers serve `/metrics` where `metrics_port` of
the [descriptor](dataflow.md) says so. The series of logs are on prometheus-client's default registry of every process
that has a log open. A histogram has the series `_bucket`, `_sum` and `_count`.

| series | type | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """The whole page, as Markdown."""
    return _HEAD + "".join(f"{_row(family)}\n" for family in sorted(_families(), key=lambda one: one.name))


def _row(family: Metric) -> str:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
    return f"| `{name}` | {family.type} | {', '.join(f'`{one}`' for one in labels)} | {family.documentation} |"


def _families() -> Iterator[Metric]:
    """All families of ours. Their collectors have something to tell meanwhile, or there would be no labels."""
    report = TaskReport(
        task="task-0",
        generation=1,
        state="idle",
        lag_records=0,
        lag_age_s=0.0,
        last_commit_ms=0,
        lag=(StreamLag(source="source", stream="stream", records=0),),
    )
    status = DataflowStatus(dataflow="dataflow", state="running", config_version=0, tasks=(report,))
    observe_round("dataflow", RoundOutcome(0, {}, {}, 0, 0.0, 0.0, 0.0, 0.0, 0.0))
    log = LogMetrics("/logs", "log")
    log.placed(SegmentsPlaced(0, 0, 0, 0, None), lambda: 0)
    collectors = (
        log,
        WorkerSeries("dataflow", lambda: (report,)),
        MasterSeries("dataflow", lambda: True, lambda: status),
        ReaderLagCollector("/logs", lambda: (ReaderLag("log", "reader", 0),)),
    )
    try:
        yield from [family for family in REGISTRY.collect() if family.name.startswith(_OURS)]
    finally:
        for collector in collectors:
            collector.close()
