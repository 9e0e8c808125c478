"""`registry check` where somebody has harmed a node by hand: the node is told, and all that does not hang on it is
checked. What nobody can judge any more stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.log.holds import Holds
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.round.checkpoints import Checkpoints, registry_begun_ms
from scribengin.filesystems.paths import tree_file_system
from scribengin.log import LogNamespace, RetentionHold
from scribengin.operations.chain.registry import ChainDescriptor, ChainMember, create_chain, path_of
from scribengin.operations.registry.leftovers import SETTLED_S, Leftover, leftovers
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin_registry.errors import NotAuthorised
from tests.unit.operations.deletion import put

LOG = "/logs/logs/kept"
JOB = f"/logs/spark/job-{'0' * 32}"
POSITIONS = f"{paths.SOURCES}/gone.src"


class Later:
    """What was made just now has settled by this clock."""

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + int(SETTLED_S * 1000) + 60_000

    def monotonic_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[MemoryRegistry]:
    """With a chain, and positions of a dataflow that is not there; two logs keep records for that, and a log has been
    deleted but for its directory."""
    with MemoryEnsemble().connect() as session:
        LogNamespace.bind("/logs", tmp_path / "store", registry=session)
        with LogNamespace.open("/logs", registry=session) as namespace:
            for log in ("kept", "other"):
                namespace.create(log)
                hold = RetentionHold(dataflow="gone", source="src", pattern="*")
                Holds(STREAM_NODES).hold_for(namespace, log, [hold])
        member = ChainMember(key="first", dataflow="whole-first")
        create_chain(session, ChainDescriptor(name="whole", members=(member,), config={}, submitted_ms=0))
        session.create(POSITIONS, parents=True)
        session.create(f"{JOB}/kept", parents=True)
        session.set(f"{JOB}/kept", b"{}")
        (tmp_path / "store" / "nobodys").mkdir()
        yield session


def found(registry: MemoryRegistry, home: Path) -> dict[str, list[Leftover]]:
    told: dict[str, list[Leftover]] = {}
    for one in leftovers(registry, home, Later()):
        told.setdefault(one.kind, []).append(one)
    return told


def holds(registry: MemoryRegistry, log: str) -> list[str]:
    with LogNamespace.open("/logs", registry=registry) as namespace:
        return [hold.dataflow for hold in namespace.retention_holds(log)]


@pytest.mark.parametrize("damaged", [path_of("whole"), LOG, f"{JOB}/kept"])
def test_a_damaged_node_is_told_and_what_does_not_hang_on_it_is_found(
    registry: MemoryRegistry, tmp_path: Path, damaged: str
) -> None:
    if not damaged.startswith(JOB):
        registry.delete(JOB, recursive=True)
    registry.set(damaged, b"{not json")
    told = found(registry, tmp_path / "home")
    (unreadable,) = told["unreadable"]
    assert "does not hold" in unreadable.what
    assert unreadable.remove is None
    assert len(told["positions"]) == 1
    assert len(told["hold"]) == (1 if damaged == LOG else 2)  # what stands below a damaged log is nobody's to judge
    assert ("log directory" in told) == (damaged != LOG)  # it may be that one's
    for one in [one for ones in told.values() for one in ones if one.remove is not None]:
        assert one.remove is not None
        one.remove()
    assert registry.find(POSITIONS) is None
    assert (tmp_path / "store" / "nobodys").is_dir() == (damaged == LOG)


def test_nothing_that_a_chain_may_wait_for_is_given_up_while_nobody_can_read_the_chain(
    registry: MemoryRegistry, tmp_path: Path
) -> None:
    registry.delete(JOB, recursive=True)
    before = found(registry, tmp_path / "home")["hold"]
    whole = registry.get(path_of("whole")).data
    registry.set(path_of("whole"), b"{not json")
    for one in before:
        assert one.remove is not None
        one.remove()
    assert holds(registry, "kept") == ["gone"]
    for one in found(registry, tmp_path / "home")["hold"]:
        assert (one.remove, "chain 'whole'" in one.next_step) == (None, True)
    registry.set(path_of("whole"), whole)
    for one in found(registry, tmp_path / "home")["hold"]:
        assert one.remove is not None
        one.remove()
    assert holds(registry, "kept") == []


def test_state_stays_that_a_damaged_commit_log_may_name(registry: MemoryRegistry, tmp_path: Path) -> None:
    registry.delete(JOB, recursive=True)
    put(registry)
    root = tmp_path / "home" / "state"
    files, path = tree_file_system(str(root))
    Checkpoints(files, f"{path}/delays/task-0").begin(9, 1, registry_begun_ms(registry))
    assert len(found(registry, tmp_path / "home")["checkpoint"]) == 1
    view = DataflowView(registry, "delays")
    before = found(registry, tmp_path / "home")["checkpoint"][0]
    registry.set(view.paths.task_descriptors, b"{not json")
    (unsure,) = found(registry, tmp_path / "home")["checkpoint"]
    assert (before.remove is None, unsure.remove is None) == (False, True)
    assert "does not hold" in unsure.what


def test_nodes_of_others_that_nobody_else_may_read_keep_nothing_from_being_checked(
    registry: MemoryRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On servers that are shared, as with YARN's own nodes."""
    wanted = {kind: len(of_it) for kind, of_it in found(registry, tmp_path / "home").items()}
    registry.create("/rmstore/root", parents=True)
    registry.create("/locked")
    reads = {name: getattr(MemoryRegistry, name) for name in ("get", "children")}

    def refused(name: str, locked: str) -> None:
        def read(session: MemoryRegistry, path: str, *watch: Any) -> Any:
            if path == locked:
                raise NotAuthorised(f"cannot read {path}", path=path)
            return reads[name](session, path, *watch)

        monkeypatch.setattr(MemoryRegistry, name, read)

    refused("get", "/locked")
    refused("children", "/rmstore")
    assert {kind: len(of_it) for kind, of_it in found(registry, tmp_path / "home").items()} == wanted
