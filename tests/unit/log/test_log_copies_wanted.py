"""How many bookies hold a log is said in its configuration, and refused where no bookies are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scribengin.errors import ConfigInvalid
from scribengin.log import LogConfig
from scribengin.log.config import LedgerCopies
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.registry import MemoryRegistry


@pytest.mark.parametrize(
    ("said", "copies"),
    [
        ({}, (3, 3, 2)),
        ({"ensemble_size": 5}, (5, 3, 2)),
        ({"ensemble_size": 2}, (2, 2, 2)),
        ({"ensemble_size": 1}, (1, 1, 1)),
        ({"ack_quorum": 3}, (3, 3, 3)),
        ({"ensemble_size": 4, "write_quorum": 4, "ack_quorum": 3}, (4, 4, 3)),
    ],
)
def test_what_is_left_out_follows_from_what_is_said(said: dict[str, Any], copies: tuple[int, int, int]) -> None:
    assert LogConfig.parse(said, source="a log").copies == LedgerCopies(*copies)


@pytest.mark.parametrize("said", [{"write_quorum": 4}, {"ack_quorum": 4}, {"ensemble_size": 1, "ack_quorum": 2}])
def test_quorums_that_contradict_each_other_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid, match="none of them may be more than the next"):
        LogConfig.parse(said, source="a log")


def test_a_store_without_bookies_refuses_them_in_one_line(memory_registry: MemoryRegistry, tmp_path: Path) -> None:
    namespace = bound_namespace(memory_registry, tmp_path, "a")
    for key in ("ensemble_size", "write_quorum", "ack_quorum"):
        config = LogConfig.parse({key: 3}, source="a log")
        with pytest.raises(ConfigInvalid, match="are for logs on BookKeeper: leave them out"):
            namespace.create("b", config)
        with pytest.raises(ConfigInvalid, match="are for logs on BookKeeper: leave them out"):
            namespace.configure("a", config)
    assert namespace.names() == ["a"]
    assert namespace.inspect("a").metadata_check.log.config_version == 0
