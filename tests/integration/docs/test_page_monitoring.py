"""The page on watching, run as it is printed, on dataflows that are written down in a registry."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from prometheus_client import REGISTRY

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.registry.descriptors import DataflowStatus
from scribengin.log.metrics import LogMetrics, SegmentsPlaced
from scribengin.monitoring.metrics import MasterSeries, WorkerSeries
from scribengin_registry.contract import Registry
from tests.integration import watched
from tests.integration.docs.pages import stand_in_for_sandbox, terminal_in


def test_watching_runs_as_it_is_printed(tmp_path: Path, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    with terminal_in(tmp_path) as terminal:
        stand_in_for_sandbox(terminal, registry)
        terminal.run_page("docs/guide/monitoring.md")
    once = terminal.shown("scribengin monitor")
    assert once.splitlines()[1].split()[:2] == ["flight_names", "stalled"]
    assert "round   plan 3 ms" in once
    found = json.loads((terminal.directory / "dataflows.json").read_text())
    assert [picture["dataflow"] for picture in found] == ["flight_delays", "flight_names", "heat_alarm"]
    assert re.match(r"http://127\.0\.0\.1:\d+/login#token=[\w-]+\n$", terminal.shown("scribengin web"))
    check_alerts((terminal.directory / "alerts.yaml").read_text())


def check_alerts(text: str) -> None:
    """Alerts ask for series that there are."""
    worker = WorkerSeries("hot", lambda: [watched.task(0, lag=5)])
    status = DataflowStatus(dataflow="hot", state="running", config_version=0)
    master = MasterSeries("hot", lambda: True, lambda: status)
    log = LogMetrics("/logs", "log")
    log.placed(SegmentsPlaced(0, 0, 0, 0, None), lambda: 0)
    try:
        series = {sample.name for of in (worker, master) for family in of.collect() for sample in family.samples}
        series |= {sample.name for family in REGISTRY.collect() for sample in family.samples}
    finally:
        for one in (worker, master, log):
            one.close()
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    asked = {name for rule in rules for name in re.findall(r"scribengin_\w+", rule["expr"])}
    assert asked
    assert asked - series == set()
