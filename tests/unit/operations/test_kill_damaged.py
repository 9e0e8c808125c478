"""`kill` of a dataflow whose nodes somebody has harmed by hand: what runs is ended all the same, and what is wrong is
told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.errors import DescriptorUnreadable
from scribengin.launcher.contract import ContainerDescriptor
from scribengin.operations import lifecycle
from scribengin.operations.lifecycle import kill_dataflow
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from tests.unit.operations.deletion import NODES, put

RUNS = [
    ContainerDescriptor(
        id="1", registry="memory:0", dataflow="delays", name="worker-1", memory_mb=1, cores=1, launched_ms=1
    )
]
WORKER = NODES.worker("worker-1")


@pytest.fixture
def registry() -> Iterator[MemoryRegistry]:
    with MemoryEnsemble().connect() as session:
        yield session


@pytest.mark.parametrize(
    "path",
    [NODES.config, NODES.edit(0), NODES.config_in_force, NODES.status, NODES.history, WORKER],
)
@pytest.mark.parametrize("runs", [RUNS, []])
def test_what_runs_is_ended_whichever_node_is_damaged(
    registry: MemoryRegistry,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    path: str,
    runs: list[ContainerDescriptor],
) -> None:
    view = put(registry, "running")
    registry.create(WORKER, b"{not json") if path == WORKER else registry.set(path, b"{not json")
    asked: list[str] = []

    def kill(_hosts: str, name: str, *_args: object) -> list[ContainerDescriptor]:
        asked.append(name)
        return runs

    monkeypatch.setattr(lifecycle, "kill_containers", kill)
    killed = kill_dataflow(registry, "delays", tmp_path)
    assert asked == ["delays"]
    assert killed.containers == ("worker-1" if runs else "")
    # Such a config is replaced, as is a history, and an edit is not needed; a worker is named as one that may run.
    told = path not in (NODES.config, NODES.edit(0), NODES.history, WORKER)
    assert (f"{path} does not hold" in killed.line) == told, killed.line
    if path == NODES.status:
        with pytest.raises(DescriptorUnreadable):
            view.status()
    else:
        unsure = path == NODES.config_in_force and not runs  # it may run on a cluster
        assert view.status().state == ("running" if unsure else "killed")


def test_where_nothing_runs_and_nothing_can_be_read_nothing_was_killed(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(registry, "running")
    for path in (NODES.status, NODES.config_in_force):
        registry.set(path, b"not ours")
    monkeypatch.setattr(lifecycle, "kill_containers", lambda *_: [])
    with pytest.raises(DescriptorUnreadable, match=f"{NODES.status} does not hold"):
        kill_dataflow(registry, "delays", tmp_path)
