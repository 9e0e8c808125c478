"""`scribengin registry check`: what belongs to nobody is found, and removed if asked for; nothing else is touched."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.connectors.contract import Attempt
from scribengin.connectors.files import FileSink, FileSinkConfig
from scribengin.connectors.log.holds import Holds
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.config_node import as_json
from scribengin.dataflow.registry.deletion import delete_nodes
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import StoreUnreachable
from scribengin.launcher.contract import ContainerDescriptor, ContainerRequest
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.log import LogConfig, LogNamespace, RetentionHold
from scribengin.operations import delete
from scribengin.operations.registry.leftovers import SETTLED_S, leftovers
from scribengin.operations.submit.origins import remember_origin
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Delete, Operation, Registry
from tests.dying import Died, die
from tests.integration.cli_runner import CommandLine, quiet_config, whole_tree

SINKS = f"{paths.ROOT}/locks/sinks"


class Later:
    """What was made just now has settled by this clock."""

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + int(SETTLED_S * 1000) + 60_000

    def monotonic_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s()


def file_sink(path: Path) -> FileSinkConfig:
    return FileSinkConfig.parse({"kind": "hdfs", "path": str(path), "format": "json"}, source="the test")


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
    held_by = RetentionHold(dataflow="quiet", source="src", pattern="in/*")
    Holds(STREAM_NODES).hold_for(namespace, "in/0", [held_by])
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
    namespace.register_hold("in/0", RetentionHold(dataflow="gone", source="src", pattern="in/*"))
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


@pytest.mark.usefixtures("unmaintained")
def test_a_log_whose_deletion_was_cut_short_by_its_cold_storage_is_found_and_ended(
    registry: Registry, namespace: LogNamespace, store: Path, home: Path
) -> None:
    files = MemoryFiles("cold")
    with files.opened_by("cold"):
        namespace.create("in/0", LogConfig(cold_url="cold://kept"))
        with namespace.open_writer("in/0") as writer:
            writer.write(bytes(range(256))).result(60)
        assert namespace.offload("in/0") == 1
        place = f"/kept/{namespace.info('in/0').log.directory}"
        assert found(registry, home) == {}
        files.away = True
        with pytest.raises(StoreUnreachable):
            namespace.delete("in/0")
        files.away = False
        assert not list(leftovers(registry, home)), "it is younger than an hour"
        assert found(registry, home) == {"log": ["log: the deletion of 'in/0' of /deep/er/logs was cut short"]}
        repaired(registry, home)
        assert found(registry, home) == {}
        assert files.names(place) == []
    assert [path for path in store.iterdir() if path.is_dir()] == []


def test_commit_logs_of_spark_jobs_go_once_no_log_asks_for_them(
    registry: Registry, namespace: LogNamespace, home: Path
) -> None:
    for name, number in (("job-" + "a" * 32, 0), ("job-" + "b" * 32, 1), ("my-stream", 0)):
        log = CommitLog(dataflow=f"spark/{name}", task="out", owner="", generation=0, epoch=0, round=number)
        registry.create(f"/deep/er/logs/spark/{name}/out", log.to_bytes(), parents=True)
    told = found(registry, home)["Spark job"]
    assert [line.rpartition(", ")[2] for line in told] == [
        "of a job that has failed",
        "of a job that has died after its commit",
    ]
    assert not list(leftovers(registry, home)), "they are younger than an hour: the job may be at it"
    repaired(registry, home)
    assert registry.children("/deep/er/logs/spark") == ["my-stream"]


@pytest.mark.parametrize("committed", [True, False])
def test_what_a_spark_job_has_committed_is_shown_before_its_commit_log_goes(
    line: CommandLine, registry: Registry, namespace: LogNamespace, home: Path, committed: bool
) -> None:
    """Also where it has not: the log's next writer asks, and takes no silence for an answer."""
    folder = "spark/job-" + "a" * 32
    unfinished(registry, namespace, "out", f"{folder}/out", committed=committed)
    (told,) = found(registry, home)["Spark job"]
    assert "`scribengin log recover out --namespace /deep/er/logs` ends it" in told
    before = whole_tree(registry)
    repaired(registry, home)
    assert whole_tree(registry) == before
    line.ok("log", "recover", "out", "--namespace", "/deep/er/logs")
    repaired(registry, home)
    assert registry.children("/deep/er/logs/spark") == []
    assert namespace.count("out") == (3 if committed else 0)


