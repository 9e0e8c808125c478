"""What a worker says of itself over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import TaskReport, WorkerReport
from scribengin.monitoring.metrics import WorkerSeries
from scribengin.monitoring.server import Health, served
from scribengin.monitoring.stalled import stalled_tasks


@contextmanager
def monitored(config: DataflowConfig, worker: str, reports: Callable[[], Sequence[TaskReport]]) -> Iterator[str | None]:
    """Serve metrics and health if the config asks for it, and yield where."""
    if config.metrics_port is None:
        yield None
        return
    server = served(config.metrics_host, config.metrics_port, lambda: worker_health(config, worker, reports()))
    if server is None:
        yield None
        return
    series = WorkerSeries(config.name, reports)
    try:
        yield server.url
    finally:
        series.close()
        server.close()


def worker_health(config: DataflowConfig, worker: str, tasks: Sequence[TaskReport]) -> Health:
    """Well, unless a task is stalled. Pure: the reports are of now."""
    report = WorkerReport(worker=worker, written_ms=0, tasks=tuple(tasks))
    stalled = stalled_tasks(report, 0, config.stalled_after_s)
    errors = {task.task: task.error for task in tasks}
    words = {
        "status": "stalled" if stalled else "ok",
        "dataflow": config.name,
        "worker": worker,
        "tasks": len(tasks),
        "stalled": [{"task": t, "behind_s": round(s, 1), "error": errors[t]} for t, s in stalled.items()],
    }
    return Health(well=not stalled, words=words)
