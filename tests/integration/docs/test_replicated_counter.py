"""The example of a replicated state machine: its leader is killed, and another replica goes on with the same state."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import pytest

from scribengin.log import DLSN, LogNamespace
from scribengin_registry.contract import Registry
from tests.house.tree import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "replicated_counter"


class Process:
    """A replica in a process of its own."""

    def __init__(self, hosts: str, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, EXAMPLE / "replica.py", "counters", directory],
            env={**os.environ, "SCRIBENGIN_REGISTRY": hosts},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "following"

    def line(self) -> str:
        """What it says next."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        """Give it a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def ask(self, line: str) -> str:
        """Give it a command, and wait for its answer."""
        self.tell(line)
        return self.line()

    def kill(self) -> None:
        """As a crash would."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    LogNamespace.bind("/logs", tmp_path / "store", registry=registry)
    opened = LogNamespace.open("/logs", registry=registry)
    opened.create("counters")
    return opened


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example's `snapshot`, with `machine` beside it, as `replica.py` finds them."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("snapshot")
    for name in ("snapshot", "machine"):
        sys.modules.pop(name, None)


def test_a_follower_goes_on_with_the_state_of_a_leader_that_was_killed(
    namespace: LogNamespace, registry_hosts: str, tmp_path: Path
) -> None:
    with ExitStack() as processes:

        def replica() -> Process:
            started = Process(registry_hosts, tmp_path)
            processes.callback(started.kill)
            return started

        first = replica()
        assert first.line() == "leading {}"
        second = replica()
        assert [first.ask(f"ada {n} visits 1") for n in (1, 2, 3)] == ["visits 1", "visits 2", "visits 3"]
        assert first.ask("snapshot") == "saved"
        assert first.ask("bob 1 clicks 5") == "clicks 5"
        first.tell("ada 4 visits 1")  # nobody knows whether this one was written
        first.kill()
        assert second.line() in (
            "leading {'visits': 3, 'clicks': 5}",
            "leading {'visits': 4, 'clicks': 5}",
        )
        assert second.ask("ada 4 visits 1") == "visits 4"  # so it is repeated, and counts once
        third = replica()  # from the snapshot, and what stands behind it
        assert second.ask("bob 2 clicks 1") == "clicks 6"
        second.kill()
        assert third.line() == "leading {'visits': 4, 'clicks': 6}"
    assert namespace.count("counters") <= 4, "what the snapshot holds was given up"


def test_a_late_snapshot_of_a_leader_that_was_replaced_hides_no_later_one(module: ModuleType, tmp_path: Path) -> None:
    late, early = module.Counters({"visits": 9}, {"ada": 9}), module.Counters({"visits": 2}, {"ada": 2})
    module.save(tmp_path, DLSN(2, 0, 1), late)
    module.save(tmp_path, DLSN(1, 11, 0), early)
    assert module.load(tmp_path) == (DLSN(2, 0, 1), late)


def test_a_snapshot_replaces_those_before_it(module: ModuleType, tmp_path: Path) -> None:
    assert module.load(tmp_path) == (None, module.Counters())
    for entry in (9, 10):
        module.save(tmp_path, DLSN(1, entry, 0), module.Counters({"visits": entry}, {}))
    assert [path.name for path in tmp_path.iterdir()] == ["snapshot-000000000001-000000000010-000000000000.json"]
    assert module.load(tmp_path) == (DLSN(1, 10, 0), module.Counters({"visits": 10}, {}))