def unfinished(registry: Registry, namespace: LogNamespace, log: str, commit_log: str, *, committed: bool) -> None:
    """A log whose writer dies with a staged round, and perhaps with its commit."""
    path = commit_log if commit_log.startswith("/") else f"{namespace.path}/{commit_log}"
    said = CommitLog(dataflow="gone", task=log, owner="", generation=0, epoch=0, round=0)
    registry.create(path, said.to_bytes(), parents=True)
    namespace.create(log)
    writer = namespace.open_writer(log, commit_log=commit_log)
    writer.stage(pa.record_batch({"payload": pa.array([b"\xff", b"", bytes(range(256))], pa.binary())}))
    staged = writer.prepare()
    assert staged is not None
    if committed:
        described = CommitDescriptor(kind="log", records=staged.records, data=staged.model_dump(mode="json"))
        registry.set(path, said.model_copy(update={"round": 1, "committed": described}).to_bytes())
    writer.abort()
    assert namespace.commit_log_of(log) == path


def test_a_claim_whose_log_was_left_unfinished_stays_until_the_log_is_ended(
    line: CommandLine, registry: Registry, namespace: LogNamespace, home: Path
) -> None:
    claim = paths.sink_resource("log:/deep/er/logs/out")
    registry.create(claim, b'{"dataflow": "gone"}', parents=True)
    unfinished(registry, namespace, "out/0", f"{claim}/0/commit-log", committed=True)
    (told,) = found(registry, home)["claim"]
    assert "log 'out/0' was left unfinished" in told
    repaired(registry, home)
    assert registry.find(claim) is not None
    line.ok("log", "recover", "out/0", "--namespace", "/deep/er/logs")
    assert namespace.count("out/0") == 3
    repaired(registry, home)
    assert registry.find(claim) is None


def test_a_claim_that_names_no_dataflow_is_found_once_it_has_settled(registry: Registry, home: Path) -> None:
    """A worker that lived through its dataflow's deletion had left such a node."""
    claim = paths.sink_resource("log:/deep/er/logs/out")
    log = CommitLog(dataflow="gone", task="task-0", owner="worker-1/e", generation=1, epoch=1, round=1)
    registry.create(f"{claim}/0/commit-log", log.to_bytes(), parents=True)
    assert not list(leftovers(registry, home)), "it is younger than an hour: a chain may be about to claim it"
    assert found(registry, home) == {"claim": ["claim: log:/deep/er/logs/out, which names no dataflow"]}
    DataflowView(registry, "gone").submit(flow("gone"), [], SYSTEM_CLOCK.now_ms())
    assert found(registry, home) == {}, "a dataflow that is there has written there: somebody has harmed the node"
    delete_nodes(DataflowView(registry, "gone"))
    repaired(registry, home)
    assert registry.find(claim) is None


def test_a_claim_that_named_no_dataflow_stays_once_it_names_one(registry: Registry, files: Files, home: Path) -> None:
    registry.set(files.claim, b"")
    files.stage("1")
    suspects = [one for one in leftovers(registry, home, Later()) if one.remove is not None]
    assert sorted(one.kind for one in suspects) == ["claim", "staged files"]
    DataflowView(registry, "other").submit(flow("other"), [files.sink.resource], SYSTEM_CLOCK.now_ms())
    before = whole_tree(registry)
    for one in suspects:
        assert one.remove is not None
        one.remove()
    assert whole_tree(registry) == before
    assert files.below("staged") == 1


class Files:
    """A file sink whose dataflow is not there any more."""

    def __init__(self, registry: Registry, path: Path) -> None:
        self.registry, self.path = registry, path
        self.sink = FileSink("out", file_sink(path), registry, STREAM_NODES, SYSTEM_CLOCK)
        self.streams = self.sink.streams(1)
        self.claim = paths.sink_resource(self.sink.resource)
        registry.create(self.claim, b'{"dataflow": "gone"}', parents=True)
        self.sink.create(self.streams)
        self.log = CommitLog(dataflow="gone", task="task-0", owner="o", generation=1, epoch=1, round=1)
        registry.create(f"{self.claim}/0/commit-log", self.log.to_bytes())

    def stage(self, *payloads: str) -> CommitDescriptor:
        self.log = self.log.model_copy(update={"epoch": self.log.epoch + 1})
        attempt = Attempt("o", self.log.epoch, f"{self.claim}/0/commit-log")
        self.writer = self.sink.open_writer(self.streams[0], attempt)
        self.writer.recover(self.log.committed)
        self.writer.write(pa.record_batch({"payload": pa.array(payloads, pa.string())}))
        prepared = self.writer.prepare_commit()
        assert prepared is not None
        return prepared

    def commit(self, prepared: CommitDescriptor) -> None:
        self.log = self.log.model_copy(update={"committed": prepared})
        self.registry.set(f"{self.claim}/0/commit-log", self.log.to_bytes())

    def below(self, kind: str) -> int:
        return len(list((self.path / "_scribengin" / kind / "0").iterdir()))


