"""A restart compares with what is kept the very plan that workers will have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView
from scribengin.operations.restart import next_version
from scribengin.testing.memory.registry import MemoryEnsemble

FLOW: dict[str, Any] = {
    "name": "flow",
    "sources": {"src": {"kind": "log", "logs": "in/*"}},
    "sinks": {name: {"kind": "log", "log": name} for name in ("by_key", "by_channel")},
    "sql": {
        "by_key": "SELECT count(*) AS payload FROM src GROUP BY key",
        "by_channel": "SELECT count(*) AS payload FROM src GROUP BY channel",
    },
    "state": {},
}


def test_sinks_in_another_order_in_the_file_are_in_theirs_where_state_is_compared(tmp_path: Path) -> None:
    turned = {**FLOW, **{key: dict(reversed(FLOW[key].items())) for key in ("sinks", "sql")}}
    descriptor = tmp_path / "flow.yaml"
    descriptor.write_text(yaml.safe_dump(turned, sort_keys=False))
    with MemoryEnsemble().connect() as registry:
        view = DataflowView(registry, "flow")
        view.submit(DataflowConfig.parse(FLOW, source="the test"), [], SYSTEM_CLOCK.now_ms())
        base = view.config_to_edit().value
        restarted = next_version(view, base, str(descriptor), {"stalled_after_s": "9"})
    assert restarted.stalled_after_s == 9
    assert list(restarted.sinks) == list(restarted.statements()) == ["by_key", "by_channel"]
