"""What a checkpoint says of its operators' schemas becomes true where it was moved to, whenever that is cut short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scribengin.errors import CheckpointMismatch
from scribengin.filesystems.local import LocalFileSystem
from scribengin.spark.stateful.query_log import QueryDirectory, take_schemas_along
from scribengin.testing.failpoints import at_failpoint, record_stops

SCHEMAS = ("0_one", "7_two")
METADATA = "state/0/_metadata/v2"


class Died(BaseException):
    """The owner's process ends here."""


def die(_stop: str) -> None:
    raise Died


@pytest.fixture
def query(tmp_path: Path) -> Path:
    """A checkpoint that was moved: below a directory whose name looks like one of Spark's, as its old one did."""
    directory = tmp_path / "_stateSchema" / "name-2.1" / "query"
    versioned = directory / METADATA
    versioned.mkdir(parents=True)
    for number, schemas in (("0", SCHEMAS[:1]), ("7", SCHEMAS)):
        paths = [f"file:/mnt/_stateSchema/name-1.0/query/state/0/_stateSchema/default/{schema}" for schema in schemas]
        content = {"operatorInfo": {"operatorId": 0}, "stateStoreInfo": [{"stateSchemaFilePaths": paths}]}
        (versioned / number).write_text(f"v2\n{json.dumps(content)}")
        (versioned / f".{number}.crc").touch()
    (directory / "state/1/_metadata").mkdir(parents=True)
    (directory / "state/1/_metadata/metadata").write_text("v1\n{}")
    return directory


def named(query: Path, number: str) -> list[str]:
    version, _, text = (query / METADATA / number).read_text().partition("\n")
    content = json.loads(text)
    assert (version, content["operatorInfo"]) == ("v2", {"operatorId": 0})
    [store] = content["stateStoreInfo"]
    return list(store["stateSchemaFilePaths"])


def expect_taken(query: Path) -> None:
    here = [f"file:{query}/state/0/_stateSchema/default/{schema}" for schema in SCHEMAS]
    assert (named(query, "0"), named(query, "7")) == (here[:1], here)
    assert sorted(path.name for path in (query / METADATA).iterdir()) == ["0", "7"], "no checksum of what was"
    assert [path.name for path in (query / "state/0/_metadata").iterdir()] == ["v2"]


def test_each_file_names_the_schemas_where_they_are_and_then_stays(query: Path) -> None:
    take_schemas_along(QueryDirectory(LocalFileSystem(), str(query)))
    expect_taken(query)
    with record_stops() as passed:
        take_schemas_along(QueryDirectory(LocalFileSystem(), str(query)))
    assert not passed, "there was nothing to do"


def test_they_are_named_as_spark_opens_them(query: Path) -> None:
    class Cluster(LocalFileSystem):
        def url_of(self, path: str) -> str:
            return f"hdfs://MyCluster{path}"

    take_schemas_along(QueryDirectory(Cluster(), str(query)))
    assert named(query, "0") == [f"hdfs://MyCluster{query}/state/0/_stateSchema/default/{SCHEMAS[0]}"]


def test_it_may_end_anywhere_and_is_done_again(query: Path, tmp_path: Path) -> None:
    moved = query.rename(tmp_path / "moved")
    with record_stops() as passed:
        take_schemas_along(QueryDirectory(LocalFileSystem(), str(moved)))
    query = moved
    for turn, stop in enumerate(dict.fromkeys(passed)):
        query = query.rename(tmp_path / str(turn))
        for number in ("0", "7"):
            (query / METADATA / f".{number}.crc").touch()
        with at_failpoint(stop, die), pytest.raises(Died):
            take_schemas_along(QueryDirectory(LocalFileSystem(), str(query)))
        take_schemas_along(QueryDirectory(LocalFileSystem(), str(query)))
        expect_taken(query)


@pytest.mark.parametrize(
    "text", ["", "v2", "v2\n{}", 'v2\n{"stateStoreInfo": [{"stateSchemaFilePaths": ["file:/a"]}]}']
)
def test_what_is_damaged_is_refused_by_its_path(query: Path, text: str) -> None:
    (query / METADATA / "7").write_text(text)
    with pytest.raises(CheckpointMismatch, match=f"{METADATA}/7 is not as Spark writes it"):
        take_schemas_along(QueryDirectory(LocalFileSystem(), str(query)))