@pytest.fixture
def files(registry: Registry, tmp_path: Path) -> Files:
    return Files(registry, tmp_path / "out")


def test_staged_files_that_no_commit_names_go_and_then_the_claim(registry: Registry, files: Files, home: Path) -> None:
    files.stage("Grüße", "")
    (files.path / "_scribengin" / "merging" / "0" / "1-2-abcd").write_bytes(b"half")
    told = found(registry, home)
    assert told["staged files"] == [f"staged files: 2 in {files.path}, of dataflow 'gone', which is not there"]
    assert len(told["claim"]) == 1
    repaired(registry, home)
    assert (files.below("staged"), files.below("merging"), registry.find(files.claim)) == (0, 0, None)
    assert found(registry, home) == {}


@pytest.mark.parametrize("named_by", ["a config", "an origin", "nobody"])
def test_files_whose_claim_is_gone_are_told_where_a_directory_is_still_named(
    registry: Registry, files: Files, home: Path, tmp_path: Path, named_by: str
) -> None:
    files.stage("1")
    registry.delete(files.claim, recursive=True)
    config = flow("gone").model_copy(update={"sinks": {"out": file_sink(files.path)}})
    if named_by == "a config":
        DataflowView(registry, "gone").submit(config, [], SYSTEM_CLOCK.now_ms())
    elif named_by == "an origin":
        package = tmp_path / "package"
        package.mkdir()
        (package / "package.json").write_text(json.dumps(as_json(config)))
        remember_origin(home, registry.hosts, "gone", str(package))
        remember_origin(home, registry.hosts, "other", str(tmp_path / "away"))
    told = found(registry, home)
    if named_by == "nobody":
        assert told == {}
        return
    (line,) = told["unclaimed files"]
    assert line.startswith(f"unclaimed files: 1 staged below {files.path}, which no claim names; nobody can say")
    repaired(registry, home)
    assert files.below("staged") == 1


def test_the_claim_of_a_table_is_told_and_goes_only_when_it_is_to_be_repaired(registry: Registry, home: Path) -> None:
    claim = paths.sink_resource("spark:jdbc:dbtable=words url=jdbc:h2:mem")
    registry.create(f"{claim}/0", b"", parents=True)
    registry.set(claim, b'{"dataflow": "gone"}')
    assert len(found(registry, home)["claim"]) == 1
    assert registry.find(claim) is not None
    repaired(registry, home)
    assert registry.find(claim) is None


def test_files_that_were_committed_are_told_and_never_removed_at_any_step_of_their_way(
    registry: Registry, files: Files, home: Path
) -> None:
    prepared = files.stage("Grüße", "")
    files.commit(prepared)
    steps: list[tuple[str, Callable[[], object]]] = [
        ("1 committed files of its last round are not in their place", lambda: files.writer.complete_commit(prepared)),
        ("1 committed files wait to be merged", lambda: files.sink.maintain(registry, idle=True)),
    ]
    for why, end in steps:
        told = found(registry, home)
        assert told.keys() == {"claim"}
        assert why in told["claim"][0]
        assert "submit 'gone' again" in told["claim"][0]
        repaired(registry, home)
        assert registry.find(files.claim) is not None
        end()
    assert [path.read_text() for path in files.path.glob("part-*")] == ["Grüße\n\n"]
    repaired(registry, home)
    assert found(registry, home) == {}
    assert [path.read_text() for path in files.path.glob("part-*")] == ["Grüße\n\n"]


def test_a_merge_that_is_decided_is_told_and_what_it_made_is_no_stray(
    registry: Registry, files: Files, home: Path
) -> None:
    prepared = files.stage("1")
    files.commit(prepared)
    files.writer.complete_commit(prepared)
    with at_failpoint("files.merge_place:before", die), pytest.raises(Died):
        files.sink.maintain(registry, idle=True)
    told = found(registry, home)
    assert told.keys() == {"claim"}
    assert "the merge that makes part-00000-00000000.jsonl is not done" in told["claim"][0]
    repaired(registry, home)
    assert files.below("merging") == 1


