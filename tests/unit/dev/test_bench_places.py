"""A store that a benchmark wants: where it cannot be had that is said, and a defect of ours is not taken for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scribengin.errors import ServerDown
from scribengin_dev.bench.remote import places as module
from scribengin_dev.bench.remote.places import StorePlaces


@pytest.fixture
def places(tmp_path: Path) -> StorePlaces:
    peers: Any = None
    return StorePlaces(tmp_path, "nowhere:1", peers)


def test_a_store_that_cannot_be_had_is_missing_and_is_tried_once(
    places: StorePlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def start(_places: StorePlaces) -> Any:
        tried.append(1)
        raise ServerDown("jars could not be fetched\nand more")

    monkeypatch.setattr(module, "_STARTED", {"hdfs": start})
    assert [places.get("hdfs"), places.get("hdfs")] == [None, None]
    assert places.missing == {"hdfs": "jars could not be fetched"}
    assert tried == [1]


def test_a_namespace_that_is_not_bound_is_our_defect(places: StorePlaces, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_job: object) -> Any:
        raise ServerDown("TypeError: bind() takes no keyword")

    monkeypatch.setattr(module, "_STARTED", {"hdfs": lambda _places: module._Started("hdfs://here/logs", "all of it")})
    monkeypatch.setattr(module, "run_job", fail)
    with pytest.raises(ServerDown, match="TypeError"):
        places.get("hdfs")
    assert places.missing == {}
