"""A file sink's life on files in memory, whose power fails at some operation: what was committed is there once.

The same script as in test_files_power_failure, a seed in milliseconds: another operation, and another of the states
that the failure may leave.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest

from scribengin.errors import ScribenginError
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.memory.registry import MemoryEnsemble
from tests.crash.failing_disk import FailingDisk, PowerFailure
from tests.crash.files_script import COMMIT_LOG, FilesScript, OneStream, batch_of

SEEDS = 60
LIES = 60
STEPS = 8
OPERATIONS_MAX = 500
AFTER = b"-----written after the power came back"


def wrong(files: MemoryFiles, seed: int) -> str | None:
    """Let a sink live until the power fails, and say what is wrong with what comes of it."""
    with files.opened_by("in-memory"), MemoryEnsemble().connect() as registry:
        disk = FailingDisk(files, random.Random(seed).randrange(OPERATIONS_MAX))
        script = FilesScript(disk, registry, seed)
        with suppress(PowerFailure):
            script.run(STEPS)
        files.hook = lambda _operation: None
        files.crash(seed)
        flow = OneStream(registry, disk.root, json.loads(script.delivered.settings))
        known = registry.find(COMMIT_LOG) is not None
        flow.create()
        wanted = script.delivered.wanted(flow.log().round if known else None)
        for _twice in range(2):
            writer = flow.take_over()
            if sorted(flow.visible()) != sorted(wanted):
                return f"{len(flow.visible())} records are seen, {len(wanted)} were committed"
        writer.write(batch_of([AFTER]))
        prepared = writer.prepare_commit()
        assert prepared is not None
        flow.commit(prepared)
        writer.complete_commit(prepared)
        flow.delete()
        flow.create()
        flow.take_over()
        return None if sorted(flow.visible()) == sorted([*wanted, AFTER]) else "something is wrong in another life"


@pytest.mark.parametrize("seed", [*range(SEEDS), *(pytest.param(s, marks=pytest.mark.full) for s in range(60, 2000))])
def test_whatever_a_crash_leaves_every_record_is_there_once(seed: int) -> None:
    assert wrong(MemoryFiles(), seed) is None


class LyingFiles(MemoryFiles):
    """A disk that only says that it made names durable."""

    def _sync_directory(self, path: str) -> None:
        self._directory(path)


def test_a_disk_that_only_says_it_synced_is_found_out() -> None:
    found = 0
    for seed in range(LIES):
        try:
            found += wrong(LyingFiles(), seed) is not None
        except (ScribenginError, FileNotFoundError):
            found += 1
    assert found
