"""Logs in a directory of another machine, as a source and as a sink, through the proxies that run there: both pass
their suites, and what happens to proxies and messages in a round loses and doubles nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, TypeVar

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.base.process.machine import MACHINE_VARIABLE
from scribengin.connectors import Environment, open_sink, open_source
from scribengin.connectors.contract import Attempt, Sink, SinkStreamWriter, Source
from scribengin.connectors.log.reaching import open_namespace
from scribengin.connectors.log.sink import LogSinkConfig
from scribengin.connectors.log.source import LogSourceConfig
from scribengin.dataflow.config import load_config
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import (
    AccessDenied,
    ConfigInvalid,
    Fenced,
    LogWriteFailed,
    ProxyUnreachable,
    StoreElsewhere,
    StoreUnreachable,
)
from scribengin.log import DLSN, LogConfig, LogNamespace, LogReader
from scribengin.operations.registry.leftovers import SETTLED_S, leftovers
from scribengin.proxy import AccessConfig, NamespaceElsewhere, ProxyClientConfig, ProxyConfig, ProxyServer
from scribengin.proxy.client import elsewhere
from scribengin.proxy.client.segments import ProxiedLocation
from scribengin.proxy.client.transport import FlightTransport, ProxyTransport
from scribengin.proxy.config import TOKEN_VARIABLE
from scribengin.proxy.state import resend
from scribengin.testing import check_sink, check_source
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.waiting import wait_until
from scribengin.worker.failures import Remedy, remedy_for
from scribengin.worker.host import WorkerHost
from scribengin.worker.process import WorkerProcess, WorkerSettings
from tests.contract.connectors.test_sink_log import stage
from tests.contract.direct_transport import DirectTransport
from tests.dying import Died, die

_T = TypeVar("_T")
PATH, OUT = "/logs", "out/0"
COMMIT_LOG = "/scribengin/locks/commit-log"


class Later:
    """What was made just now has settled by this clock."""

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + int(SETTLED_S * 1000) + 60_000

    def monotonic_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s()


@dataclass
class TwoMachines:
    """A directory on alpha, which proxies serve. The test is on beta."""

    stack: ExitStack
    ensemble: MemoryEnsemble
    monkeypatch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        self.registry = self.session()
        self.environment = Environment(registry=self.registry, dataflow="conformance", nodes=STREAM_NODES)

    def session(self) -> MemoryRegistry:
        return self.stack.enter_context(self.ensemble.connect())

    def on_alpha(self, do: Callable[[], _T]) -> _T:
        """What that does there."""
        self.monkeypatch.setenv(MACHINE_VARIABLE, "alpha")
        try:
            return do()
        finally:
            self.monkeypatch.setenv(MACHINE_VARIABLE, "beta")

    def start_proxy(self, session: MemoryRegistry | None = None, **config: object) -> ProxyServer:
        parsed = ProxyConfig.parse(config, source="a test")
        return self.stack.enter_context(self.on_alpha(lambda: ProxyServer(PATH, session or self.session(), parsed)))

    def there(self) -> LogNamespace:
        """The namespace on its own machine."""
        return self.stack.enter_context(self.on_alpha(lambda: LogNamespace.open(PATH, registry=self.session())))

    def sink(self) -> Sink:
        return open_sink("out", LogSinkConfig(kind="log", log="out"), self.environment)

    def source(self) -> Source:
        return open_source("in", LogSourceConfig(kind="log", logs="in/*"), self.environment)

    def reached(self, transport: ProxyTransport | None = None, **client: object) -> LogNamespace:
        """The namespace from beta."""
        config = ProxyClientConfig.parse({"patience_s": 20, **client}, source="a test")
        found = NamespaceElsewhere.find(PATH, self.session(), client=config, transport=transport)
        assert found is not None
        return self.stack.enter_context(found)


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoMachines]:
    with ExitStack() as stack:
        made = TwoMachines(stack, MemoryEnsemble(), monkeypatch)
        made.on_alpha(lambda: LogNamespace.bind(PATH, tmp_path, registry=made.registry))
        yield made


class LossyTransport(ProxyTransport):
    """Loses some requests, and some answers. Which ones, the threads that ask decide as well as the seed."""

    def __init__(self, seed: int) -> None:
        self._real = FlightTransport()
        self._chance = random.Random(seed)

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        self._lose("request")
        answer = self._real.call(address, kind, body, timeout_s)
        self._lose("answer")
        return answer

    def _lose(self, what: str) -> None:
        if self._chance.randrange(100) < 20:
            raise ProxyUnreachable(f"the {what} was lost")

    def close(self) -> None:
        self._real.close()


def commit(registry: MemoryRegistry, epoch: int, committed: CommitDescriptor | None) -> Attempt:
    """The task is that owner's, and has committed that."""
    log = CommitLog(
        dataflow="flow", task="task-0", owner=f"owner-{epoch}", generation=1, epoch=epoch, round=1, committed=committed
    )
    if registry.find(COMMIT_LOG) is None:
        registry.create(COMMIT_LOG, parents=True)
    registry.set(COMMIT_LOG, log.to_bytes())
    return Attempt(log.owner, epoch, COMMIT_LOG)


