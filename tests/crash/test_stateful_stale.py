"""An owner whose query has ended, because a later owner has moved its checkpoint, is told that it is stale wherever it
asks the query: anything else would end its worker, with all other tasks that it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from scribengin.dataflow.round.stateful import StatefulRunner
from scribengin.errors import SparkUnavailable, StaleOwner
from tests.crash.counting_query import CountingQuery
from tests.crash.test_stateful_crashes import Case, Logs


def has_ended(_query: CountingQuery) -> NoReturn:
    raise SparkUnavailable("the query has ended: its checkpoint is gone")


@pytest.mark.parametrize(
    ("asked", "ask"),
    [
        ("has_batch", StatefulRunner.run_round),
        ("has_batch", lambda runner: runner.wait(0.0)),
        ("state", StatefulRunner.state),
    ],
    ids=["a round", "waiting", "its state"],
)
def test_who_asks_a_query_that_a_later_owner_has_ended_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, ask: Callable[[StatefulRunner], object]
) -> None:
    place = Case(tmp_path, Logs)
    with place.idle_owner() as runner:
        with monkeypatch.context() as patch:
            patch.setattr(CountingQuery, asked, has_ended)
            with pytest.raises(SparkUnavailable):
                ask(runner)  # nobody else has it
        place.own_to_the_end(2)
        monkeypatch.setattr(CountingQuery, asked, has_ended)
        with pytest.raises(StaleOwner):
            ask(runner)
