"""The README's blocks about watching, run as they are printed, on dataflows that are written down in a registry."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import yaml

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin_registry.contract import Registry
from tests.house.readme import blocks_run_by
from tests.integration import test_readme_tour as tour
from tests.integration import watched

HERE = "tests/integration/test_readme_watching.py"
terminal = tour.terminal


def test_scripts_watch_as_it_is_printed(terminal: tour.Terminal, registry: Registry, registry_hosts: str) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    terminal.environment |= {
        "SCRIBENGIN_REGISTRY": registry_hosts,
        "PATH": f"{Path(sys.executable).parent}:{terminal.environment['PATH']}",
    }
    (block,) = blocks_run_by(f"{HERE}::test_scripts_watch_as_it_is_printed")
    terminal.run(block)
    assert terminal.shown["watch-once"].splitlines()[1].split()[:2] == ["flight_names", "stalled"]
    assert "round   plan 3 ms" in terminal.shown["watch-once"]
    found = json.loads((terminal.directory / "dataflows.json").read_text())
    assert [picture["dataflow"] for picture in found] == ["flight_delays", "flight_names", "heat_alarm"]


def test_the_web_page_is_served_as_it_is_printed(terminal: tour.Terminal, registry_hosts: str) -> None:
    terminal.environment |= {
        "SCRIBENGIN_REGISTRY": registry_hosts,
        "PATH": f"{Path(sys.executable).parent}:{terminal.environment['PATH']}",
    }
    (block,) = blocks_run_by(f"{HERE}::test_the_web_page_is_served_as_it_is_printed")
    terminal.run(block)
    assert re.match(r"http://127\.0\.0\.1:\d+/login#token=[\w-]+\n$", terminal.shown["watch-web"])


def test_the_keys_that_are_printed_are_keys() -> None:
    (block,) = blocks_run_by(f"{HERE}::test_the_keys_that_are_printed_are_keys")
    least = {
        "name": "hot",
        "sources": {"in": {"kind": "log", "logs": "in"}},
        "sinks": {"out": {"kind": "log", "log": "out"}},
        "sql": "SELECT payload FROM in",
    }
    config = DataflowConfig.parse({**least, **yaml.safe_load(block.text)}, source="README.md")
    assert (config.metrics_port, config.metrics_host, config.stalled_after_s) == (9400, "0.0.0.0", 120)
