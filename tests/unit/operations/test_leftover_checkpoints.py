"""State that `registry check` comes across, and that may be of another registry."""

from __future__ import annotations

import os
from pathlib import Path

from scribengin.dataflow.config import StateConfig
from scribengin.dataflow.round.checkpoints import MARKER, checkpoints_of
from scribengin.operations.registry.leftovers import SETTLED_S, leftovers
from scribengin.testing.memory.registry import MemoryEnsemble


def test_a_registry_that_has_nothing_takes_no_state_for_its_own(tmp_path: Path) -> None:
    """Old checkpoints do not say of which registry they are: they may be those of a dataflow that runs elsewhere."""
    state = StateConfig(checkpoints=str(tmp_path / "state"))
    checkpoints_of("flow", "task-0", state).begin(1, 2)
    [marker] = (tmp_path / "state").rglob(MARKER)
    aged_s = marker.stat().st_mtime - 2 * SETTLED_S
    os.utime(marker, (aged_s, aged_s))
    with MemoryEnsemble().connect() as empty:
        assert [one.line for one in leftovers(empty, tmp_path)] == []
