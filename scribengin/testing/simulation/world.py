"""One simulated cluster: it is built from a plan, runs until all is done and everything has left, and is judged.

A dataflow of some streams runs under faults; records come all the while. After that nothing is disturbed any more,
every record must come out in bounded time, and the dataflow is stopped and leaves nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import yaml

from scribengin.base.commit_log import CommitLog
from scribengin.base.failpoints import set_hook
from scribengin.connectors import AnySinkConfig, AnySourceConfig, Environment
from scribengin.connectors.contract import RecordSplit
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.containers import master_request
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.view import DataflowView, new_master_name
from scribengin.errors import ScribenginError
from scribengin.launcher.contract import ContainerExit
from scribengin.testing.memory.registry import Loss
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.connectors import InputStream, MemorySink, MemorySource, Outputs
from scribengin.testing.simulation.machine import Container, Machine
from scribengin.testing.simulation.plan import FAULTS_END_S, SESSION_TIMEOUT_S, ZOMBIE_S, Fault, Plan
from scribengin.testing.simulation.registry import SimulatedEnsemble, SimulatedSession
from scribengin.testing.simulation.scheduler import Scheduler, SimulatedProcess, SimulationStuck
from scribengin.testing.simulation.takeover import EPOCH_S, taken_over
from scribengin_registry.contract import Create as CreateNode
from scribengin_registry.contract import Operation, Set
from scribengin_registry.errors import VersionConflict

FLOW = "flow"
WATCHES = "memory-registry"
"""The thread on which a process hears of its session and of what it watches."""
RECORDS_FOR_S = 10.0
"""For so long records are written."""
PROGRESS_MAX_S = 90.0
"""After the last fault, everything is visible by then; and after the stop, everything has left by then."""
LOOK_S = 0.25
REVIVED_AFTER_S = 3.0
"""A dataflow without a master for so long is given another one, as an operator does."""


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

    def run(self, inputs: Mapping[str, Sequence[RecordSplit]]) -> dict[str, list[pa.RecordBatch]]:
        """Spark is a plain function."""
        return {"out": [batch for split in inputs["in"] for batch in split.read()]}


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


def simulate(plan: Plan, *, every_stop: bool = False) -> Outcome:
    """Run a plan to its end, in this thread. `every_stop`: the transcript has a line for each stop that is passed."""
    scheduler = Scheduler(plan.seed)
    failure: Exception | None = None
    with taken_over(scheduler), _logging_told() as told:
        world = World(plan, scheduler, every_stop=every_stop)
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


class World:
    """The cluster of one plan."""

    def __init__(self, plan: Plan, scheduler: Scheduler, *, every_stop: bool) -> None:
        self.plan = plan
        self.scheduler = scheduler
        self.clock = SimulatedClock(scheduler)
        self.ensemble = SimulatedEnsemble(self.clock)
        self.ensemble.lose = self._lost
        self.ensemble.observers.append(self._changed)
        self.session_timeout_s = SESSION_TIMEOUT_S
        self.home = Path("/simulated")
        self.transform = PassOn()
        self.processes: list[SimulatedProcess] = []
        self.lines: list[Line] = []
        self.errors: list[BaseException] = []
        self.seen = oracle.SeenRecords()
        self.inputs = {f"in{number}": InputStream() for number in range(plan.streams)}
        self.outputs = Outputs(scheduler, self._became_visible)
        self.machine = Machine(self)
        self._every_stop = every_stop
        self._people = self.process("cluster")
        self._commit_logs: dict[str, CommitLog] = {}
        self._passed: dict[str, int] = {}
        self._losses: dict[object, Loss] = {}
        self._acknowledged: list[bytes] = []
        self._over = False

    # -- what happens in it

    def run(self) -> None:
        """Everything, from the submission to the end. Raises Violation, SimulationStuck."""
        self.scheduler.spawn(self._people, "operator", self._operate)
        self.scheduler.run(lambda: self._over)

    def _operate(self) -> None:
        session = SimulatedSession(self, self._people, 1_000.0)
        view = DataflowView(session, FLOW)
        config = self._config()
        view.submit(config, ["memory:out"], self.now_ms())
        self.machine.start(master_request(config, "master-1", session.hosts, self.home, self.plan.standbys))
        for name, stream in self.inputs.items():
            self.later(self.scheduler.random.uniform(0.0, 2.0), f"writer-{name}", partial(self._write, name, stream))
        self.later(0.0, "reviver", partial(self._revive, view))
        for at_s, edit in self.plan.edits:
            self.later(at_s, "editor", partial(self._edit, view, *edit.split("=")))
        self.scheduler.pass_time(FAULTS_END_S)
        self.tell("nothing is disturbed any more")
        for key, value in (("desired_state", "running"), ("sources.in.paused", "false"), ("workers", "2")):
            self._edit(view, key, value)
        self._wait("every acknowledged record is visible", self._all_is_visible)
        self._edit(view, "desired_state", "stopped")
        self._wait("everything has left", lambda: not self.machine.running)
        self._judge(view)
        self._over = True

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        until_s = self.scheduler.now_s + PROGRESS_MAX_S
        while not holds():
            if self.scheduler.now_s > until_s:
                oracle.check_nothing_lost(self._lost_for_good())
                raise oracle.Violation("it goes on once faults end", f"after {PROGRESS_MAX_S:g} s not: {what}")
            self.scheduler.pass_time(LOOK_S)
        self.tell(what)

    def _all_is_visible(self) -> bool:
        written = len(self._acknowledged) == self.plan.records * len(self.inputs)
        return written and not self.seen.missing(self._acknowledged)

    def _lost_for_good(self) -> list[bytes]:
        """What no owner reads again, and nobody has staged."""
        committed = {
            path: int((log.position or {"offset": 0})["offset"])
            for path, log in self._commit_logs.items()
            if "/sources/" in path
        }
        staged = {p for s in self.outputs.streams.values() for _, payloads in s.staged.values() for p in payloads}
        behind = []
        for payload in self.seen.missing(self._acknowledged):
            stream, number = oracle.source_of(payload)
            position = next((at for path, at in committed.items() if f"/{stream}/" in path), 0)
            if number < position and payload not in staged:
                behind.append(payload)
        return behind

    def _write(self, name: str, stream: InputStream) -> None:
        chance = self.scheduler.random
        for number in range(self.plan.records):
            payload = oracle.payload_of(name, number)
            stream.append(payload)
            self._acknowledged.append(payload)
            self.scheduler.pass_time(chance.expovariate(self.plan.records / RECORDS_FOR_S))

    def _revive(self, view: DataflowView) -> None:
        alone_since_s: float | None = None
        while True:
            self.scheduler.pass_time(LOOK_S)
            if any(container.is_master for container in self.machine.running) or self._has_ended(view):
                alone_since_s = None
            elif alone_since_s is None:
                alone_since_s = self.scheduler.now_s
            elif self.scheduler.now_s - alone_since_s > REVIVED_AFTER_S:
                name = new_master_name(view)
                self.tell(f"there is no master: {name} is launched")
                config = view.config_in_force().value
                self.machine.start(master_request(config, name, view.registry.hosts, self.home, self.plan.standbys))

    def _has_ended(self, view: DataflowView) -> bool:
        return view.status().state in ("stopped", "finished", "deleting")

    def _edit(self, view: DataflowView, key: str, value: str) -> None:
        if self._over:
            return
        while True:
            found = view.config()
            changed = found.value.model_dump(mode="json")
            *parents, last = key.split(".")
            node = changed
            for parent in parents:
                node = node[parent]
            node[last] = yaml.safe_load(value)
            with suppress(VersionConflict):
                view.set_config(DataflowConfig.parse(changed, source="an edit"), found.version)
                self.tell(f"edits {key} to {value}")
                return

    def _judge(self, view: DataflowView) -> None:
        oracle.check_nothing_lost(self.seen.missing(self._acknowledged))
        oracle.check_nothing_staged({name: sorted(stream.staged) for name, stream in self.outputs.streams.items()})
        self.scheduler.pass_time(2 * SESSION_TIMEOUT_S)
        nodes = self.ensemble.tree
        kept = [path for path in nodes.paths() if (node := nodes.find(path)) is not None and node.owner_session]
        oracle.check_no_leftovers(kept, view.workers(), [c.descriptor.name for c in self.machine.running])
        oracle.check_launched_once([c.descriptor.name for c in self.machine.containers.values()])
        oracle.check_no_thread_died(self.errors)
        status = view.status()
        if status.state != "stopped":
            raise oracle.Violation("it ends as it was told", f"it is {status.state}: {status.error}")

    def _config(self) -> DataflowConfig:
        value = {
            "name": FLOW,
            "sources": {"in": {"kind": "log", "logs": "in/*"}},
            "sinks": {"out": {"kind": "hdfs", "path": "/simulated/out"}},  # a name: it is opened in memory
            "sql": "SELECT payload FROM in",
            "workers": self.plan.workers,
            "executors_per_worker": self.plan.executors,
            "session_timeout_s": SESSION_TIMEOUT_S,
        }
        return DataflowConfig.parse(value, source="the simulation")

    # -- what processes are given

    def open_dataflow(self, config: DataflowConfig, environment: Environment) -> OpenedDataflow:
        """The config's sources and sinks, which are in memory."""

        def open_source(name: str, _config: AnySourceConfig, _environment: Environment) -> MemorySource:
            return MemorySource(name, self.inputs)

        def open_sink(name: str, _config: AnySinkConfig, _environment: Environment) -> MemorySink:
            return MemorySink(name, self.outputs)

        return OpenedDataflow(config, environment, open_source, open_sink)

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
        chance = self.scheduler.random
        return chance.expovariate(1000.0) * (1.0 if chance.random() < 0.95 else 50.0)

    # -- what is seen of it

    def tell(self, what: str) -> None:
        """A line of the transcript."""
        running = self.scheduler.running
        self.lines.append(Line(self.scheduler.now_s, "" if running is None else str(running), what))

    def passed(self, stop: str, about: str = "") -> None:
        """The running thread comes to an effect, or leaves it: what the plan has for it happens now."""
        scheduler = self.scheduler
        scheduler.refuse_ended()
        thread = scheduler.running
        if thread is None or thread.atomic:
            return
        if thread.process is not self._people:
            if self._every_stop:
                self.tell(f"{stop} {about}".rstrip())
            self._disturb(stop, thread.process)
        scheduler.pass_time(self.latency_s())

    def _disturb(self, stop: str, process: SimulatedProcess) -> None:
        if self.scheduler.now_s > FAULTS_END_S:
            return
        for fault in self.plan.faults:
            if stop.startswith(fault.at):
                passed = self._passed[str(fault)] = self._passed.get(str(fault), 0) + 1
                if passed == fault.count:
                    self.tell(f"FAULT at {stop}: {fault}")
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
                self._cut_off(self.machine.running, fault.seconds)

    def _stall(self, container: Container, seconds: float) -> None:
        self.scheduler.stall(container.process, seconds)
        if container.session is not None:
            container.session.outlived(seconds)

    def _cut_off(self, containers: Sequence[Container], seconds: float) -> None:
        for container in containers:
            if container.session is not None:
                container.session.cut_off(seconds)

    def _lost(self, _act: str, _path: str) -> Loss | None:
        return self._losses.pop(self.scheduler.running, None)

    def _became_visible(self, stream: str, payloads: tuple[bytes, ...]) -> None:
        self.tell(f"readers of {stream} see {_told(payloads)}")
        self._judged(partial(self.seen.add, stream, payloads))

    def _changed(self, _session: int, operations: Sequence[Operation], _versions: Sequence[int]) -> None:
        for operation in operations:
            if isinstance(operation, Set | CreateNode) and operation.path.endswith("/commit-log"):
                after = CommitLog.from_bytes(operation.data, path=operation.path)
                before = self._commit_logs.get(operation.path)
                self._commit_logs[operation.path] = after
                self._judged(partial(oracle.check_commit_log, operation.path, before, after))

    def _judged(self, check: Callable[[], None]) -> None:
        """A promise that is broken ends the simulation, whoever has done it."""
        try:
            check()
        except oracle.Violation as violation:
            self.scheduler.fail(violation)


def _told(payloads: Sequence[bytes]) -> str:
    names = [payload.decode() for payload in payloads]
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]}, ... {names[-1]} ({len(names)})"


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
