"""Power failures at every moment of a file sink's life: what was committed is there once, and nothing else.

The sink is written, rolled back, taken over, merged, and its dataflow deleted and submitted again, on a disk that keeps
a record; the registry's transactions stand in the same record. Every state that a power failure could have left is
made. Then the dataflow goes on, or is submitted again: readers must see each committed record once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin.testing.memory.disk_states import Operation, Sync, SyncDirectory
from scribengin_registry.contract import Registry
from tests.crash.disk_recorder import RecordedDisk
from tests.crash.files_script import COMMIT_LOG, OUT, SINKS, Delivered, FilesScript, OneStream, batch_of
from tests.crash.power_failures import CrashState, Moments, RestoredMachine, all_wrong, crash_states, record_of

FULL = [pytest.param(seed, marks=pytest.mark.full) for seed in range(8, 60)]
SEEDS = [0, 1, 2, 7, *FULL]  # a seed for each kind of file
STEPS = 8
STATES_MAX = 80
LIES_MAX = 50
AFTER = b"-----written after the power came back"


class FilesMachine(RestoredMachine):
    """One with a file sink."""

    def _restore_nodes(self, state: CrashState) -> None:
        self.registry.restore({path: data for path, data in state.nodes.items() if not path.startswith(SINKS)})
        for path, data in sorted(state.nodes.items()):
            if path.endswith("/merge"):  # its sink's path is that of another machine's disk
                stream = self._flow(state)
                self.registry.create(stream.sink._node(stream.stream.name), data, parents=True)

    def _flow(self, state: CrashState) -> OneStream:
        return OneStream(self.registry, self.root, json.loads(state.expected.settings))

    def _wrong(self, state: CrashState) -> str | None:
        flow = self._flow(state)
        flow.create()
        log = flow.log() if COMMIT_LOG in state.nodes else None
        wanted = state.expected.wanted(None if log is None else log.round)
        for _twice in range(2):
            flow.take_over()
            if wrong := _differs(flow.visible(), wanted):
                return wrong
        writer = flow.take_over()
        writer.write(batch_of([AFTER]))
        prepared = writer.prepare_commit()
        assert prepared is not None
        flow.commit(prepared)
        writer.complete_commit(prepared)
        flow.delete()
        private = self.root / OUT / "_scribengin"
        left = [path for kind in ("staged", "committed") for path in (private / kind).rglob("*") if path.is_file()]
        if left:
            return f"{left} is left"
        flow.create()
        flow.take_over()
        wrong = _differs(flow.visible(), [*wanted, AFTER])
        return f"after another life: {wrong}" if wrong else None


def _differs(found: list[bytes], wanted: list[bytes]) -> str | None:
    if sorted(found) == sorted(wanted):
        return None
    twice = len(found) - len(set(found))
    lost = len(set(wanted) - set(found))
    return f"{len(found)} records are seen, {len(wanted)} were committed: {lost} lost, {twice} more than once"


def recorded(directory: Path, registry: Registry, seed: int) -> list[Operation]:
    """The record of one seed's life of a sink."""
    (directory / "disk").mkdir()
    with RecordedDisk(directory / "disk") as disk:
        FilesScript(disk, registry, seed).run(STEPS)
    return record_of(disk)


def states_of(operations: list[Operation], seed: int, states_max: int) -> list[CrashState]:
    """Some of the states that a power failure could have left."""
    start = Moments(expected=Delivered(""))
    states = [state for state in crash_states(operations, seed, at_most=3, start=start) if state.expected.settings]
    return random.Random(seed).sample(states, min(len(states), states_max))


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_a_power_failure_leaves_every_record_is_there_once(
    seed: int, memory_registry: Registry, tmp_path: Path
) -> None:
    states = states_of(recorded(tmp_path, memory_registry, seed), seed, STATES_MAX)
    assert len(states) > 30
    wrong = all_wrong(tmp_path, states, FilesMachine)
    assert not wrong, f"seed {seed}\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "lie",
    [
        lambda operation: isinstance(operation, SyncDirectory) and "/staged" in operation.path,
        lambda operation: isinstance(operation, SyncDirectory) and "/committed/" in operation.path,
        pytest.param(lambda operation: isinstance(operation, Sync), marks=pytest.mark.full),
        pytest.param(
            lambda operation: isinstance(operation, SyncDirectory) and operation.path == OUT, marks=pytest.mark.full
        ),
    ],
    ids=["what was staged", "what was committed", "what was written", "final files"],
)
def test_a_disk_that_only_says_it_synced_is_found_out(
    lie: Callable[[Operation], bool], memory_registry: Registry, tmp_path: Path
) -> None:
    operations = [operation for operation in recorded(tmp_path, memory_registry, 0) if not lie(operation)]
    assert all_wrong(tmp_path, states_of(operations, 0, LIES_MAX), FilesMachine)
