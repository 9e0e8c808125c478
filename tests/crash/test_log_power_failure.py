"""Power failures at every moment of a log's life, with everything lost or half there that no fsync had made durable.

The log is written, staged, rolled, read, truncated, purged, killed and recovered on a disk that keeps a record; the
registry's transactions stand in the same record. Every state that a power failure could have left is made, and
recovered by the real thing: what was promised is there, nothing else is, a second recovery changes nothing, and the log
can be written on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scribengin.testing.memory.disk_states import Operation, Sync, SyncDirectory
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry
from tests.crash.disk_recorder import RecordedDisk
from tests.crash.log_script import LogScript
from tests.crash.power_failures import (
    Machine,
    MachineWithOlderRegistry,
    all_wrong,
    any_wrong,
    crash_states,
    instant_syncs,
    record_of,
    states_of_older_registries,
    states_of_recovery,
)

COMPRESSED, COPIED = 0, 3
"""Seeds: one that compresses entries, and one that keeps compressed copies of segments and drops the raw."""
FULL = range(4, 60)
STEPS = 12

# A writer that is killed leaves its maintenance thread with the exception that killed it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def cases(few: int, many: int, *seeds: int) -> list[Any]:
    """Seeds with how many states are tried of each: few, and in full runs many, of more seeds."""
    full = [pytest.param(seed, many, marks=pytest.mark.full) for seed in (*seeds, *FULL)]
    return [*((seed, few) for seed in seeds), *full]


def recorded(directory: Path, registry: Registry, seed: int, *, fsync: bool = True) -> list[Operation]:
    """The record of one seed's life of a log."""
    (directory / "disk").mkdir()
    with RecordedDisk(directory / "disk") as disk:
        LogScript(disk, registry, seed, fsync=fsync).run(STEPS)
    return record_of(disk)


@pytest.mark.parametrize(("seed", "at_most"), cases(1, 4, COMPRESSED, COPIED))
def test_whatever_a_power_failure_leaves_every_promise_is_kept(
    seed: int, at_most: int, memory_registry: Registry, tmp_path: Path
) -> None:
    states = list(crash_states(recorded(tmp_path, memory_registry, seed), seed, at_most=at_most))
    assert len(states) > 100  # how many there are depends on which records a group took
    wrong = all_wrong(tmp_path, states)
    assert not wrong, f"seed {seed}\n" + "\n".join(wrong)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in FULL)])
def test_power_that_fails_again_during_recovery_changes_nothing(
    seed: int, memory_registry: Registry, tmp_path: Path
) -> None:
    states = list(crash_states(recorded(tmp_path, memory_registry, seed), seed, at_most=3))
    undecided = [state for state in states if state.expected.possible] or states
    again = []
    with instant_syncs(), MemoryEnsemble().connect() as session:
        machine = Machine(tmp_path / "again", session)
        for state in random.Random(seed).sample(undecided, min(len(undecided), 24)):
            again.extend(states_of_recovery(machine, state, at_most=3))
    assert len(again) > 60
    wrong = all_wrong(tmp_path, again)
    assert not wrong, f"seed {seed}\n" + "\n".join(wrong)


@pytest.mark.parametrize(("seed", "at_most"), cases(1, 2, 1))
def test_without_fsync_what_is_left_is_the_beginning_of_what_was_written(
    seed: int, at_most: int, memory_registry: Registry, tmp_path: Path
) -> None:
    operations = recorded(tmp_path, memory_registry, seed, fsync=False)
    states = list(crash_states(operations, seed, at_most=at_most, fsync=False))
    wrong = all_wrong(tmp_path, states)
    assert not wrong, f"seed {seed}\n" + "\n".join(wrong)


@pytest.mark.parametrize(("seed", "tried"), cases(60, 300, COPIED))
def test_a_registry_that_is_older_than_what_a_power_failure_leaves_hides_nothing(
    seed: int, tried: int, memory_registry: Registry, tmp_path: Path
) -> None:
    states = list(states_of_older_registries(recorded(tmp_path, memory_registry, seed), seed, at_most=6))
    assert len(states) > 150
    some = random.Random(seed).sample(states, min(len(states), tried))
    wrong = all_wrong(tmp_path, some, MachineWithOlderRegistry)
    assert not wrong, f"seed {seed}\n" + "\n".join(wrong)


def test_an_announcement_that_a_disk_only_says_it_synced_is_found_out(
    memory_registry: Registry, tmp_path: Path
) -> None:
    def lie(operation: Operation) -> bool:
        return isinstance(operation, SyncDirectory) and operation.path.endswith("/.made")

    operations = [operation for operation in recorded(tmp_path, memory_registry, 0) if not lie(operation)]
    states = list(states_of_older_registries(operations, 0, at_most=6))
    some = random.Random(0).sample(states, min(len(states), 300))
    assert any_wrong(tmp_path, some, MachineWithOlderRegistry)


@pytest.mark.parametrize(
    "lie",
    [
        lambda operation: isinstance(operation, Sync) and operation.path.endswith(".log"),
        lambda operation: isinstance(operation, SyncDirectory) and operation.path == "deep/store",
        lambda operation: isinstance(operation, SyncDirectory) and operation.path.startswith("deep/store/"),
    ],
    ids=["what was written", "the log's directory", "a segment's file"],
)
def test_a_disk_that_only_says_it_synced_is_found_out(
    lie: Callable[[Operation], bool], memory_registry: Registry, tmp_path: Path
) -> None:
    operations = [operation for operation in recorded(tmp_path, memory_registry, 0) if not lie(operation)]
    states = list(crash_states(operations, 0, at_most=3))
    assert any_wrong(tmp_path, random.Random(0).sample(states, 80))
