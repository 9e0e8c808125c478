"""A task with state whose registry, or whose config, is not the one that a batch was committed with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scribengin.dataflow.config import ErrorsConfig
from scribengin.errors import CheckpointMismatch, TransformationFailed
from scribengin.worker.failures import Remedy, remedy_for
from tests.crash.passings import Died, at, die
from tests.crash.test_stateful_crashes import Case, Logs, Routed
from tests.registry_copies import restore, saved


def test_a_checkpoint_of_owners_whom_the_registry_has_forgotten_stops_the_task(tmp_path: Path) -> None:
    """It is no later owner's: then the task would be left to that one, and nobody had it."""
    case = Case(tmp_path, Logs)
    case.own_to_the_end(1)
    before = saved(case.registry, "/scribengin")
    delivered = case.delivered()
    for generation in (2, 3):
        case.own_to_the_end(generation)
    restore(case.registry, before)
    with pytest.raises(CheckpointMismatch, match="know of no such owner: one of the two was brought back") as refused:
        case.own_to_the_end(2)
    assert remedy_for(refused.value).remedy is Remedy.FAIL
    assert case.delivered() == delivered


@pytest.mark.parametrize(
    "errors",
    [{"action": "stop", "sink": None}, {"action": "route", "sink": "bad", "records_max": 1}],
    ids=["they stop the task", "fewer have a route"],
)
def test_a_batch_that_is_committed_without_bad_records_runs_again_whatever_is_to_become_of_others(
    tmp_path: Path, errors: dict[str, Any]
) -> None:
    case = Case(tmp_path, Routed, ("!!ab",))
    with at(("round.commit:after", 1), die), pytest.raises(Died):
        case.own_to_the_end(1)
    case.config = case.config.model_copy(update={"errors": ErrorsConfig.model_validate(errors)})
    case.own_to_the_end(2)
    assert case.delivered() == ["a 1", "b 1", "closed 2", *["! is bad: no key"] * 2]


def test_what_comes_after_it_stops_the_task(tmp_path: Path) -> None:
    case = Case(tmp_path, Routed, ("!!a!",))
    with at(("round.commit:after", 1), die), pytest.raises(Died):
        case.own_to_the_end(1)
    case.config = case.config.model_copy(update={"errors": ErrorsConfig.model_validate({"action": "stop"})})
    with pytest.raises(TransformationFailed, match="no key"):
        case.own_to_the_end(2)
    assert case.delivered() == ["! is bad: no key"] * 2
