"""The page on Dafka, run as it is printed."""

from __future__ import annotations

from pathlib import Path

from scribengin.base.text.yaml_text import parse_yaml
from scribengin.dataflow.config import DataflowConfig
from scribengin_registry.contract import Registry
from tests.integration.docs.pages import end_background, stand_in_for_sandbox, terminal_in


def test_dafka_runs_as_it_is_printed(tmp_path: Path, registry: Registry) -> None:
    with terminal_in(tmp_path) as terminal:
        stand_in_for_sandbox(terminal, registry)
        try:
            terminal.run_page("docs/guide/dafka.md")
            flow = (terminal.directory / "quiet.yaml").read_text()
        finally:
            end_background(terminal)
    config = DataflowConfig.parse(parse_yaml(flow, source="quiet.yaml"), source="quiet.yaml")
    assert {config.sources["arrivals"].kind, config.sinks["quiet"].kind} == {"dafka"}
