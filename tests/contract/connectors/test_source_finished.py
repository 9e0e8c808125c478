"""Very many finished files: their names leave the position for nodes of the registry, and nothing is read twice, or
missed, whatever is stopped where and whoever comes late."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scribengin.base.clock import Clock
from scribengin.base.model import Position
from scribengin.connectors.contract import RoundLimits, SourceStreamReader
from scribengin.connectors.files import FileSource, FileSourceConfig
from scribengin.connectors.files.source import finished
from scribengin.connectors.files.source import stream as module
from scribengin.connectors.files.source.finished import FinishedFiles, fold
from scribengin.connectors.files.source.position import POSITION_BYTES_MAX, FilePosition, SeenFile
from scribengin.errors import DataflowError
from scribengin.filesystems.contract import FileInfo
from scribengin.testing.failpoints import at_failpoint, record_stops
from scribengin_registry.contract import Registry
from tests.contract.connectors.clocks import LaterClock

NODE = "/streams/0/finished"
EACH = RoundLimits(5, 10**9)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds after some ten files, into nodes of some twenty."""
    monkeypatch.setattr(module, "INLINE_BYTES_MAX", 900)
    monkeypatch.setattr(finished, "NODE_BYTES_MAX", 2000)


def open_reader(path: Path, registry: Registry, clock: Clock) -> SourceStreamReader:
    """A reader as another process opens it."""
    config = FileSourceConfig.parse({"kind": "hdfs", "path": str(path), "settle_s": 0}, source="a test")
    source = FileSource("in", config, clock, lambda stream: FinishedFiles(registry, f"/streams/{stream}/finished"))
    return source.open_reader(source.streams()[0])


class Crash(BaseException):
    """What a test raises where a process would have died."""


def crash(_stop: str) -> None:
    raise Crash


def put(path: Path, *names: str) -> None:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{name}\n")


def names(first: int, end: int) -> list[str]:
    return [f"day-{n % 3}/file-{n:04d}" for n in range(first, end)]


class Flow:
    """A dataflow that only reads: `committed` is what its commit log would say, `found` what its sink would hold."""

    def __init__(self, path: Path, registry: Registry) -> None:
        self.path, self.registry = path, registry
        self.clock = LaterClock()
        self.found: list[str] = []
        self.reader = open_reader(path, registry, self.clock)
        self.committed: Position = self.reader.initial_position()

    def restart(self) -> None:
        self.reader = open_reader(self.path, self.registry, self.clock)

    def round(self) -> bool:
        plan = self.reader.plan(self.committed, EACH)
        if plan is None:
            return False
        batches = [batch for split in plan.splits for batch in split.read()]
        self.found += [payload.decode() for batch in batches for payload in batch["payload"].to_pylist()]
        self.committed = json.loads(json.dumps(plan.end))
        return True

    def run(self) -> list[str]:
        while self.round():
            assert len(json.dumps(self.committed)) < 3_000
        return sorted(self.found)

    def nodes(self) -> set[str]:
        return set(self.registry.children(NODE))


@pytest.mark.usefixtures("small")
def test_every_file_is_read_once_however_many_names_there_are(tmp_path: Path, registry: Registry) -> None:
    put(tmp_path, *names(0, 90))
    flow = Flow(tmp_path, registry)
    assert flow.run() == sorted(names(0, 90))
    assert flow.committed["fold"] > 3
    assert len(flow.committed["nodes"]) > 2
    put(tmp_path, "aa-late", *names(90, 95))
    flow.restart()
    assert flow.run() == sorted(["aa-late", *names(0, 95)])
    assert flow.nodes() == set(flow.committed["nodes"])


@pytest.mark.usefixtures("small")
def test_files_of_nodes_grow_go_and_come_back(tmp_path: Path, registry: Registry) -> None:
    put(tmp_path, *names(0, 40))
    flow = Flow(tmp_path, registry)
    flow.run()
    with (tmp_path / names(0, 40)[3]).open("a") as file:
        file.write("more\n")
    gone = names(0, 40)[7]
    (tmp_path / gone).unlink()
    assert flow.run() == sorted([*names(0, 40), "more"])
    (tmp_path / gone).write_text("another file of the same name, larger than the one before it\n")
    flow.restart()
    flow.found.clear()
    assert flow.run() == ["another file of the same name, larger than the one before it"]
    for name in names(0, 40)[10:30]:
        (tmp_path / name).unlink()
    put(tmp_path, *names(100, 130))
    flow.run()
    flow.restart()
    flow.found.clear()
    assert flow.run() == []
    assert flow.reader.lag(flow.committed) == 0
    flow.clock.later_s += module.GONE_S
    put(tmp_path, "zz-late")
    assert flow.run() == ["zz-late"]
    kept = FinishedFiles(registry, NODE).load(flow.committed["nodes"])
    there = {name for name in kept if name not in flow.committed["dropped"]}
    assert there.isdisjoint(names(0, 40)[10:30])


