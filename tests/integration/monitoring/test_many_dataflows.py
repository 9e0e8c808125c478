"""Many dataflows of twenty tasks on one registry: what their masters and workers cost it, at rest and while some of
them are edited. Real masters and a real ZooKeeper; workers that do no work. Six of them; a hundred in `test --full`.

The bounds are counts, for each dataflow: of watches, of writes, of reads. What it took in seconds is only printed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.registry.view import DataflowView
from scribengin.monitoring.overview import overviews
from scribengin.testing.waiting import wait_until
from scribengin_dev.harness.idle_workers import Led, is_idle, led_by_masters, submit_all
from scribengin_dev.soak.measuring import server_figures
from scribengin_registry.contract import Node, Registry, Watch
from scribengin_registry.embedded import EmbeddedZooKeeper, ask_server
from scribengin_registry.opening import connect
from tests.crash.recorded_registry import RecordedRegistry

pytestmark = pytest.mark.timeout(1200)
STREAMS = 20
EDITED = {6: 4, 100: 10}
"""How many dataflows there are -> how many of them are edited at once."""
EDIT_WRITES_MAX = 40
"""Of one edit that moves ten tasks: it is accepted, a worker comes or goes, each task is released and placed."""
LIMIT_S = 600.0


@pytest.fixture(scope="module", params=[6, pytest.param(100, marks=pytest.mark.full)])
def names(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The dataflows."""
    return tuple(f"flow-{number:03d}" for number in range(request.param))


@pytest.fixture(scope="module")
def server(names: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp(f"registry-of-{len(names)}")) as server:
        yield server


@pytest.fixture(scope="module")
def registry(server: EmbeddedZooKeeper) -> Iterator[Registry]:
    with connect(server.hosts, session_timeout_s=60) as registry:
        yield registry


@pytest.fixture(scope="module")
def led(
    names: tuple[str, ...], server: EmbeddedZooKeeper, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Led]:
    """Everything up: each dataflow has one worker, with twenty idle tasks."""
    folder = tmp_path_factory.mktemp("many")
    begun_s = SYSTEM_CLOCK.monotonic_s()
    submit_all(registry, names, folder, STREAMS)
    submitted_s = SYSTEM_CLOCK.monotonic_s()
    with led_by_masters(server.hosts, names, folder / "home") as led:
        for name in names:
            await_idle(led, registry, name, workers=1)
        took = (submitted_s - begun_s, SYSTEM_CLOCK.monotonic_s() - submitted_s)
        print(f"\n{len(names)} dataflows submitted in {took[0]:.0f} s, all tasks placed {took[1]:.0f} s later")
        yield led


def await_idle(led: Led, registry: Registry, name: str, *, workers: int) -> None:
    def idle() -> bool:
        led.check()
        return is_idle(registry, name, streams=STREAMS, workers=workers)

    wait_until(idle, LIMIT_S, f"{name} to have {STREAMS} idle tasks on {workers} workers")


def writes_so_far(server: EmbeddedZooKeeper) -> int:
    """How many changes ZooKeeper has made: they are numbered."""
    lines = ask_server(int(server.hosts.rpartition(":")[2]), "srvr").splitlines()
    zxid = next(line.removeprefix("Zxid: ") for line in lines if line.startswith("Zxid: "))
    return int(zxid, 16) & 0xFFFFFFFF


class Meter:
    """What ZooKeeper has done between two looks."""

    def __init__(self, server: EmbeddedZooKeeper) -> None:
        self._server = server
        self._begun_s, self._writes = SYSTEM_CLOCK.monotonic_s(), writes_so_far(server)
        self._packets = server_figures(server.hosts)["packets_received"]

    @property
    def writes(self) -> int:
        return writes_so_far(self._server) - self._writes

    @property
    def requests(self) -> float:
        return server_figures(self._server.hosts)["packets_received"] - self._packets

    def line(self, what: str) -> str:
        took_s = SYSTEM_CLOCK.monotonic_s() - self._begun_s
        return f"{what}, {took_s:.1f} s: {self.writes / took_s:.1f} writes/s, {self.requests / took_s:.0f} requests/s"


