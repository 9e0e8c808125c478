"""Masters whose registry goes away: for a moment, or for longer than their sessions last, again and again. They lead
on, or again, by themselves; and no task ever stands twice. Real masters, workers that do no work (`idle_workers`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from scribengin.dataflow.registry.deletion import delete_nodes, mark_deleting
from scribengin.dataflow.registry.descriptors import PlacementHead
from scribengin.dataflow.registry.view import DataflowView, Versioned, dataflow_names
from scribengin.errors import DataflowNotFound
from scribengin.master.leadership import Ending, Leadership
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.clocks import JumpingClock
from scribengin.testing.waiting import wait_until
from scribengin_dev.harness.idle_workers import EXECUTOR, Led, led_by_masters, submit_all
from scribengin_registry.contract import Registry
from scribengin_registry.election import CandidateState, Election
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.errors import NodeMissing
from scribengin_registry.opening import connect

pytestmark = pytest.mark.timeout(900)
NAMES = tuple(f"flow-{number}" for number in range(6))
PATIENT = ("patient-1", "patient-2")
STREAMS = 4
SESSION_TIMEOUT_S = 3.0
PATIENT_S = 60.0
"""The session timeout where nobody is to lose one, however long the machine stands still."""
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(server: EmbeddedZooKeeper) -> Iterator[ChaosProxy]:
    with ChaosProxy(server.hosts) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def registry(server: EmbeddedZooKeeper) -> Iterator[Registry]:
    """Never cut off."""
    with connect(server.hosts, session_timeout_s=PATIENT_S) as registry:
        yield registry


@pytest.fixture(scope="module")
def led(registry: Registry, proxy: ChaosProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Led]:
    """Six dataflows of four tasks. Their clocks jump by hours, whenever they are looked at."""
    folder = tmp_path_factory.mktemp("outages")
    submit_all(registry, NAMES, folder, STREAMS)
    with led_by_masters(proxy.address, NAMES, folder / "home", SESSION_TIMEOUT_S, JumpingClock()) as led:
        at_rest(led, registry)
        yield led


@pytest.fixture(scope="module")
def patient(registry: Registry, proxy: ChaosProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Led]:
    """Two more, whose sessions last."""
    folder = tmp_path_factory.mktemp("patient")
    submit_all(registry, PATIENT, folder, STREAMS, "/patient-logs")
    with led_by_masters(proxy.address, PATIENT, folder / "home", PATIENT_S, JumpingClock()) as led:
        at_rest(led, registry, PATIENT)
        yield led


def at_rest(led: Led, registry: Registry, names: Sequence[str] = NAMES, workers: int = 1) -> dict[str, dict[str, int]]:
    """Wait until everybody has heard of the last cut, and every dataflow has come to rest after it on so many workers.

    Returns the generation under which each task stands, as it was when that was so: read again, it may be different.
    """
    found: dict[str, dict[str, int]] = {}
    before = led.crew.reports

    def rests(name: str) -> bool:
        led.check()
        generations = generations_at_rest(led, registry, name, workers, before)
        if generations is not None:
            found[name] = generations
        return name in found or threading.Event().wait(0.1)

    for name in names:
        wait_until(partial(rests, name), LIMIT_S, f"{name} to rest on {workers} workers")
    return found


def generations_at_rest(
    led: Led, registry: Registry, name: str, workers: int, before: Mapping[str, int]
) -> dict[str, int] | None:
    """The generation of each task, or None unless the dataflow rests: its workers are those that its master employs,
    have sessions, and have reported since `before`; each has as many tasks as the others, none is asked back, none
    stands twice, all are idle; and its master knows all that."""
    view, reports = DataflowView(registry, name), led.crew.reports
    employed = {c.name: c.id for c in led.crew.containers() if c.dataflow == name}
    try:
        there = {w: [p.assignment for p in view.assignments(w, EXECUTOR)] for w in view.workers()}
    except NodeMissing:  # of a worker that is removed meanwhile
        return None
    placed = [assignment for of in there.values() for assignment in of]
    generations = {assignment.task: assignment.generation for assignment in placed}
    status = view.status()
    known = {task.task: task.generation for task in status.tasks if task.state == "idle"}
    rests = (
        led.crew.connected
        and len(there) == workers
        and there.keys() == employed.keys() == set(status.workers)
        and all(view.lives(worker) for worker in there)
        and all(reports.get(id_, 0) > before.get(id_, 0) for id_ in employed.values())
        and len({len(of) for of in there.values()}) == 1
        and len(placed) == len(generations) == STREAMS
        and not any(assignment.release for assignment in placed)
        and known == generations
        and not status.tasks_unassigned
    )
    return generations if rests else None


def next_generation(registry: Registry, name: str) -> int:
    """The generation that is given next: any task that is placed from now on has this one or a later one."""
    return DataflowView(registry, name).placement_head().value.next_generation


def have_left(registry: Registry, name: str, workers: list[str]) -> bool:
    return not set(DataflowView(registry, name).workers()) & set(workers)


def cut_for(proxy: ChaosProxy, seconds: float, *, silent: bool) -> None:
    (proxy.pause if silent else proxy.cut)()
    threading.Event().wait(seconds)
    proxy.heal()


def test_a_registry_that_is_away_for_a_moment_costs_nobody_a_generation(
    patient: Led, registry: Registry, proxy: ChaosProxy
) -> None:
    before = at_rest(patient, registry, PATIENT)
    proxy.cut()
    proxy.heal()
    assert at_rest(patient, registry, PATIENT) == before


@pytest.mark.full
@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
def test_after_sessions_have_ended_everything_comes_back_with_new_workers_and_generations(
    led: Led, registry: Registry, proxy: ChaosProxy, *, silent: bool
) -> None:
    before = {name: next_generation(registry, name) for name in NAMES}
    workers = {name: DataflowView(registry, name).workers() for name in NAMES}
    cut_for(proxy, 3 * SESSION_TIMEOUT_S, silent=silent)
    for name in NAMES:
        wait_until(partial(have_left, registry, name, workers[name]), LIMIT_S, f"other workers of {name}")
    for name, generations in at_rest(led, registry).items():
        assert min(generations.values()) >= before[name], "generations are never used twice"


@pytest.mark.full
def test_a_registry_that_comes_and_goes_at_random_is_outlived(led: Led, registry: Registry, proxy: ChaosProxy) -> None:
    """A simulation has thousands of such outages in every run of the tests: `tests/property/test_simulation.py`."""
    chance = random.Random(6)
    before = {name: next_generation(registry, name) for name in NAMES}
    for _ in range(12):
        cut_for(proxy, chance.uniform(0.0, 2.5) * SESSION_TIMEOUT_S, silent=chance.random() < 0.5)
        threading.Event().wait(chance.uniform(0.0, 1.5))
    for name, generations in at_rest(led, registry).items():
        assert max(generations.values()) >= before[name] - 1, "the last generation stands, or a later one"


def test_clocks_that_jump_by_hours_have_changed_nothing(patient: Led, registry: Registry) -> None:
    """They have done so in all of this: states are what they were, and nobody was taken for dead or for young."""
    before = at_rest(patient, registry, PATIENT)
    events = [event for name in PATIENT for event in DataflowView(registry, name).history().events]
    assert max(abs(a.at_ms - b.at_ms) for a in events for b in events) > 3_600_000, "the clocks were to jump"
    for name in PATIENT:
        view = DataflowView(registry, name)
        config = view.config()
        view.set_config(config.value.model_copy(update={"workers": 2}), config.version)
    for name, generations in at_rest(patient, registry, PATIENT, workers=2).items():
        kept = [task for task, generation in generations.items() if before[name][task] == generation]
        assert len(kept) == STREAMS // 2, "half of the tasks have moved, once"


def test_a_master_from_which_the_registry_goes_as_it_begins_to_lead_leads_when_it_is_back(
    server: EmbeddedZooKeeper, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_all(registry, ["late"], tmp_path, STREAMS, "/other-logs")
    unreachable = threading.Event()
    is_over = Leadership._is_over

    def cut_first(leadership: Leadership) -> bool:
        if unreachable.is_set():
            return is_over(leadership)
        between.cut()
        try:
            return is_over(leadership)
        finally:
            unreachable.set()

    monkeypatch.setattr(Leadership, "_is_over", cut_first)
    with (
        ChaosProxy(server.hosts) as between,
        led_by_masters(between.address, ["late"], tmp_path / "home", session_timeout_s=SESSION_TIMEOUT_S) as led,
    ):
        wait_until(unreachable.is_set, LIMIT_S, "the registry to be given up")
        between.heal()
        assert at_rest(led, registry, ["late"])


def test_a_master_that_comes_up_while_its_dataflow_is_deleted_leads_nothing(
    server: EmbeddedZooKeeper, registry: Registry, tmp_path: Path
) -> None:
    submit_all(registry, ["going"], tmp_path, STREAMS, "/more-logs")
    view = DataflowView(registry, "going")
    view.set_status(view.status().model_copy(update={"state": "deleting"}))
    before = view.placement_head()
    with led_by_masters(server.hosts, ["going"], tmp_path / "home") as led:
        assert led.masters[0].result(LIMIT_S) is Ending.OVER
    assert (view.placement_head(), view.status().state) == (before, "deleting")


def test_a_master_that_has_looked_just_before_its_dataflow_was_deleted_leads_nothing(
    server: EmbeddedZooKeeper, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_all(registry, ["looked"], tmp_path, STREAMS, "/looked-logs")
    view = DataflowView(registry, "looked")
    is_over = Leadership._is_over
    heads: list[Versioned[PlacementHead]] = []

    def then_deleted(leadership: Leadership) -> bool:
        over = is_over(leadership)
        if not heads:
            mark_deleting(view, view.seen())
            heads.append(view.placement_head())
        return over

    monkeypatch.setattr(Leadership, "_is_over", then_deleted)
    with led_by_masters(server.hosts, ["looked"], tmp_path / "home") as led:
        assert led.masters[0].result(LIMIT_S) is Ending.OVER
    assert ([view.placement_head()], view.status().state) == (heads, "deleting")


def test_a_master_whose_dataflow_is_deleted_as_it_stands_for_election_says_so_and_makes_nothing(
    server: EmbeddedZooKeeper, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_all(registry, ["gone"], tmp_path, STREAMS, "/yet-other-logs")
    volunteer = Election.volunteer

    def late(election: Election, listener: Callable[[CandidateState], None]) -> None:
        delete_nodes(DataflowView(registry, "gone"))
        volunteer(election, listener)

    monkeypatch.setattr(Election, "volunteer", late)
    with (
        led_by_masters(server.hosts, ["gone"], tmp_path / "home") as led,
        pytest.raises(DataflowNotFound, match="there is no dataflow 'gone'"),
    ):
        led.masters[0].result(LIMIT_S)
    assert "gone" not in dataflow_names(registry)