def take(machines: TwoMachines, epoch: int, committed: CommitDescriptor | None = None) -> SinkStreamWriter:
    """The writer of the first stream of a sink, recovered by another owner."""
    sink = machines.stack.enter_context(closing(machines.sink()))
    streams = sink.streams(1)
    sink.create(streams)
    writer = sink.open_writer(streams[0], commit(machines.registry, epoch, committed))
    writer.recover(committed)
    return writer


def test_logs_of_another_machine_are_a_sink(machines: TwoMachines, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = machines.start_proxy()
    direct = DirectTransport(proxy)  # an owner of the suite dies at a stop in there
    monkeypatch.setattr(elsewhere, "FlightTransport", lambda _credentials: direct)
    check_sink(machines.sink, machines.registry)


def test_logs_of_another_machine_are_a_source(machines: TwoMachines) -> None:
    machines.start_proxy()
    there = machines.there()
    logs = ["in/2", "in/10"]
    for log in logs:
        there.create(log, LogConfig(segment_bytes_max=4096))
    with ExitStack() as writing:
        writers = {log: writing.enter_context(there.open_writer(log)) for log in logs}

        def append(stream: str, payloads: Sequence[bytes]) -> None:
            for future in [writers[stream].write(payload) for payload in payloads]:
                future.result(120)

        check_source(machines.source, append, seal=lambda stream: writers[stream].mark_end_of_stream())


def test_without_a_proxy_the_other_machine_is_named_with_the_ways_out(machines: TwoMachines) -> None:
    for make in (machines.sink, machines.source, lambda: open_namespace(PATH, registry=machines.registry)):
        with pytest.raises(StoreElsewhere, match=r"alpha.* beta: open it there through a proxy \(`scribengin proxy`\)"):
            make()


def test_who_runs_a_dataflow_that_was_submitted_waits_for_the_next_proxy(machines: TwoMachines) -> None:
    machines.start_proxy().close()
    submitted = replace(machines.environment, submitted=True)
    sink = machines.stack.enter_context(closing(open_sink("out", LogSinkConfig(kind="log", log="out"), submitted)))
    machines.stack.enter_context(
        closing(open_source("in", LogSourceConfig(kind="log", logs="in/*"), submitted))
    )  # a worker that starts while none runs
    found = NamespaceElsewhere.find(PATH, machines.session(), client=ProxyClientConfig(patience_s=0.05), awaited=True)
    assert found is not None
    with found, pytest.raises(StoreUnreachable, match="no proxy of this namespace runs") as away:
        found.create("early")
    assert remedy_for(away.value).remedy is Remedy.AWAY
    machines.start_proxy()
    [stream] = sink.streams(1)
    sink.create([stream])
    with closing(sink.open_writer(stream, commit(machines.registry, 1, None))) as writer:
        writer.recover(None)
        writer.complete_commit(stage(writer, "1"))
    assert payloads_read(machines.there(), OUT) == [b"1"]


def test_what_is_planned_is_read_by_the_proxies_that_run_by_then(machines: TwoMachines) -> None:
    """A reader has a segment open for as long as it is written, and proxies come and go meanwhile."""
    first = machines.start_proxy()
    there = machines.there()
    there.create("in/0")
    with there.open_writer("in/0") as writer:
        writer.write(b"1").result(120)
        reader = machines.stack.enter_context(machines.reached().open_reader("in/0"))
        assert addresses_planned(reader) == (first.address,)
        first.close()
        second = machines.start_proxy()
        wait_until(lambda: addresses_planned(reader) == (second.address,), what="a plan by the second proxy")
        plan = reader.plan(DLSN.INITIAL, 1000, 1 << 20)
        assert plan is not None
        assert [batch.column("payload").to_pylist() for split in plan.splits for batch in split.read()] == [[b"1"]]


def addresses_planned(reader: LogReader) -> tuple[str, ...]:
    """By which proxies what is planned next is to be read."""
    plan = reader.plan(DLSN.INITIAL, 1000, 1 << 20)
    assert plan is not None
    [split] = plan.splits
    assert isinstance(split.location, ProxiedLocation)
    return split.location.addresses


def test_a_worker_that_starts_while_no_proxy_runs_opens_its_dataflow(machines: TwoMachines) -> None:
    config = load_config(
        {
            "name": "flow",
            "sources": {"in": {"kind": "log", "logs": "in/*"}},
            "sinks": {"out": {"kind": "log", "log": "out"}},
            "sql": "SELECT payload FROM in",
        }
    )
    DataflowView(machines.registry, "flow").submit(config, ["log:/logs/out"], now_ms=1)

    class Opened(Exception):
        """The worker has its sources and sinks, and goes on."""

    def start(_opened: object, _name: str) -> NoReturn:
        raise Opened

    host = WorkerHost(start_transform=start, on_termination=lambda _told: None)
    worker = WorkerProcess(machines.session(), WorkerSettings("flow", "worker-1", "worker-1"), SYSTEM_CLOCK, host)
    with pytest.raises(Opened):
        worker.run()


def test_what_the_directory_is_called_here_is_not_looked_at(machines: TwoMachines, tmp_path: Path) -> None:
    machines.start_proxy()
    machines.reached().create(OUT)
    (tmp_path / "of somebody").mkdir()
    for one in list(leftovers(machines.registry, tmp_path / "home", Later())):
        if one.remove is not None:
            one.remove()
    assert (tmp_path / "of somebody").is_dir()
    stray = machines.on_alpha(lambda: [one.line for one in leftovers(machines.registry, tmp_path / "home", Later())])
    assert [line for line in stray if "of somebody" in line], "there it is a leftover"
    with pytest.raises(ConfigInvalid, match="do it on that machine"):
        _ = machines.reached().local_directory


def test_a_deletion_that_was_cut_short_is_ended_on_the_machine_of_the_logs(
    machines: TwoMachines, tmp_path: Path
) -> None:
    machines.start_proxy()
    there = machines.there()
    there.create(OUT, LogConfig(segment_bytes_max=4096, cold_url=str(tmp_path / "cold")))
    with there.open_writer(OUT) as writer:
        for _ in range(2):
            writer.write(bytes(5000)).result(120)
        there.offload(OUT)
    with pytest.raises(ConfigInvalid, match="a directory of the machine of the logs: delete it there"):
        machines.reached().delete(OUT)
    there.configure(OUT, LogConfig(segment_bytes_max=4096))
    for take_it in (machines.reached().open_writer, machines.reached().recover):
        with pytest.raises(ConfigInvalid, match="a directory of the machine of the logs: write it there"):
            take_it(OUT)
    assert payloads_read(there, OUT) == [bytes(5000)] * 2
    with at_failpoint("log.cold_remove:before", die), pytest.raises(Died):
        there.delete(OUT)
    [cut] = [one for one in leftovers(machines.registry, tmp_path / "home", Later()) if one.kind == "log"]
    assert cut.remove is None
    assert cut.next_step.startswith("end it on the machine of ")


def test_only_a_directory_of_one_machine_is_reached_so_and_who_fails_leaves_nothing_open(
    machines: TwoMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryDisk("a disk that all reach")
    LogNamespace.bind("/shared", disk.name, registry=machines.registry, store=MEMORY_STORE)
    with pytest.raises(ConfigInvalid, match="open it with LogNamespace"):
        NamespaceElsewhere.find("/shared", machines.session(), awaited=True)
    closed: list[str] = []

    class Counting(FlightTransport):
        def close(self) -> None:
            closed.append("transport")
            super().close()

    def refuse(*_given: object) -> None:
        raise ConfigInvalid("refused")

    monkeypatch.setattr(elsewhere, "FlightTransport", Counting)
    monkeypatch.setattr(elsewhere, "StoreElsewhereByProxies", refuse)
    with pytest.raises(ConfigInvalid, match="refused"):
        NamespaceElsewhere.find(PATH, machines.session(), awaited=True)
    assert closed == ["transport"]


def test_a_proxy_that_ends_in_a_round_takes_what_was_not_committed_along_and_nothing_else(
    machines: TwoMachines,
) -> None:
    first = machines.start_proxy()
    writer = take(machines, 1)
    writer.complete_commit(stage(writer, "1"))
    committed = stage(writer, "2")
    first.close()
    commit(machines.registry, 1, committed)  # the round is decided; nobody was able to show it
    with pytest.raises(LogWriteFailed):
        writer.complete_commit(committed)
    writer.close()
    second = machines.start_proxy()
    successor = take(machines, 2, committed)
    stage(successor, "3")
    second.close()
    machines.start_proxy()
    last = take(machines, 3, committed)
    last.complete_commit(stage(last, "4"))
    last.close()
    assert payloads_read(machines.there(), OUT) == [b"1", b"2", b"4"]


def test_who_was_succeeded_is_acknowledged_nothing_and_leaves_nothing_open(machines: TwoMachines) -> None:
    proxy = machines.start_proxy()
    stale = take(machines, 1)
    stale.complete_commit(stage(stale, "1"))
    stage(stale, "late")
    successor = take(machines, 2)
    with pytest.raises(Fenced):
        stage(stale, "later")
    successor.complete_commit(stage(successor, "2"))
    assert proxy.service.writes.open_segments == 1
    successor.close()
    assert proxy.service.writes.open_segments == 0
    assert payloads_read(machines.there(), OUT) == [b"1", b"2"]


@pytest.mark.parametrize("seed", range(3))
def test_lost_requests_and_answers_lose_and_double_nothing(
    machines: TwoMachines, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resend, "_PAUSE_S", 0.001)
    machines.start_proxy()
    machines.start_proxy()
    namespace = machines.reached(LossyTransport(seed))
    namespace.create(OUT, LogConfig(segment_bytes_max=4096))
    payloads = [b"%d" % n for n in range(120)]
    with namespace.open_writer(OUT) as writer:
        for payload in payloads:
            writer.write(payload).result(120)
    assert payloads_read(machines.there(), OUT) == payloads
    assert payloads_read(namespace, OUT) == payloads
    assert len(namespace.segments(OUT)) > 1, "it rolls"


def test_a_late_step_is_refused_and_one_that_comes_again_is_not_done_again(machines: TwoMachines) -> None:
    again: list[tuple[str, str, bytes]] = []

    class Recording(FlightTransport):
        def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
            if b"store_append" in body or b"store_show" in body:
                again.append((address, kind, body))
            return super().call(address, kind, body, timeout_s)

    machines.start_proxy()
    transport = Recording()
    namespace = machines.reached(transport)
    namespace.create(OUT)
    with namespace.open_writer(OUT) as writer:
        for payload in (b"1", b"2"):
            writer.write(payload).result(120)
        asked = list(again)
        for request in asked:
            answer = transport.call(*request, 60.0)
            done = request is asked[-1]
            assert bytes(answer[0])[:1] == (b"D" if done else b"R")
        writer.write(b"3").result(120)
    assert payloads_read(machines.there(), OUT) == [b"1", b"2", b"3"]


def test_who_writes_a_log_from_another_machine_needs_all_three_rights(
    machines: TwoMachines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rights = {"whole": ["read", "write", "administer"], "part": ["read", "write"]}
    callers = {}
    for name, all_rights in rights.items():
        monkeypatch.setenv(f"TOKEN_OF_{name}", f"the-long-enough-token-of-{name}")
        callers[name] = {"token": f"${{env:TOKEN_OF_{name}}}", "logs": {"*": all_rights}}
    machines.start_proxy(access=AccessConfig.parse({"callers": callers}, source="a test").model_dump(mode="json"))
    monkeypatch.setenv(TOKEN_VARIABLE, "${env:TOKEN_OF_whole}")
    writer = take(machines, 1)
    writer.complete_commit(stage(writer, "1"))
    writer.close()
    with pytest.raises(AccessDenied, match="caller 'part' may not administer it"):
        machines.reached(token="${env:TOKEN_OF_part}").open_writer(OUT, steal=True)
    assert payloads_read(machines.there(), OUT) == [b"1"]


def test_what_is_cold_in_a_directory_there_is_not_looked_for_here(machines: TwoMachines, tmp_path: Path) -> None:
    machines.start_proxy()
    namespace = machines.reached()
    cold = tmp_path / "cold"
    namespace.create(OUT, LogConfig(segment_bytes_max=4096))
    with namespace.open_writer(OUT) as writer:
        machines.there().configure(OUT, LogConfig(cold_url=str(cold), segment_bytes_max=4096))
        for _ in range(2):
            writer.write(bytes(5000)).result(120)
        wait_until(lambda: writer.maintenance_failure is not None, what="the writer has looked for cold storage")
        assert "is a directory of the machine of the logs" in str(writer.maintenance_failure)
    with pytest.raises(ConfigInvalid, match=r"cold_url .* is a directory of the machine of the logs"):
        namespace.open_writer(OUT)
    with pytest.raises(ConfigInvalid, match=f"write it as {cold}"):
        namespace.create("other", LogConfig(cold_url=f"file://{cold}"))
    assert not cold.exists()
    there = machines.there()
    there.offload(OUT)
    assert cold.exists()
    assert payloads_read(namespace, OUT) == [bytes(5000)] * 2