def a_word_of_each(led: Led, count: int) -> Callable[[], bool]:
    """Whether every worker has written so many more reports, which it does every five seconds when nothing happens."""
    before = led.crew.reports
    return lambda: all(written >= before.get(name, 0) + count for name, written in led.crew.reports.items())


def test_at_rest_a_dataflow_costs_the_registry_a_few_writes_and_watches(
    names: tuple[str, ...], server: EmbeddedZooKeeper, led: Led
) -> None:
    figures = server_figures(server.hosts)
    print(
        f"\n{figures['num_alive_connections']:.0f} sessions, {figures['znode_count']:,.0f} znodes, "
        f"{figures['watch_count']:,.0f} watches, {figures['approximate_data_size'] / 1024:,.0f} KiB"
    )
    before, meter = led.crew.reports_total, Meter(server)
    wait_until(a_word_of_each(led, 3), LIMIT_S, "three reports of each worker")
    # What the reports have cost is read before they are counted: in between there may be more of both.
    writes, requests, reports = meter.writes, meter.requests, led.crew.reports_total - before
    print(meter.line(f"at rest ({reports} reports)"))
    # A report, and the status that the master makes of it.
    assert writes <= 2.5 * reports
    # That, looks at the sources for new streams, and signs of life.
    assert requests <= 8 * reports
    # One a task (the worker's, of its assignment), and ten a dataflow.
    assert figures["watch_count"] <= len(names) * (STREAMS + 10)


def test_edits_at_once_cost_what_they_change_and_disturb_nobody(
    names: tuple[str, ...], server: EmbeddedZooKeeper, registry: Registry, led: Led
) -> None:
    many = EDITED[len(names)]
    edited, others = names[:many], names[many:]
    generations = {name: generations_of(registry, name) for name in others}
    for workers in (2, 1):
        before, meter = led.crew.reports_total, Meter(server)
        for name in edited:
            view = DataflowView(registry, name)
            config = view.config()
            view.set_config(config.value.model_copy(update={"workers": workers}), config.version)
        for name in edited:
            await_idle(led, registry, name, workers=workers)
        writes, reports = meter.writes, led.crew.reports_total - before
        print(
            meter.line(f"\n{many} dataflows brought to {workers} workers: {writes} writes, {reports} of them reports")
        )
        assert writes <= EDIT_WRITES_MAX * many + 2.5 * reports
    assert {name: generations_of(registry, name) for name in others} == generations


def generations_of(registry: Registry, name: str) -> dict[str, int]:
    return {task.task: task.generation for task in DataflowView(registry, name).status().tasks}


class CountedReads(RecordedRegistry):
    """Counts the nodes that are read."""

    reads = 0

    def get(self, path: str, watch: Watch | None = None) -> Node:
        self.reads += 1
        return super().get(path, watch)

    def find(self, path: str, watch: Watch | None = None) -> Node | None:
        self.reads += 1
        return super().find(path, watch)


def test_one_look_at_all_of_them_reads_five_nodes_a_dataflow(
    names: tuple[str, ...], server: EmbeddedZooKeeper, registry: Registry, led: Led
) -> None:
    counted = CountedReads(registry)
    found = overviews(counted, SYSTEM_CLOCK.now_ms())
    assert sum(overview.tasks_total for overview in found) == len(names) * STREAMS
    assert {overview.state for overview in found} == {"running"}
    assert counted.reads <= 5 * len(names)
    print(f"\none look at {len(found)} dataflows: {counted.reads} reads")
    script = (
        "import sys, time\n"
        "from scribengin.monitoring.overview import overviews\n"
        "from scribengin_registry.opening import connect\n"
        "with connect(sys.argv[1]) as registry:\n"
        "    begun_s = time.monotonic()\n"
        "    found = overviews(registry, time.time_ns() // 1_000_000)\n"
        "    print(f'in a process of its own: {time.monotonic() - begun_s:.2f} s for {len(found)} dataflows')\n"
    )
    command = [sys.executable, "-c", script, server.hosts]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