@pytest.mark.usefixtures("small")
def test_a_process_may_die_at_every_step_of_a_fold(tmp_path: Path, registry: Registry) -> None:
    put(tmp_path, *names(0, 60))
    stops = _stops(tmp_path, registry)
    assert {stop.partition(":")[0] for stop in stops} == {"files.finished_write", "files.finished_sweep"}
    for stop in sorted(set(stops)):
        for occurrence in range(1, stops.count(stop) + 1):
            _clear(registry)
            flow = Flow(tmp_path, registry)
            with at_failpoint(stop, crash, occurrence=occurrence), pytest.raises(Crash):
                flow.run()
            flow.restart()
            late = f"late-{stop.replace(':', '-')}-{occurrence}"
            put(tmp_path, late)  # so that the fold that is made again is another one
            assert flow.run().count(late) == 1
            assert sorted(set(flow.found)) == sorted(flow.found)
            flow.restart()
            assert not flow.round()
            assert flow.nodes() == set(flow.committed["nodes"])


def _stops(path: Path, registry: Registry) -> list[str]:
    with record_stops() as stops:
        Flow(path, registry).run()
    return stops


def _clear(registry: Registry) -> None:
    for name in registry.children(NODE):
        registry.delete(f"{NODE}/{name}")


@pytest.mark.usefixtures("small")
def test_a_stale_owner_takes_nothing_from_its_successor(tmp_path: Path, registry: Registry) -> None:
    put(tmp_path, *names(0, 30))
    flow = Flow(tmp_path, registry)
    flow.run()
    stale, position = open_reader(tmp_path, registry, flow.clock), flow.committed
    assert stale.lag(position) == 0  # it has seen what its nodes hold; its first sweep comes with its first round
    put(tmp_path, *names(30, 80))
    flow.restart()
    flow.run()
    assert flow.committed["fold"] > position["fold"]
    before = flow.nodes()
    assert stale.plan(position, EACH) is not None
    assert flow.nodes() >= before
    put(tmp_path, *names(80, 90))
    flow.restart()
    assert flow.run() == sorted(names(0, 90))


@pytest.mark.usefixtures("small")
def test_waiting_and_counting_write_nothing(tmp_path: Path, registry: Registry) -> None:
    put(tmp_path, *names(0, 11))
    flow = Flow(tmp_path, registry)
    with record_stops() as stops:
        assert flow.reader.wait(flow.committed, 0.0)
        assert flow.reader.lag(flow.committed) == 11
        assert not flow.reader.ended(flow.committed)
    assert stops == []


@pytest.mark.usefixtures("small")
def test_a_node_that_is_gone_or_unreadable_is_named(tmp_path: Path, registry: Registry) -> None:
    put(tmp_path, *names(0, 30))
    flow = Flow(tmp_path, registry)
    flow.run()
    node = f"{NODE}/{flow.committed['nodes'][0]}"
    registry.set(node, b"[]")
    flow.restart()
    with pytest.raises(DataflowError, match=rf"{node} does not hold the names of files; restore it"):
        flow.round()
    registry.delete(node)
    flow.restart()
    with pytest.raises(DataflowError, match=rf"{node} is gone: it said which files were read"):
        flow.round()


@pytest.mark.long
def test_a_hundred_thousand_names_make_a_small_position(registry: Registry) -> None:
    files = {
        f"dt=2013-{n % 12 + 1:02d}-01/hour={n % 24:02d}/part-{n:05d}-of-a-writer.parquet": SeenFile(
            n, 1_700_000_000_000 + n, f"{n:08x}", f"{n:x}.18ea9a6fdf95{n % 10000:04d}"
        )
        for n in range(100_000)
    }
    store = FinishedFiles(registry, NODE)
    position = fold(FilePosition(1, finished=files), store)
    assert len(json.dumps(position.to_position(what="in"))) < POSITION_BYTES_MAX // 15
    infos = [FileInfo(name, seen.read, seen.modified_ms, seen.identity) for name, seen in files.items()]
    infos.append(FileInfo("dt=2012-01-01/hour=00/late.parquet", 5, 0))
    folded = FinishedFiles(registry, NODE).load(position.nodes)
    assert folded == files
    assert [file.info.name for file in position.unread(infos, folded)] == [infos[-1].name]
    later = position.moved({infos[-1].name: SeenFile(5)}, {info.name: info.size_bytes for info in infos})
    kept = fold(later, store).nodes
    assert len(set(kept) - set(position.nodes)) == 1  # what is full is not written again
    assert len(set(position.nodes) - set(kept)) <= 1
