"""A task with state that goes to another owner behind each of its rounds, none of whom dies (counting_query.py)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from scribengin_registry.contract import Registry
from tests.crash.counting_query import CountingTransform
from tests.crash.test_stateful_crashes import Case, Logs, Silent
from tests.integration.owners import owners_with_state


@pytest.mark.parametrize("places", [Logs, Silent])
def test_a_task_that_is_handed_over_behind_each_round_gives_out_the_same(
    tmp_path: Path, places: Callable[[Registry], Logs]
) -> None:
    """Also what a batch has made due, which its query sees to only if it was the same that ran it."""
    case = Case(tmp_path / "undisturbed", places)
    case.own_to_the_end(1)
    expected = case.delivered()
    case = Case(tmp_path / "handed over", places)
    for generation in itertools.count(1):
        with case.open() as resources:
            [runner] = owners_with_state(case.registry, resources, CountingTransform(), generation)
            with closing(runner):
                runner.take_over()
                outcome = runner.run_round()
                runner.release()
        if outcome is None:
            break
    assert case.delivered() == expected
