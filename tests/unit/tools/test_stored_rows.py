"""Of which tasks `scribengin state` shows rows and stores, and what it says where there are none."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from scribengin.errors import ConfigInvalid
from scribengin.filesystems.local import LocalFileSystem
from scribengin.operations.state import TaskState
from scribengin.spark import runtime
from scribengin.spark.stateful.query_log import QueryDirectory
from scribengin.spark.stateful.stored import StateRow, StateStore
from scribengin_tools.cli.dataflow.state import _print_stores
from scribengin_tools.rendering import stored_state
from scribengin_tools.rendering.stored_state import stored_rows

COUNTS = StateStore("aggregate", "default", 2, 1, 0)


class Kept:
    """What stands in a directory, without Spark: a row of one store, unless it is called `none`."""

    def __init__(self, directory: QueryDirectory, _session: object) -> None:
        self._name = Path(directory.path).name

    def stores(self) -> list[StateStore]:
        return [] if self._name == "none" else [COUNTS]

    def rows(self, store: StateStore, _key: object, _rows_max: int) -> list[StateRow]:
        assert store is COUNTS
        return [StateRow(0, self._name, "1")]


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_state, "StoredState", Kept)
    monkeypatch.setattr(runtime, "brief_session", lambda _name: nullcontext())


def rows_of(*names: str) -> list[tuple[str, str]]:
    tasks = [TaskState(f"task-{n}", QueryDirectory(LocalFileSystem(), f"/{name}")) for n, name in enumerate(names)]
    return [(task, row.key) for task, row in stored_rows(tasks, "aggregate", None, {}, 9)]


def test_a_task_that_has_done_no_batch_yet_hides_no_rows_of_others() -> None:
    assert rows_of("none", "a", "none", "b") == [("task-1", "a"), ("task-3", "b")]


def test_where_none_has_that_is_said() -> None:
    with pytest.raises(ConfigInvalid, match="there is no state yet: no batch is done"):
        rows_of("none", "none")


@pytest.mark.parametrize(("as_json", "out", "said"), [(False, "", "'counts' keeps nothing yet"), (True, "[]\n", "")])
def test_where_no_task_has_a_store_no_empty_table_is_shown(
    capsys: pytest.CaptureFixture[str], as_json: bool, out: str, said: str
) -> None:
    tasks = [TaskState("task-0", QueryDirectory(LocalFileSystem(), "/none"))]
    _print_stores("counts", tasks, as_json=as_json)
    printed = capsys.readouterr()
    assert printed.out == out
    assert said in printed.err
