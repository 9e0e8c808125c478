"""`scribengin registry check`: what belongs to nobody is found, and removed if asked for; nothing else is touched."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.clock import SYSTEM_CLOCK
from scribengin.commit import CommitLog
from scribengin.connectors.log_holds import HeldBy
from scribengin.dataflow import paths
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.view import DataflowView
from scribengin.launcher.contract import ContainerDescriptor, ContainerRequest
from scribengin.launcher.local import LocalLauncher
from scribengin.log import LogNamespace
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_tools.leftovers import SETTLED_S, leftovers
from tests.integration.cli_runner import CommandLine, quiet_config, whole_tree


class Later:
    """What was made just now has settled by this clock."""

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + int(SETTLED_S * 1000) + 60_000

    def monotonic_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s()


def flow(name: str) -> DataflowConfig:
    return quiet_config(session_timeout_s=1).model_copy(update={"name": name})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def namespace(registry: Registry, store: Path) -> Iterator[LogNamespace]:
    LogNamespace.bind("/deep/er/logs", store, registry=registry)
    with LogNamespace.open("/deep/er/logs", registry=registry) as namespace:
        yield namespace


@pytest.fixture
def launcher(home: Path) -> Iterator[LocalLauncher]:
    with LocalLauncher(home) as launcher:
        yield launcher
        for name in launcher.dataflows():
            for container in launcher.all_containers(name):
                launcher.kill(container)


def found(registry: Registry, home: Path) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for one in leftovers(registry, home, Later()):
        told.setdefault(one.kind, []).append(one.line)
    return told


def repaired(registry: Registry, home: Path) -> None:
    for one in list(leftovers(registry, home, Later())):
        if one.remove is not None:
            one.remove()


def ran(launcher: LocalLauncher, hosts: str, dataflow: str, program: str = "") -> ContainerDescriptor:
    return launcher.launch(ContainerRequest(hosts, dataflow, "worker-1", [sys.executable, "-c", program], 256))


def test_what_belongs_to_somebody_is_no_leftover(
    registry: Registry, namespace: LogNamespace, launcher: LocalLauncher, home: Path
) -> None:
    view = DataflowView(registry, "quiet")
    view.submit(flow("quiet"), ["log:/logs/out"], SYSTEM_CLOCK.now_ms())
    registry.create(view.paths.source_stream("src", "in/0"), parents=True)
    namespace.create("in/0")
    with namespace.open_writer("in/0") as writer:
        writer.write(bytes(range(256))).result(60)
    held_by = HeldBy("quiet", "src", "in/*")
    namespace.register_reader("in/0", held_by.reader, commit_log=held_by.commit_log("in/0"))
    namespace.register_reader("in/0", "somebody's own reader")
    ran(launcher, registry.hosts, "quiet")
    elsewhere = ran(launcher, "elsewhere:1", "gone")
    before = whole_tree(registry)
    assert found(registry, home) == {}
    repaired(registry, home)
    assert whole_tree(registry) == before
    assert Path(elsewhere.directory).exists()


def test_what_a_dataflow_that_is_not_there_has_left_is_found_and_removed(
    registry: Registry, namespace: LogNamespace, launcher: LocalLauncher, home: Path
) -> None:
    view = DataflowView(registry, "gone")
    view.submit(flow("gone"), ["log:/logs/out"], SYSTEM_CLOCK.now_ms())
    registry.create(f"{view.paths.source_stream('src', 'in/0')}/commit-log", parents=True)
    namespace.create("in/0")
    namespace.register_reader("in/0", HeldBy("gone", "src", "in/*").reader)
    running = ran(launcher, registry.hosts, "gone", "import threading; threading.Event().wait()")
    registry.delete(view.paths.root, recursive=True)
    told = found(registry, home)
    assert {kind: len(lines) for kind, lines in told.items()} == {"positions": 1, "claim": 1, "hold": 1, "container": 1}
    assert "it runs" in told["container"][0]
    repaired(registry, home)
    assert found(registry, home) == {}
    assert namespace.registered_readers("in/0") == {}
    assert not Path(running.directory).exists()
    wait_until(lambda: not Path(f"/proc/{running.pid}").exists() or launcher.poll(running), 120, "its end")


def test_what_crashes_have_left_in_a_store_is_found_and_records_are_never_removed(
    registry: Registry, namespace: LogNamespace, store: Path, home: Path
) -> None:
    namespace.create("in/0")
    (mine,) = (path for path in store.iterdir() if path.is_dir())
    empty, full = store / "in%2F1-0123456789ab", store / "in%2F2-0123456789ab"
    for directory in (empty, full):
        directory.mkdir()
    (full / f"{1:018d}-1.log").write_bytes(b"somebody's records")
    draft = mine / f"{1:018d}-1.idx-{os.getpid()}"
    draft.write_bytes(b"half")
    told = found(registry, home)
    assert {kind: len(lines) for kind, lines in told.items()} == {"log directory": 2, "index draft": 1}
    assert [one for one in leftovers(registry, home) if one.remove is not None] == [], "they are younger than an hour"
    repaired(registry, home)
    assert sorted(path for path in store.iterdir() if path.is_dir()) == sorted([mine, full])
    assert not draft.exists()
    assert "18 bytes of segments" in found(registry, home)["log directory"][0]


def test_commit_logs_of_a_spark_job_that_committed_stay(
    registry: Registry, namespace: LogNamespace, home: Path
) -> None:
    for name, number in (("job-" + "a" * 32, 0), ("job-" + "b" * 32, 1), ("my-stream", 0)):
        log = CommitLog(dataflow=f"spark/{name}", task="out", owner="", lease=0, epoch=0, round=number)
        registry.create(f"/deep/er/logs/spark/{name}/out", log.to_bytes(), parents=True)
    (line,) = found(registry, home)["Spark job"]
    assert "a" * 32 in line
    repaired(registry, home)
    assert registry.children("/deep/er/logs/spark") == ["job-" + "b" * 32, "my-stream"]


def test_a_deletion_that_was_cut_short_is_told_with_the_next_step(registry: Registry, home: Path) -> None:
    view = DataflowView(registry, "half")
    view.submit(flow("half"), [], SYSTEM_CLOCK.now_ms())
    view.set_status(view.status().model_copy(update={"state": "deleting"}))
    (line,) = found(registry, home)["dataflow"]
    assert "`scribengin delete half`" in line


def test_the_command_says_what_it_did(line: CommandLine, registry: Registry, home: Path) -> None:
    clean = line.ok("registry", "check")
    assert (clean.out, "nothing that belongs to nobody" in clean.err) == ("", True)
    stray = paths.DataflowPaths("gone").source_stream("src", "in/0")
    registry.create(stray, parents=True)
    told = line("registry", "check")
    assert (told.code, told.out) == (1, "positions: gone.src, of dataflow 'gone', which is not there\n")
    assert registry.find(stray) is not None
    assert line("registry", "check", "--json").json[0]["removed"] is False
    mended = line.ok("registry", "check", "--repair")
    assert mended.out.startswith("removed: positions: gone.src")
    assert registry.find(stray) is None
    line.ok("registry", "check")
