"""Roles and towers of a process that may open no more files, or threads: refused in a line, and nothing stays open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from scribengin.dafka import DafkaConsumer, DafkaStore, DafkaTower, role, tower
from scribengin.dafka.store import reader
from scribengin.errors import DafkaError
from scribengin.log import LogNamespace
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from tests.integration.dafka.dafka_keys import KeyRing
from tests.integration.dafka.dafka_roles import LISTENING, config_of
from tests.open_files import expect_nothing_more_open, opened

KINDS = ["DafkaConsumer", "DafkaProducer", "DafkaFollower", "DafkaTower"]
OPENING = """
import os, resource, sys, threading
from scribengin.dafka import DafkaConfig, DafkaConsumer, DafkaFollower, DafkaProducer, DafkaTower
from scribengin.errors import DafkaError

kind, keys = sys.argv[1:]
towers = {"sub_address": "tcp://127.0.0.1:*", "pub_address": "tcp://127.0.0.1:*"}
config = DafkaConfig.model_validate(
    {
        "tower": towers,
        "beacon": {"sub_address": "tcp://127.0.0.1:7", "pub_address": "tcp://127.0.0.1:7"},
        "producer": {"terminate_unacked": True},
        "curve": {"key": keys} if keys else None,
    }
)
make = {
    "DafkaConsumer": lambda: DafkaConsumer(["flights"], config),
    "DafkaProducer": lambda: DafkaProducer("flights", config),
    "DafkaFollower": lambda: DafkaFollower("flights", config),
    "DafkaTower": lambda: DafkaTower(config),
}[kind]
make().close()  # what is imported late is there
files = lambda: sorted(os.listdir("/proc/self/fd"))
before, hard = files(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
end = 1 + max(map(int, before))
for number in range(end + 40):
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        make().close()
        said = "opened"
    except DafkaError as error:
        said = str(error)
    resource.setrlimit(resource.RLIMIT_NOFILE, (end + 100, hard))
    assert files() == before, (number, files())
    assert threading.active_count() == 1
    print(said, flush=True)
"""


def refused(what: str, why: str) -> str:
    return (
        f"{what} cannot be opened: {why}; close others of this process, or allow it more open files and threads "
        "(`ulimit -n`, `ulimit -u`)"
    )


@pytest.mark.parametrize("with_keys", [False, True], ids=["without keys", "with keys"])
@pytest.mark.parametrize("kind", KINDS)
def test_at_the_limit_of_open_files_a_role_is_refused_and_leaves_nothing_open(
    kind: str, with_keys: bool, tmp_path: Path
) -> None:
    """In a process of its own: libzmq has ended it at some of these limits."""
    keys = str(KeyRing(tmp_path).file("role")) if with_keys else ""
    done = subprocess.run([sys.executable, "-c", OPENING, kind, keys], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    line = refused(f"a {kind.removeprefix('Dafka').lower()}", "Too many open files")
    assert set(said) == {line, "opened"}
    assert said == sorted(said), "refused up to a limit, and opened from there on"


class _NoThread(Thread):
    def start(self) -> None:
        raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("kind", [DafkaConsumer, DafkaTower])
def test_a_role_that_gets_no_thread_is_refused_and_leaves_nothing_open(
    kind: type[DafkaConsumer | DafkaTower], monkeypatch: pytest.MonkeyPatch
) -> None:
    make: Callable[[], Any] = (lambda: DafkaTower(LISTENING)) if kind is DafkaTower else lambda: DafkaConsumer(["f"])
    make().close()
    before = opened()
    for module in (role, tower):
        monkeypatch.setattr(module, "background", lambda name, run: _NoThread(name=name, target=run))
    with pytest.raises(DafkaError) as raised:
        make()
    assert str(raised.value) == refused(f"a {kind.__name__.removeprefix('Dafka').lower()}", "can't start new thread")
    expect_nothing_more_open(before)


@pytest.fixture
def logs(memory_registry: MemoryRegistry) -> Iterator[LogNamespace]:
    disk = MemoryDisk("store")
    with bound_namespace(memory_registry, disk.name, store=MEMORY_STORE) as namespace:
        yield namespace


def test_a_store_that_cannot_open_the_one_that_answers_closes_the_one_that_writes(
    logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DafkaTower(LISTENING) as there:
        DafkaStore(logs, config_of(there)).close()
        before = opened()

        def none_left(_: object) -> object:
            raise DafkaError("a store cannot be opened")

        monkeypatch.setattr(reader, "StoredAnswers", none_left)
        with pytest.raises(DafkaError, match="cannot be opened"):
            DafkaStore(logs, config_of(there))
        expect_nothing_more_open(before)
