"""One simulated cluster: it is built from a plan, runs until all is done and everything has left, and is judged.

A dataflow of some streams, or a chain of some, runs under faults; records come all the while. After that nothing is
disturbed any more, every record must come out in bounded time, and the dataflows are stopped and leave nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path

import pyarrow as pa

from scribengin.base.failpoints import set_hook
from scribengin.base.model import Position
from scribengin.connectors import Environment
from scribengin.connectors.contract import PAYLOAD, ReadSplit
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.containers import master_request
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry import gone_streams, paths
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView, new_master_name
from scribengin.dataflow.round import commit_logs
from scribengin.errors import ScribenginError
from scribengin.launcher.contract import ContainerExit
from scribengin.operations.lifecycle import masters
from scribengin.testing.memory.registry import Loss
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.machine import Container, Machine
from scribengin.testing.simulation.people.deleting import Deleting
from scribengin.testing.simulation.people.rewinding import Rewinding, edit
from scribengin.testing.simulation.plan import FAULTS_END_S, SESSION_TIMEOUT_S, ZOMBIE_S, Fault, Plan, Storage
from scribengin.testing.simulation.registry import SimulatedEnsemble, SimulatedSession
from scribengin.testing.simulation.scheduler import Scheduler, SimulatedProcess, SimulationStuck
from scribengin.testing.simulation.streams.connectors import batch_of
from scribengin.testing.simulation.streams.contract import FLOWS, SimulatedStreams
from scribengin.testing.simulation.streams.files import FilesInMemory, FileStreams
from scribengin.testing.simulation.streams.logs import LogStreams, ends_of
from scribengin.testing.simulation.streams.memory import MemoryStreams
from scribengin.testing.simulation.streams.positions import Positions
from scribengin.testing.simulation.streams.sinks import SinkStreams, SinkSystem
from scribengin.testing.simulation.takeover import EPOCH_S, taken_over
from scribengin_registry.contract import Operation

MakeSystem = Callable[[], SinkSystem]
WATCHES = "memory-registry"
"""The thread on which a process hears of its session and of what it watches."""
PROGRESS_MAX_S = 90.0
"""After the last fault, everything is visible by then; and after the stop, everything has left by then."""
LOOK_S = 0.25
REVIVED_AFTER_S = 3.0
"""A dataflow without a master for so long is given another one, as an operator does."""
_TOO_LARGE = "and the registry takes 0:"
"""What a dataflow fails with whose round is too large to commit."""
_AWAY = "are away; a task tries again until its system answers"
"""What its status says besides, as long as files in memory are away."""


class SimulatedClock:
    """A `Clock`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now_ms(self) -> int:
        return EPOCH_S * 1000 + round(self._scheduler.now_s * 1000)

    def monotonic_s(self) -> float:
        return self._scheduler.now_s


class PassOn:
    """The transformation: every record as it is."""

    def run(self, inputs: Mapping[str, Sequence[ReadSplit]]) -> dict[str, list[pa.RecordBatch]]:
        """Spark is a plain function."""
        return {"out": [batch.select([PAYLOAD]) for split in inputs["in"] for batch in split.read()]}


class TellWhere:
    """The transformation of a later dataflow that is rewound: every record, and where it was read."""

    def run(self, inputs: Mapping[str, Sequence[ReadSplit]]) -> dict[str, list[pa.RecordBatch]]:
        """Spark is a plain function."""
        return {"out": [self._told(split) for split in inputs["in"]]}

    def _told(self, split: ReadSplit) -> pa.RecordBatch:
        rows = pa.Table.from_batches(split.read())
        payloads = rows.column(PAYLOAD).to_pylist()
        places = split.places(range(len(payloads)), rows)
        return batch_of([oracle.told_at(*told) for told in zip(payloads, places, strict=True)])


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a transcript."""

    at_s: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:9.3f}  {self.who:<28} {self.what}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan. `failure` is None when every promise was kept."""

    plan: Plan
    lines: tuple[Line, ...]
    failure: Exception | None
    steps: int
    seconds: float
    """Simulated."""

    @property
    def promise(self) -> str | None:
        """Which promise was broken."""
        if self.failure is None:
            return None
        return getattr(self.failure, "promise", type(self.failure).__name__)

    @property
    def transcript(self) -> str:
        """For people: the plan, what happened, how it ended."""
        ended = "every promise was kept" if self.failure is None else f"BROKEN: {self.failure}"
        return "\n".join([str(self.plan), *map(str, self.lines), ended]) + "\n"


