"""What a master says of itself, and of its dataflow, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scribengin.base.clock import Clock
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ScribenginError
from scribengin.monitoring.metrics import MasterSeries
from scribengin.monitoring.overview import DataflowOverview, build_overview, read_overview
from scribengin.monitoring.server import Health, served


@contextmanager
def monitored(view: DataflowView, master: str, leads: Callable[[], bool], clock: Clock) -> Iterator[str | None]:
    """Serve metrics and health if the config asks for it, and yield where. Raises ConfigInvalid."""
    config = view.config_in_force().value
    if config.metrics_port is None:
        yield None
        return

    def health() -> Health:
        if not leads():
            return Health(well=True, words={"status": "standby", "dataflow": view.dataflow, "master": master})
        try:
            return master_health(build_overview(read_overview(view), clock.now_ms()), master)
        except ScribenginError as error:
            words = {"status": "unknown", "dataflow": view.dataflow, "master": master, "error": str(error)}
            return Health(well=False, words=words)

    server = served(config.metrics_host, config.metrics_port, health)
    if server is None:
        yield None
        return
    series = MasterSeries(view.dataflow, leads, view.status)
    try:
        yield server.url
    finally:
        series.close()
        server.close()


def master_health(found: DataflowOverview, master: str) -> Health:
    """Well, unless the dataflow as a whole is stalled. Pure."""
    stalled = [task for task in found.tasks if task.stalled]
    words = {
        "status": "stalled" if found.state == "stalled" else "ok",
        "dataflow": found.dataflow,
        "master": master,
        "state": found.state,
        "workers": len(found.workers),
        "tasks": found.tasks_total,
        "stalled": [{"task": t.task, "worker": t.worker, "behind_s": t.behind_s, "error": t.error} for t in stalled],
    }
    return Health(well=found.state != "stalled", words=words)
