"""The records of containers, where the registry does not say what became of a write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scribengin.errors import LauncherError
from scribengin.launcher.contract import ContainerDescriptor, ContainerExit
from scribengin.launcher.yarn.container_records import ContainerRecordDescriptor, ContainerRecords
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin_registry.errors import OutcomeUnknown

PATH = "/flights/containers"
ASKED = ContainerRecordDescriptor(
    container=ContainerDescriptor(
        id="c1", registry="here:1", dataflow="flights", name="worker-1", memory_mb=512, cores=1, launched_ms=1
    )
)
PLACED = ASKED.placed("container_1", "host:1", "host:2")
ENDED = PLACED.ended(ContainerExit("exited", 3, "it failed"))


@pytest.fixture
def records(memory_registry: MemoryRegistry) -> ContainerRecords:
    memory_registry.create("/flights")
    made = ContainerRecords(memory_registry, PATH)
    made.create(ASKED)
    return made


@pytest.mark.parametrize("again", [PLACED, ENDED])
def test_a_write_that_arrives_late_is_not_taken_for_another_masters(
    records: ContainerRecords,
    memory_registry: MemoryRegistry,
    monkeypatch: pytest.MonkeyPatch,
    again: ContainerRecordDescriptor,
) -> None:
    arrive = on_its_way(memory_registry, monkeypatch)
    with pytest.raises(OutcomeUnknown):
        records.write(PLACED)
    arrive()
    records.write(again)
    records.write(ENDED)
    assert records.all() == [ENDED]


def test_of_two_writes_of_unknown_outcome_the_first_may_arrive_late(
    records: ContainerRecords, memory_registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive = on_its_way(memory_registry, monkeypatch)
    with pytest.raises(OutcomeUnknown):
        records.write(PLACED)
    on_its_way(memory_registry, monkeypatch)
    with pytest.raises(OutcomeUnknown):
        records.write(ENDED)
    arrive()
    records.write(ENDED)
    assert records.all() == [ENDED]


def test_a_write_that_has_arrived_is_known_at_once(
    records: ContainerRecords, memory_registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_way(memory_registry, monkeypatch, arrived=True)
    records.write(PLACED)
    records.write(ENDED)
    assert records.all() == [ENDED]


def test_what_another_master_has_written_meanwhile_stays(
    records: ContainerRecords, memory_registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_way(memory_registry, monkeypatch)
    with pytest.raises(OutcomeUnknown):
        records.write(PLACED)
    other = ContainerRecords(memory_registry, PATH)
    assert other.all() == [ASKED]
    other.write(ENDED)
    with pytest.raises(LauncherError, match="another master's"):
        records.write(PLACED)
    assert records.all() == [ENDED]


def on_its_way(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, *, arrived: bool = False
) -> Callable[[], object]:
    """The next write's answer is lost. What has it arrive, if it has not."""
    written: list[Callable[[], object]] = []
    real = registry.set

    def lose_the_answer(path: str, data: bytes, version: int = -1) -> int:
        monkeypatch.setattr(registry, "set", real)
        written.append(lambda: real(path, data, version))
        if arrived:
            written[0]()
        raise OutcomeUnknown("the connection was lost")

    monkeypatch.setattr(registry, "set", lose_the_answer)
    return lambda: written[0]()