def simulate(plan: Plan, *, every_stop: bool = False, make_system: MakeSystem | None = None) -> Outcome:
    """Run a plan to its end, in this thread. `every_stop`: the transcript has a line for each stop that is passed.
    `make_system` makes what a plan for a sink writes to."""
    scheduler = Scheduler(plan.seed)
    make_system = make_system or _own_system(plan.storage)  # imported before it is taken over
    failure: Exception | None = None
    with taken_over(scheduler), ExitStack() as systems, _logging_told() as told:
        systems.callback(_take, commit_logs.TRANSACTION_BYTES_MAX)
        systems.callback(_many_are, gone_streams.TOGETHER_MIN)
        _many_are(1)
        system = None if make_system is None else make_system()
        if system is not None:
            systems.callback(system.close)
        world = World(plan, scheduler, every_stop=every_stop, system=system)
        told.append(world.tell)
        set_hook(world.passed)
        try:
            world.run()
        except (oracle.Violation, SimulationStuck, ScribenginError, AssertionError) as error:
            failure = error
        finally:
            scheduler.close(world.processes)
            set_hook(None)
    return Outcome(plan, tuple(world.lines), failure, scheduler.steps, scheduler.now_s)


def _own_system(storage: Storage) -> MakeSystem | None:
    """What plans of our own read and write. Kafka's client is not installed everywhere."""
    if storage == "kafka":
        from scribengin.testing.simulation.streams.kafka import KafkaInMemory

        return KafkaInMemory
    return FilesInMemory if storage == "files" else None


