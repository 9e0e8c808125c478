"""What is done for a task's state to be in as many partitions as are wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from scribengin.dataflow.round.state.partitions import Divide, NameBatch, RunBatchFirst, TakeBack, next_step, way_back


@dataclass(frozen=True)
class Log:
    """A query's: by batch, into how many partitions state is divided; and which one was done last."""

    batches: tuple[int, ...]
    done: int
    keeps_state: bool = True

    @property
    def planned(self) -> int:
        return len(self.batches) - 1

    def partitions(self, number: int) -> int:
        return self.batches[number]

    def divides(self, number: int) -> bool:
        return number > 0 and self.batches[number] != self.batches[number - 1]


SETTLED = Log((2, 2), 1)
PLANNED = Log((2, 2), 0)
"""A batch of records is planned."""
BEGUN = Log((2, 2, 5), 1)
DIVIDED = Log((2, 2, 5), 2)


@pytest.mark.parametrize(
    ("named", "log", "wanted", "step"),
    [
        (-1, Log((), -1), 5, None),
        (1, SETTLED, None, None),
        (1, SETTLED, 2, None),
        (1, SETTLED, 5, Divide(5)),
        (0, PLANNED, 2, None),
        (0, PLANNED, 5, RunBatchFirst()),
        (1, PLANNED, 5, RunBatchFirst()),
        (-1, Log((2,), -1), 5, RunBatchFirst()),
        (1, BEGUN, 5, Divide(5)),
        (1, BEGUN, 2, TakeBack(2)),
        (1, BEGUN, 3, TakeBack(2)),
        (1, BEGUN, None, TakeBack(2)),
        (1, replace(BEGUN, keeps_state=False), 5, TakeBack(2)),
        (2, BEGUN, 5, Divide(5)),
        (2, BEGUN, 2, Divide(5)),
        (2, BEGUN, None, Divide(5)),
        (1, DIVIDED, 5, NameBatch(2)),
        (1, DIVIDED, 3, NameBatch(2)),
        (1, DIVIDED, None, NameBatch(2)),
        (2, DIVIDED, 5, None),
        (2, DIVIDED, 3, Divide(3)),
        (2, DIVIDED, None, None),
        (1, replace(SETTLED, keeps_state=False), 5, None),
        (0, replace(PLANNED, keeps_state=False), 5, None),
    ],
)
def test_the_next_step(named: int, log: Log, wanted: int | None, step: object) -> None:
    assert next_step(named, log, wanted) == step


@pytest.mark.parametrize(("named", "log"), [(0, SETTLED), (2, SETTLED), (0, BEGUN), (3, BEGUN), (0, DIVIDED)])
def test_where_the_log_and_the_commit_logs_contradict_each_other_nothing_is_done(named: int, log: Log) -> None:
    """Whoever takes over refuses that, with both sides."""
    assert next_step(named, log, 7) is None


@pytest.mark.parametrize(
    ("named", "log", "number"),
    [
        (1, SETTLED, 2),
        (1, BEGUN, 2),
        (2, DIVIDED, 5),
        (2, BEGUN, None),
    ],
)
def test_the_number_from_before_is_the_way_back_unless_the_batch_is_named(
    named: int, log: Log, number: int | None
) -> None:
    assert way_back(named, log) == number
    if number is not None and log is BEGUN:
        assert next_step(named, log, number) == TakeBack(log.planned)
