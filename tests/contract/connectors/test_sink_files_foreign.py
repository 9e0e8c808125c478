"""Files of others where a sink's final files go: they stay as they are, and what is merged elsewhere is merged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import DataflowError
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry
from tests.contract.connectors.test_sink_files_formats import Output

DECIDED = "files.merge_decide:after"


def take(path: Path) -> Callable[[str], None]:
    def act(_stop: str) -> None:
        path.write_text("foreign\n")

    return act


def records(*payloads: str) -> pa.RecordBatch:
    return pa.record_batch({"payload": list(payloads), "carrier": ["AA" if p < "5" else "UA" for p in payloads]})


def test_a_foreign_file_that_takes_the_name_of_a_decided_merge_stays(registry: Registry, tmp_path: Path) -> None:
    output = Output(registry, tmp_path / "out")
    output.round(records("1"))
    foreign = tmp_path / "out" / "part-00000-00000000.txt"
    with (
        at_failpoint(DECIDED, take(foreign)),
        pytest.raises(DataflowError, match=f"{foreign} is there already, and is not ours: move it away"),
    ):
        output.merge()
    with pytest.raises(DataflowError, match="move it away"):
        output.merge()
    assert foreign.read_text() == "foreign\n"
    foreign.rename(tmp_path / "moved")
    output.merge()
    assert foreign.read_text() == "1\n"


def test_a_foreign_file_that_was_there_before_stays_and_another_number_is_taken(
    registry: Registry, tmp_path: Path
) -> None:
    output = Output(registry, tmp_path / "out")
    foreign = tmp_path / "out" / "part-00000-00000000.txt"
    foreign.write_text("foreign\n")
    output.round(records("1"))
    output.merge()
    assert foreign.read_text() == "foreign\n"
    assert (tmp_path / "out" / "part-00000-00000001.txt").read_text() == "1\n"


@pytest.mark.parametrize(
    ("decided", "told"),
    [(False, "cannot list .*carrier=AA: Not a directory"), (True, "carrier=AA is there already, and is not ours")],
)
def test_a_foreign_file_that_has_the_name_of_a_partition_stays(
    registry: Registry, tmp_path: Path, decided: bool, told: str
) -> None:
    output = Output(registry, tmp_path / "out", partition={"columns": ["carrier"]})
    output.round(records("1", "9"))
    foreign = tmp_path / "out" / "carrier=AA"
    if not decided:
        foreign.write_text("foreign\n")
    for _ in range(2):
        with (
            at_failpoint(DECIDED, take(foreign)),
            pytest.raises(DataflowError, match=told),
        ):
            output.merge()
    assert foreign.read_text() == "foreign\n"
    assert len(output.finals()) == (0 if decided else 1), "the other partition waits for a merge that is decided only"
    foreign.rename(tmp_path / "moved")
    output.merge()
    assert [path.read_text() for path in output.finals().values()] == ["1\n", "9\n"]