class World:
    """The cluster of one plan."""

    def __init__(self, plan: Plan, scheduler: Scheduler, *, every_stop: bool, system: SinkSystem | None) -> None:
        self.plan = plan
        self.scheduler = scheduler
        self.clock = SimulatedClock(scheduler)
        self.ensemble = SimulatedEnsemble(self.clock, lags=plan.lags)
        self.ensemble.lose = self._lost
        self.ensemble.observers.append(self._changed)
        self.session_timeout_s = SESSION_TIMEOUT_S
        self.servers_back_s = 0.0
        """When the registry's servers are there again, that restart."""
        self.answering_s = 0.0
        """From when on they answer again, and sessions begin: they restart, or are too few."""
        self.took_little = False
        """Whether a round's commit was ever too large for them."""
        self.home = Path("/simulated")
        self.processes: list[SimulatedProcess] = []
        self.lines: list[Line] = []
        self.errors: list[BaseException] = []
        self.seen = _seen_of(plan)
        self.machine = Machine(self)
        self.rewinding = Rewinding(self)
        self.deleting = Deleting(self)
        self._views: list[DataflowView] = []
        self.streams = self._streams(system)
        self._every_stop = every_stop
        self._people = self.process("cluster")
        self._stand = Positions(self.judged, self.rewinding.is_by_one)
        self._faults = [(fault.at, str(fault), fault) for fault in plan.faults]
        self._faults_at: dict[str, list[tuple[str, Fault]]] = {}
        """Those that a stop may meet, once it was passed."""
        self._passed = dict.fromkeys(map(str, plan.faults), 0)
        self._losses: dict[object, Loss] = {}
        self._ends = False
        """Whether dataflows are deleted, and their commit logs with them."""
        self._over = False

    def _streams(self, system: SinkSystem | None) -> SimulatedStreams:
        match self.plan.storage:
            case "memory":
                return MemoryStreams(self)
            case "logs":
                return LogStreams(self)
            case "kafka":
                from scribengin.testing.simulation.streams.kafka import KafkaInMemory, KafkaStreams

                assert isinstance(system, KafkaInMemory)
                return KafkaStreams(self, system)
            case "files":
                assert isinstance(system, FilesInMemory)
                return FileStreams(self, system)
            case "sink":
                assert system is not None, "a plan for a sink needs what it writes to"
                return SinkStreams(self, system)

    # -- what happens in it

    def run(self) -> None:
        """Everything, from the submission to the end. Raises Violation, SimulationStuck."""
        self.scheduler.spawn(self._people, "operator", self._operate)
        self.scheduler.run(lambda: self._over)

    def _operate(self) -> None:
        session = SimulatedSession(self, self._people, 1_000.0)
        self.streams.begin(session)
        views = self._views = [self._submit(session, flow) for flow in range(self.plan.flows)]
        for at_s, change in self.plan.edits:
            self.later(at_s, "editor", partial(self.edit, *change.split("=")))
        for rewind in self.plan.rewinds:
            self.later(rewind.at_s, "operator", partial(self.rewinding.start, session.hosts, rewind))
        self.scheduler.pass_time(FAULTS_END_S)
        self.rewinding.end()
        self.tell("nothing is disturbed any more")
        for flow, view in enumerate(views):
            self._wait(
                f"{view.dataflow} stands at what is there", partial(self.rewinding.makes_good, session.hosts, flow)
            )
            for key, value in (("desired_state", "running"), ("sources.in.paused", "false"), ("workers", "2")):
                self._edit(view, key, value)
        self._wait("every acknowledged record is visible", lambda: self.streams.all_is_visible)
        self.scheduler.pass_time(max(0.0, FAULTS_END_S + 2 * SESSION_TIMEOUT_S - self.scheduler.now_s))
        if not self.plan.passing:  # nobody has one whose streams are gone
            self._wait("every task has an owner", lambda: all(map(self._is_owned, views)))
        for view in views:
            self._edit(view, "desired_state", "stopped")
        self._wait("everything has left", lambda: not self.machine.running and all(map(self._has_ended, views)))
        self._judge(views)
        if self.plan.deleted:
            self._ends = True
            for flow, view in enumerate(views):
                self.deleting.delete(session, flow, view)
        self._over = True

    def _submit(self, session: SimulatedSession, flow: int) -> DataflowView:
        view = DataflowView(session, FLOWS[flow])
        config = self._config(flow)
        environment = Environment(session, config.name, STREAM_NODES, self.clock)
        with self.open_dataflow(config, environment) as opened:  # else truncation may come before the first master
            for source in opened.sources.values():
                source.retention_hold(source.streams())
        view.submit(config, self.streams.resources(flow), self.now_ms())
        self.machine.start(master_request(config, "master-1", session.hosts, self.home, self.plan.standbys))
        self.later(0.0, "reviver", partial(self._revive, view))
        return view

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        begun_s = self.scheduler.now_s
        while not holds():
            waited_s = self.scheduler.now_s - begun_s
            if waited_s > PROGRESS_MAX_S:
                oracle.check_nothing_lost(self._lost_for_good())
            oracle.check_goes_on(what, waited_s, PROGRESS_MAX_S)
            self.scheduler.pass_time(LOOK_S)
        self.tell(what)

    def _lost_for_good(self) -> list[bytes]:
        """What no owner reads again, and nobody has staged."""
        return self.streams.behind(self.positions(), self.seen.missing(self.streams.acknowledged))

    def _revive(self, view: DataflowView) -> None:
        alone_since_s: float | None = None
        while not self._ends:
            self.scheduler.pass_time(LOOK_S)
            if self._ends or self.machine.has_master(view.dataflow) or not self._is_wanted(view):
                alone_since_s = None
            elif alone_since_s is None:
                alone_since_s = self.scheduler.now_s
            elif self.scheduler.now_s - alone_since_s > REVIVED_AFTER_S:
                self.tell("there is no master")
                self._launch_master(view)

    def _launch_master(self, view: DataflowView) -> None:
        name = new_master_name(view)
        self.tell(f"{name} is launched")
        status = view.status()
        if status.state == "failed":  # as `start` does: else the next master leaves at once
            view.set_status(status.model_copy(update={"state": "starting", "error": None, "tasks": ()}))
            self.rewinding.mended_by_now(view.dataflow)
        config = view.config_in_force().value
        self.machine.start(master_request(config, name, view.registry.hosts, self.home, self.plan.standbys))

    def _is_wanted(self, view: DataflowView) -> bool:
        """Whether it is to run, or to be paused. One that has ended may be told so."""
        return not self._has_ended(view) or view.config_to_edit().value.desired_state != "stopped"

    def _is_owned(self, view: DataflowView) -> bool:
        streams = [stream for task in view.tasks().values() for stream in task.sources]
        locks = [paths.lock(view.paths.source_stream(stream.source, stream.name)) for stream in streams]
        return all(view.registry.find(lock) is not None for lock in locks)

    def _has_ended(self, view: DataflowView) -> bool:
        """Raises Violation for one that has failed, unless by what people mend: then they start it again."""
        status = view.status()
        mended = [*self.rewinding.mended(view.dataflow), *((_TOO_LARGE,) if self.took_little else ())]
        oracle.check_not_failed(status.state, status.error, mended, [_AWAY])
        return status.state in ("stopped", "finished", "deleting", "failed")

    def run_again(self, flow: int) -> None:
        """Somebody lets a dataflow run that was paused or stopped, unless nothing is disturbed any more."""
        if self.scheduler.now_s < FAULTS_END_S:
            view = self._views[flow]
            self._edit(view, "desired_state", "running")
            self.start_again(view)

    def start_again(self, view: DataflowView) -> None:
        """Launch a master for a dataflow that has ended and has none, as who starts it does."""
        if self._has_ended(view) and not masters(view):
            self._launch_master(view)

    def edit(self, key: str, value: str) -> None:
        """Somebody edits the first dataflow's config, unless nothing is disturbed any more."""
        if self.scheduler.now_s < FAULTS_END_S:
            self._edit(self._views[0], key, value)

    def _edit(self, view: DataflowView, key: str, value: str) -> None:
        if not self._over:
            edit(view, key, value)
            self.tell(f"edits {key} to {value}")

    def _judge(self, views: Sequence[DataflowView]) -> None:
        oracle.check_nothing_lost(self.seen.missing(self.streams.acknowledged))
        self.streams.judge()
        self.scheduler.pass_time(2 * SESSION_TIMEOUT_S)
        nodes = self.ensemble.tree
        kept = [path for path in nodes.paths() if (node := nodes.find(path)) is not None and node.owner_session]
        workers = [worker for view in views for worker in view.workers()]
        oracle.check_no_leftovers(kept, workers, [c.name for c in self.machine.running])
        oracle.check_launched_once([c.name for c in self.machine.containers.values()])
        oracle.check_no_thread_died(self.errors)
        for status in [view.status() for view in views]:
            oracle.check_stopped(status.state, status.error)

    def _config(self, flow: int) -> DataflowConfig:
        value = {
            "name": FLOWS[flow],
            **self.streams.endpoints(flow),
            "sql": "SELECT payload FROM in",
            "workers": self.plan.workers,
            "executors_per_worker": self.plan.executors,
            "session_timeout_s": SESSION_TIMEOUT_S,
        }
        return DataflowConfig.parse(value, source="the simulation")

    # -- what processes are given

    def open_dataflow(self, config: DataflowConfig, environment: Environment) -> OpenedDataflow:
        """The config's sources and sinks, as the simulation has them."""
        return self.streams.open_dataflow(config, environment)

    def transform(self, dataflow: str) -> PassOn | TellWhere:
        """What a dataflow makes of its records."""
        return TellWhere() if self.plan.rewinds_later and dataflow == FLOWS[self.plan.flows - 1] else PassOn()

    def process(self, name: str) -> SimulatedProcess:
        """A new process."""
        process = SimulatedProcess(name)
        self.processes.append(process)
        return process

    def later(
        self, seconds: float, name: str, run: Callable[[], object], process: SimulatedProcess | None = None
    ) -> None:
        """Have something done after so long, by a process, or by nobody of the engine."""
        if seconds != float("inf"):
            self.scheduler.spawn(process or self._people, name, run, delay_s=seconds)

    def now_ms(self) -> int:
        """The wall clock."""
        return self.clock.now_ms()

    def latency_s(self) -> float:
        """How long something takes that goes over the network: mostly a millisecond, now and then a hundred."""
        chance = self.scheduler.chance
        return -log(1.0 - chance()) / 1000.0 * (1.0 if chance() < 0.95 else 50.0)  # as `random.expovariate` does

    def positions(self) -> dict[str, Position]:
        """Up to where each source stream that was read is committed, by the path of its commit log."""
        return self._stand.positions()

    def safe_positions(self) -> dict[str, Position]:
        """Up to where each source stream is committed for good."""
        return self._stand.safe_positions()

    # -- what is seen of it

    def tell(self, what: str) -> None:
        """A line of the transcript."""
        running = self.scheduler.running
        self.lines.append(Line(self.scheduler.now_s, "" if running is None else str(running), what))

    def passed(self, stop: str, about: str = "") -> None:
        """The running thread comes to an effect, or leaves it: what the plan has for it happens now."""
        scheduler = self.scheduler
        if (thread := scheduler.running) is not None and thread.process.ended:
            scheduler.refuse_ended()
        if thread is None or thread.atomic:
            return
        if thread.process is not self._people:
            if self._every_stop:
                self.tell(f"{stop} {about}".rstrip())
            if scheduler.now_s <= FAULTS_END_S:
                self._disturb(stop, thread.process)
        scheduler.park(self.latency_s())

    def _disturb(self, stop: str, process: SimulatedProcess) -> None:
        faults = self._faults_at.get(stop)
        if faults is None:
            faults = self._faults_at[stop] = [(told, fault) for at, told, fault in self._faults if stop.startswith(at)]
        for told, fault in faults:
            passed = self._passed[told] = self._passed[told] + 1
            if passed == fault.count:
                self.tell(f"FAULT at {stop}: {told}")
                self._happen(fault, process)

    def _happen(self, fault: Fault, process: SimulatedProcess) -> None:
        container = self.machine.of(process)
        assert container is not None
        match fault.kind:
            case "kill":
                self.machine.end(container, ContainerExit("exited", -9, "killed by somebody"))
            case "stall":
                self._stall(container, fault.seconds)
            case "zombie":
                self._stall(container, ZOMBIE_S)
                for thread in process.threads:
                    if thread.name == WATCHES:
                        thread.stalled_until_s = self.scheduler.now_s + ZOMBIE_S + fault.seconds
            case "lose request":
                self._losses[self.scheduler.running] = "request"
            case "lose reply":
                self._losses[self.scheduler.running] = "reply"
            case "cut off":
                self._cut_off([container], fault.seconds)
            case "quorum away":
                self._silence(fault.seconds)
            case "servers restart":
                self._restart_servers(fault.seconds)
            case "server lags":
                self.ensemble.lag()
                self.later(fault.seconds, "server", self._lag_ends)
            case "power off":
                self._power_off(container)
            case "lose unsynced":
                self.streams.lose_unsynced()
            case "system away":
                self.streams.go_away(fault.seconds)
            case "broker fails" | "broker fails unheard":
                self.streams.fail_one(fault.seconds, unheard=fault.kind == "broker fails unheard")
            case "retention":
                self.streams.give_up()
            case "registry takes little":
                self._take_little(fault.seconds)
            case "disk full":
                self.streams.fill_up(fault.seconds)

    def _power_off(self, passing: Container) -> None:
        """Every process ends, this one last: that unwinds whoever does it."""
        ended = ContainerExit("lost", None, "the power failed")
        for container in self.machine.running:
            if container is not passing:
                self.machine.end(container, ended)
        self.streams.lose_power()
        self.machine.end(passing, ended)

    def _stall(self, container: Container, seconds: float) -> None:
        self.scheduler.stall(container.process, seconds)
        if container.session is not None:
            container.session.outlived(seconds)

    def _cut_off(self, containers: Sequence[Container], seconds: float) -> None:
        for container in containers:
            if container.session is not None:
                container.session.cut_off(seconds)

    def _restart_servers(self, seconds: float) -> None:
        """No session expires while there is nobody to say so, and each has all of its time again afterwards."""
        self.servers_back_s = max(self.servers_back_s, self.scheduler.now_s + seconds)
        self._silence(seconds)

    def _silence(self, seconds: float) -> None:
        """No server answers anybody: who has a session is cut off, and none begins."""
        self.answering_s = max(self.answering_s, self.scheduler.now_s + seconds)
        self._cut_off(self.machine.running, seconds)

    def _take_little(self, seconds: float) -> None:
        """A round's commit is too large for so long, as if its task had very many streams."""
        limit = commit_logs.TRANSACTION_BYTES_MAX
        if limit:
            self.took_little = True
            _take(0)
            self.later(seconds, "servers", partial(_take, limit))

    def wait_for_servers(self) -> None:
        """Until there are servers that a session can begin at, as a client does that finds none."""
        while (left_s := self.answering_s - self.scheduler.now_s) > 0:
            self.scheduler.pass_time(left_s)

    def _lag_ends(self) -> None:
        with self.scheduler.at_once():
            self.ensemble.lag_ends()
        self.tell("the server that fell behind has caught up")

    def _lost(self, _act: str, _path: str) -> Loss | None:
        return self.loss()

    def loss(self) -> Loss | None:
        """What becomes of the next thing that the running thread asks of a server."""
        return self._losses.pop(self.scheduler.running, None)

    def became_visible(self, stream: str, payloads: tuple[bytes, ...]) -> None:
        """Readers of the output see these from now on."""
        self.tell(f"readers of {stream} see {oracle.told(payloads)}")
        self.judged(partial(self.seen.add, stream, payloads))

    def _changed(self, session: int, operations: Sequence[Operation], _versions: Sequence[int]) -> None:
        moved = () if self._ends else self._stand.changed(session, operations)
        if moved:
            self.judged(partial(self.rewinding.moved, moved))

    def judged(self, check: Callable[[], None]) -> None:
        """A promise that is broken ends the simulation, whoever has done it."""
        try:
            check()
        except oracle.Violation as violation:
            self.scheduler.fail(violation)


def _take(bytes_max: int) -> None:
    """From now on a round's commit may be so large."""
    commit_logs.TRANSACTION_BYTES_MAX = bytes_max


def _many_are(streams: int) -> None:
    """From now on the nodes of so many streams that are gone are put together."""
    gone_streams.TOGETHER_MIN = streams


def _seen_of(plan: Plan) -> oracle.SeenRecords:
    if plan.fork:
        return oracle.SeenAtSeveralEnds(ends_of(plan))
    if plan.rewinds_later:
        return oracle.SeenAtTheEnd()
    return oracle.SeenRecords(of_all_streams=plan.storage in ("memory", "logs"))


@contextmanager
def _logging_told() -> Iterator[list[Callable[[str], None]]]:
    """What the engine logs is told to these, and to nobody else."""
    told: list[Callable[[str], None]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            for tell in told:
                tell(record.getMessage())

    logger = logging.getLogger("scribengin")
    before = logger.level, logger.propagate, logger.handlers[:]
    logger.handlers = [Handler()]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield told
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        logger.handlers = before[2]
