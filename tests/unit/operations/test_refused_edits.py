"""A config that a master has refused stands in its node: any edit replaces it, also one that goes back to what is in
force."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scribengin.dataflow.registry.config_node import config_to_bytes
from scribengin.dataflow.registry.descriptors import ConfigEdit
from scribengin.dataflow.registry.edit_log import outcome_operations
from scribengin.dataflow.registry.view import DataflowView
from scribengin.operations.editing import edit_config, rolled_back
from tests.unit.submitted import CONFIG, submitted


@pytest.fixture
def flow() -> Iterator[DataflowView]:
    with submitted() as view:
        yield view


@pytest.mark.parametrize(
    "text", [b"", b"{", config_to_bytes(CONFIG.model_copy(update={"sql": "SELECT 1"}))], ids=["empty", "cut", "refused"]
)
def test_what_was_refused_goes_when_the_config_in_force_is_written_again(flow: DataflowView, text: bytes) -> None:
    """Else `status` would speak of it until somebody changed something else."""
    flow.registry.set(flow.paths.config, text)
    flow.registry.commit(outcome_operations(flow, ConfigEdit(version=1, at_ms=5, outcome="refused", error="no")))
    back = edit_config(flow, rolled_back(flow, 0))
    assert (back.written, back.version) == (True, 2)
    assert flow.config().value == CONFIG
    again = edit_config(flow, rolled_back(flow, 0))
    assert (again.written, again.version) == (False, 2), "now it is like that"
