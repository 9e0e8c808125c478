"""What is said where Spark does not find a file of a checkpoint: that it was moved, or that the file is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.errors import CheckpointMismatch, DataflowBusy
from scribengin.filesystems.local import LocalFileSystem
from scribengin.spark.session.failures import Cause
from scribengin.spark.stateful.query_log import QueryDirectory
from scribengin.spark.stateful.stored import unfound


@pytest.fixture
def directory(tmp_path: Path) -> QueryDirectory:
    (tmp_path / "name-2.1" / "query").mkdir(parents=True)
    return QueryDirectory(LocalFileSystem(), str(tmp_path / "name-2.1" / "query"))


def causes(path: str) -> list[Cause]:
    return [Cause("SparkException", "it failed"), Cause("FileNotFoundException", f"File file:{path} does not exist")]


def test_a_file_that_is_gone_from_a_checkpoint_that_is_where_it_was_is_named(directory: QueryDirectory) -> None:
    found = unfound(causes(f"{directory.path}/state/0/1/3.changelog"), directory)
    assert isinstance(found, CheckpointMismatch)
    assert f"{directory.path}/state/0/1/3.changelog does not exist: ask again" in str(found)


def test_a_checkpoint_that_was_moved_is_being_taken_over(directory: QueryDirectory, tmp_path: Path) -> None:
    earlier = causes(f"{tmp_path}/name-1.0/query/state/0/_stateSchema/default/0")
    assert isinstance(unfound(earlier, directory), DataflowBusy), "whoever moved it came no further than that"
    Path(directory.path).rename(tmp_path / "moved")
    assert isinstance(unfound(causes(f"{directory.path}/state/0/1/3.changelog"), directory), DataflowBusy)
    assert isinstance(unfound([Cause("StataDataSourceCommittedBatchUnavailable", "")], directory), DataflowBusy)


def test_another_failure_is_none_of_these(directory: QueryDirectory) -> None:
    assert unfound([Cause("SparkException", "it failed")], directory) is None