def test_files_that_cannot_be_seen_from_here_are_not_taken_for_gone(
    registry: Registry, files: Files, home: Path
) -> None:
    prepared = files.stage("1")
    files.commit(prepared)
    files.path.rename(files.path.with_name("elsewhere"))
    assert "is not to be seen from here" in found(registry, home)["claim"][0]


def test_nothing_is_removed_of_a_dataflow_that_came_back_meanwhile(
    registry: Registry, files: Files, home: Path
) -> None:
    files.stage("1")
    suspects = [one for one in leftovers(registry, home, Later()) if one.remove is not None]
    assert len(suspects) == 2
    DataflowView(registry, "gone").submit(flow("gone"), [], SYSTEM_CLOCK.now_ms())
    for one in suspects:
        assert one.remove is not None
        one.remove()
    assert (files.below("staged"), registry.find(files.claim) is None) == (1, False)


def test_what_runs_of_a_dataflow_that_was_submitted_again_at_once_is_not_ended_with_the_deleted_one(
    registry: Registry, launcher: LocalLauncher, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = "import threading; threading.Event().wait()"
    view = DataflowView(registry, "gone")
    view.submit(flow("gone"), [], SYSTEM_CLOCK.now_ms())
    view.set_status(view.status().model_copy(update={"state": "stopped"}))
    old = ran(launcher, registry.hosts, "gone", waits)
    new: list[ContainerDescriptor] = []

    def at_once(there: DataflowView, mark: str) -> None:
        delete_nodes(there, mark)
        view.submit(flow("gone"), [], SYSTEM_CLOCK.now_ms())
        new.append(ran(launcher, registry.hosts, "gone", waits))

    monkeypatch.setattr(delete, "delete_nodes", at_once)
    delete.delete_dataflow(view, force=True)
    assert not Path(old.directory).exists()
    assert [launcher.poll(container) for container in new] == [None]
    assert Path(new[0].directory).exists()


@pytest.mark.parametrize("back", ["before", "within"])
def test_positions_and_holds_of_a_dataflow_that_came_back_meanwhile_stay(
    registry: Registry, namespace: LogNamespace, home: Path, monkeypatch: pytest.MonkeyPatch, back: str
) -> None:
    """Also where it comes back when it was looked whether it is there."""
    view = DataflowView(registry, "gone")
    position = f"{view.paths.source_stream('src', 'in/0')}/commit-log"
    log = CommitLog(dataflow="gone", task="task-0", owner="o", generation=1, epoch=1, round=1)
    registry.create(position, log.to_bytes(), parents=True)
    namespace.create("in/0")
    namespace.register_hold("in/0", RetentionHold(dataflow="gone", source="src", pattern="in/*"))
    suspects = [one for one in leftovers(registry, home, Later()) if one.remove is not None]
    assert sorted(one.kind for one in suspects) == ["hold", "positions"]
    if back == "before":
        view.submit(flow("gone"), [], SYSTEM_CLOCK.now_ms())
    commit = type(registry).commit

    def late(session: Registry, operations: Sequence[Operation]) -> list[int]:
        if Delete(position) in operations and registry.find(view.paths.root) is None:
            view.submit(flow("gone"), [], SYSTEM_CLOCK.now_ms())
        return commit(session, operations)

    if back == "within":
        monkeypatch.setattr(type(registry), "commit", late)
    for one in suspects:
        assert one.remove is not None
        one.remove()
    assert registry.find(position) is not None
    assert view.status().state == "starting"
    assert namespace.registered_readers("in/0") != {}


def test_the_numbers_of_a_deleted_dataflow_are_no_leftover(registry: Registry, home: Path) -> None:
    """They are what keeps a process of it, that nobody could reach, from being taken for one of the next dataflow of
    that name. So they stay for good, however long it is gone."""
    view = DataflowView(registry, "gone")
    view.submit(flow("gone"), [], SYSTEM_CLOCK.now_ms())
    before = view.numbers_reached()
    delete_nodes(view)
    assert registry.find(paths.numbers_of_name("gone")) is not None
    assert found(registry, home) == {}
    repaired(registry, home)
    view.submit(flow("gone"), [], SYSTEM_CLOCK.now_ms())
    head = view.placement_head().value
    assert head.first_worker >= before.worker, "no worker of the new one has the name of an old one"
    assert head.first_master >= before.master
    assert head.first_generation >= before.generation


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
