"""Whom the demo finds at work: also while a master replaces a worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scribengin.dataflow.registry.view import DataflowView
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_dev.harness.casualties import working_workers


def test_a_worker_that_goes_while_it_is_looked_at_has_no_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataflowView, "workers", lambda _view: ["worker-1"])
    monkeypatch.setattr(DataflowView, "lives", lambda _view, _worker: True)  # and its nodes are gone by the next look
    place: Any = SimpleNamespace(registry=MemoryEnsemble().connect())
    assert working_workers(place, "flights") == {}
