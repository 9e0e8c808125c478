"""A small world around a `MasterState`: what stands in the registry, which containers run, what time it is.

It takes one line of a transcript at a time, lets it happen, and answers with what the master decides. Instructions are
carried out at once in the model; workers do nothing by themselves, every step of theirs is a line of the transcript.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from scribengin.connectors.contract import SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import (
    DataflowStatus,
    PlacementHead,
    TaskAssignment,
    TaskDescriptor,
    TaskReport,
    WorkerReport,
)
from scribengin.dataflow.registry.view import Placement
from scribengin.dataflow.tasks import stream_key
from scribengin.launcher.contract import ContainerExit
from scribengin.master.state import events as ev
from scribengin.master.state.machine import MasterState
from scribengin.master.state.spreading import Slot

STARTED_S = 1000.0
ENDLESS = {"kind": "dafka", "topic": "in"}
"""A source whose streams come and go."""


@dataclass
class World:
    """One dataflow. `run` is the only thing to call."""

    config: DataflowConfig = field(default_factory=lambda: make_config())
    config_version: int = 0
    edited_version: int = 0
    head: PlacementHead = field(default_factory=lambda: PlacementHead(master="master-1", epoch=1, short_leaderships=1))
    status: DataflowStatus = field(
        default_factory=lambda: DataflowStatus(dataflow="flow", state="starting", config_version=0)
    )
    tasks: dict[str, TaskDescriptor] = field(default_factory=dict)
    workers: dict[str, ev.WorkerSnapshot] = field(default_factory=dict)
    places: dict[str, tuple[Slot, TaskAssignment]] = field(default_factory=dict)
    containers: list[str] = field(default_factory=list)
    unclean: set[str] = field(default_factory=set)
    """Tasks that have had an owner who did not bring them to an end: something of a round may be left half done."""
    grouped_for: int | None = None
    workers_since: int = 0
    standbys: int = 0
    now_s: float = STARTED_S
    master: MasterState | None = None
    unread: tuple[str, ...] = ()
    """What the readers of drained tasks have not read yet."""
    looked: dict[str, TaskDescriptor] = field(default_factory=dict)
    """The tasks at the last `look`."""
    late: bool = False
    ageing: frozenset[str] = frozenset()

    def run(self, line: str) -> list[str]:
        """Let one line happen. Returns what came of it, as lines."""
        first, *rest = shlex.split(line)
        command: Callable[[str, list[str]], list[str]] = getattr(self, f"do_{first.replace('-', '_')}", self.do_worker)
        return command(first, rest)

    # -- lines that begin with a verb

    def do_submit(self, _: str, options: list[str]) -> list[str]:
        values = dict(option.split("=") for option in options)
        self.standbys = int(values.pop("standbys", "0"))
        self.containers = values.pop("orphans", "").split(",") if "orphans" in values else []
        first = {kind: int(values.pop(f"first_{kind}", "1")) for kind in ("worker", "master", "generation")}
        master = f"master-{first['master']}"
        leads = {"master": master, "epoch": 1, "short_leaderships": 1}
        self.head = PlacementHead.beginning(**first).model_copy(update=leads)
        changes: dict[str, Any] = {"sources": {"in": ENDLESS}} if values.pop("endless", None) else {}
        self.config = make_config(**changes, **{name: int(value) for name, value in values.items()})
        return self._begin(master)

    def do_new_master(self, _: str, names: list[str]) -> list[str]:
        self.head = self.head.model_copy(
            update={"master": names[0], "epoch": self.head.epoch + 1, "short_leaderships": 1}
        )
        return self._begin(names[0])

    def do_kill(self, _: str, __: list[str]) -> list[str]:
        """`scribengin kill`: every process ends at once, and what they wrote stays."""
        self.containers, self.master = [], None
        self.workers = {name: replace(worker, alive=False) for name, worker in self.workers.items()}
        self.status = self.status.model_copy(update={"state": "killed", "workers": (), "tasks_unassigned": ()})
        return ["nothing"]

    def do_start(self, _: str, names: list[str]) -> list[str]:
        """A dataflow that has ended is started again, with a new master."""
        self.status = self.status.model_copy(update={"state": "starting", "tasks": ()})
        return self.do_new_master("", names)

    def do_tasks(self, _: str, counts: list[str]) -> list[str]:
        first = len(self._seen)
        made = tuple(make_task(k) for k in range(first, first + int(counts[0])))
        return self._happen(ev.TasksFound(self._seen, made, self.config.tasks, anew=self._regroups()))

    def do_new(self, _: str, streams: list[str]) -> list[str]:
        """`new 5`: a stream that is found, and gets a task of its own."""
        made = tuple(make_task(len(self._seen) + k, int(n)) for k, n in enumerate(streams))
        return self._happen(ev.TasksFound(self._seen, made, self.config.tasks))

    def do_look(self, _: str, __: list[str]) -> list[str]:
        """The tasks there are just now are those that `late ...` is about."""
        self.looked = dict(self.tasks)
        return ["nothing"]

    def do_late(self, _: str, words: list[str]) -> list[str]:
        """`late join task-0=7`: what was found at the last `look`, and is heard only now."""
        self.late = True
        try:
            return self.run(shlex.join(words))
        finally:
            self.late = False

    @property
    def _seen(self) -> dict[str, TaskDescriptor]:
        return self.looked if self.late else dict(self.tasks)

    def do_regroup(self, _: str, groups: list[str]) -> list[str]:
        """`regroup 0,2 1`: the tasks to come, by the streams that they read."""
        found = tuple(make_task(k, *(int(n) for n in group.split(","))) for k, group in enumerate(groups))
        return self._happen(ev.TasksFound(self._seen, found, self.config.tasks, anew=self._regroups()))

    def do_readers(self, _: str, words: list[str]) -> list[str]:
        """`readers are behind`: from now on, until `readers have read`."""
        self.unread = ("down has 7 records of log 'out/0' to read",) if words == ["are", "behind"] else ()
        return self._asked() or ["nothing"]

    def _asked(self) -> list[str]:
        """The master has asked whether the output of drained tasks was read: it is told so."""
        drained = self.master.placement.unread if self.master is not None else None
        return [] if drained is None else self._happen(ev.OutputRead(drained, self.unread))

    def do_route(self, _: str, names: list[str]) -> list[str]:
        """`route bad`: the sink that was added for bad records is found to be missing in the tasks."""
        added = [SinkStreamDescriptor(sink=names[0], resource="log:/logs/bad", name=str(k)) for k in range(1000)]
        grown = tuple(
            task.model_copy(update={"sinks": (*task.sinks, added[k])}) for k, task in enumerate(self._seen.values())
        )
        return self._happen(ev.TasksFound(self._seen, (), self.config.tasks, grown))

    def _regroups(self) -> bool:
        return self.master is not None and self.master.regrouping

    def do_edit(self, _: str, options: list[str]) -> list[str]:
        self.edited_version += 1
        values: dict[str, Any] = dict(option.split("=") for option in options)
        refused = {why: values.pop(why, None) for why in ("reordering", "crowding")}
        edited = self.config.model_dump()
        for key, text in values.items():
            *above, last = key.split(".")
            within = functools.reduce(lambda level, name: level.setdefault(name, {}), above, edited)
            within[last] = int(text) if text.isdigit() else text or None
        config = DataflowConfig.parse(edited, source="the transcript")
        return self._happen(ev.ConfigEdited(self.edited_version, config, **refused))

    def do_spoil(self, _: str, words: list[str]) -> list[str]:
        self.edited_version += 1
        return self._happen(ev.ConfigEdited(self.edited_version, None, " ".join(words)))

    def do_advance(self, _: str, words: list[str]) -> list[str]:
        """`advance 30 worker-1`: the time passes, and the container of worker-1 still waits for room."""
        self.now_s += float(words[0])
        return self._happen(ev.Tick(frozenset(words[1:]), self.ageing))

    def do_age(self, _: str, names: list[str]) -> list[str]:
        """`age worker-1`: what its container was given to show who it is ends in a while. From here on its launcher
        says so, also to a new master."""
        self.ageing |= frozenset(names)
        return self._happen(ev.Tick(ageing=self.ageing))

    def do_join(self, _: str, groups: list[str]) -> list[str]:
        """`join task-0=7,8 ...`: the streams that are found and join tasks, since there are as many as are wanted."""
        grown = []
        for task, _, numbers in (group.partition("=") for group in groups):
            read = self._seen[task].sources
            streams = tuple(s for n in numbers.split(",") if (s := make_stream(int(n))) not in read)
            grown.append(self._seen[task].model_copy(update={"sources": (*read, *streams)}))
        return self._happen(ev.TasksFound(self._seen, (), self.config.tasks, tuple(grown)))

    def do_take(self, _: str, groups: list[str]) -> list[str]:
        """`take task-0=7 ...`: the streams that are found, and take tasks whose own streams are gone."""
        grown, left = [], set()
        for task, _, numbers in (group.partition("=") for group in groups):
            left |= {stream_key(stream) for stream in self._seen[task].sources}
            streams = tuple(make_stream(int(n)) for n in numbers.split(","))
            grown.append(self._seen[task].model_copy(update={"sources": streams}))
        return self._happen(ev.TasksFound(self._seen, (), self.config.tasks, tuple(grown), left=frozenset(left)))

    def do_go_on(self, _: str, tasks: list[str]) -> list[str]:
        """`go-on task-0 ...`: streams of tasks that had ended go on."""
        return self._happen(ev.TasksFound(self._seen, (), self.config.tasks, again=tuple(tasks)))

    def do_registry_away(self, _: str, seconds: list[str]) -> list[str]:
        """`registry-away 38`: it was away for so long, and answers again."""
        return self._happen(ev.RegistryWasAway(float(seconds[0])))

    def do_maintenance(self, _: str, error: list[str]) -> list[str]:
        return self._happen(ev.JobDone("maintenance", " ".join(error) or None))

    def do_last_maintenance(self, _: str, error: list[str]) -> list[str]:
        return self._happen(ev.JobDone("last maintenance", " ".join(error) or None))

    def do_show(self, _: str, __: list[str]) -> list[str]:
        status = self.status
        lines = [f"{status.state}, config {status.config_version}, workers {', '.join(status.workers) or 'none'}"]
        lines += [f"config error: {status.config_error}"] if status.config_error else []
        lines += [f"error: {line}" for line in (status.error or "").splitlines() if line]
        for task, (slot, assignment) in sorted(self.places.items()):
            mark = " (release)" if assignment.release else ""
            lines.append(f"{task} on {slot.worker}/{slot.executor} generation {assignment.generation}{mark}")
        lines += [f"{task} waits" for task in status.tasks_unassigned]
        return lines

    # -- lines that begin with a worker or another container: worker-1 registers

    def do_worker(self, name: str, words: list[str]) -> list[str]:
        """`worker-1 registers`, `worker-1 is ready`, `worker-1 runs task-0 ...`, and so on."""
        verb, *rest = words
        deeds: dict[str, Callable[[str, list[str]], list[str]]] = {
            "registers": self._registers,
            "is": lambda who, _: self._reports(who, ready=True),
            "reads": self._reads,
            "leaves": lambda who, _: self._reports(who, leaving=True),
            "runs": lambda who, tasks: self._reports(who, state="running", tasks=tasks),
            "isolates": lambda who, tasks: self._reports(who, state="isolating", tasks=tasks),
            "releases": lambda who, tasks: self._reports(who, state="released", tasks=tasks),
            "finishes": lambda who, tasks: self._reports(who, state="finished", tasks=tasks),
            "fails": lambda who, told: self._reports(who, state="failed", tasks=told[:1], error=" ".join(told[1:])),
            "expires": self._expires,
            "exits": self._exits,
            "cannot": lambda who, why: self._cannot(who, " ".join(why[1:])),
        }
        return deeds[verb](name, rest)

    def _registers(self, name: str, rest: list[str]) -> list[str]:
        executors = tuple(f"executor-{k}" for k in range(1, self.config.executors_per_worker + 1))
        self.workers[name] = ev.WorkerSnapshot(
            name, executors, alive=True, report=make_report(name), config_version=self.config_version
        )
        return self._happen(ev.WorkerRegistered(name, executors, self.config_version))

    def _reports(self, name: str, *, state: str = "", tasks: list[str] | None = None, **changes: Any) -> list[str]:
        before = self.workers[name].report
        assert before is not None
        reports = {report.task: report for report in before.tasks}
        error = changes.pop("error", None)
        for task, (slot, assignment) in self.places.items():
            if state and slot.worker == name and (not tasks or task in tasks):
                if state in ("released", "finished"):
                    self.unclean.discard(task)
                reports[task] = TaskReport.model_validate(
                    {"task": task, "generation": assignment.generation, "state": state, "error": error}
                )
        ready = changes.get("ready", before.spark_ready)
        report = before.model_copy(
            update={
                "tasks": tuple(reports.values()),
                "spark_ready": ready,
                "leaving": changes.get("leaving", before.leaving),
            }
        )
        self.workers[name] = replace(self.workers[name], report=report)
        return self._happen(ev.ReportRead(report))

    def _reads(self, name: str, words: list[str]) -> list[str]:
        """`worker-1 reads 2 task-0=100 ...`: what each task reads a second, seen for that many seconds."""
        seconds, *rates = words
        told = dict(rate.split("=") for rate in rates)
        before = self.workers[name].report
        assert before is not None
        self.now_s += float(seconds)
        more = {task: int(rate) * int(seconds) for task, rate in told.items()}
        tasks = tuple(
            task.model_copy(update={"records_in": task.records_in + more.get(task.task, 0)}) for task in before.tasks
        )
        report = before.model_copy(update={"tasks": tasks})
        self.workers[name] = replace(self.workers[name], report=report)
        return self._happen(ev.ReportRead(report))

    def _expires(self, name: str, _: list[str]) -> list[str]:
        self.workers[name] = replace(self.workers[name], alive=False)
        return self._happen(ev.WorkerLost(name))

    def _exits(self, name: str, rest: list[str]) -> list[str]:
        """`worker-1 exits 2 the last line of its log`"""
        code, *log = rest or ["0"]
        kind = "killed" if code == "killed" else "exited"
        how = ContainerExit(kind, None if kind == "killed" else int(code), f"exit code {code}")
        self.containers.remove(name)
        if name in self.workers:
            self.workers[name] = replace(self.workers[name], alive=False)
        return self._happen(ev.ContainerExited(name, how, " ".join(log)))

    def _cannot(self, name: str, why: str) -> list[str]:
        self.containers.remove(name)
        return self._happen(ev.LaunchFailed(name, why))

    # -- the model

    def _begin(self, name: str) -> list[str]:
        placements = [Placement(slot.worker, slot.executor, a, 0) for slot, a in self.places.values()]
        snapshot = ev.DataflowSnapshot(
            dataflow="flow",
            config=self.config,
            config_version=self.config_version,
            head=self.head,
            status=self.status,
            tasks=dict(self.tasks),
            workers=dict(self.workers),
            placements=tuple(placements),
            containers=tuple(self.containers),
            grouped_for=self.grouped_for,
            workers_since=self.workers_since,
        )
        self.master = MasterState(snapshot, master=name, standbys=self.standbys, now_s=self.now_s)
        return self._happen(ev.Tick(ageing=self.ageing))

    def _happen(self, event: ev.MasterEvent) -> list[str]:
        assert self.master is not None, "a transcript begins with `submit`"
        instructions = self.master.handle([event], self.now_s)
        self.head = self.master.head
        for instruction in instructions:
            self._apply(instruction)
        read = [stream_key(stream) for task in self.tasks.values() for stream in task.sources]
        assert len(set(read)) == len(read), "two tasks read one stream"
        told = [describe(instruction) for instruction in instructions]
        asked = not isinstance(event, ev.OutputRead) and ev.AskReaders() in instructions
        return [*told, *(self._asked() if asked else [])] or ["nothing"]

    def _apply(self, instruction: ev.Instruction) -> None:
        match instruction:
            case ev.AcceptConfig(config, version, workers_since):
                self.config, self.config_version, self.workers_since = config, version, workers_since
            case ev.RemoveWorker(name):
                del self.workers[name]
                self.places = {t: place for t, place in self.places.items() if place[0].worker != name}
            case ev.Release(task, slot, generation, next_slot):
                assert self.places[task] == (slot, TaskAssignment(task=task, generation=generation)), (
                    f"{task} is not there"
                )
                there = None if next_slot is None else (next_slot.worker, next_slot.executor)
                self.places[task] = (
                    slot,
                    TaskAssignment(task=task, generation=generation, release=True, next_slot=there),
                )
            case ev.Assign(task, slot, generation, previous, release):
                stood = self.places.get(task)
                assert (stood[0] if stood else None) == previous, f"{task} stands elsewhere"
                assert slot.executor in self.workers[slot.worker].executors, f"{slot} is not there"
                self.places[task] = (slot, TaskAssignment(task=task, generation=generation, release=release))
                self.unclean.add(task)
            case ev.Unassign(task, _):
                del self.places[task]
            case ev.CreateTasks(tasks, grouped_for):
                self.tasks.update({task.name: task for task in tasks})
                self.grouped_for = grouped_for
            case ev.ReplaceTasks(removed, tasks, count, grouped_for):
                assert not self.unclean.intersection(removed), "a round of theirs may be left half done"
                assert not self.places.keys() & set(removed), "they stand somewhere"
                kept = {name: task for name, task in self.tasks.items() if name not in removed}
                self.tasks = dict(sorted({**kept, **{task.name: task for task in tasks}}.items()))
                self.grouped_for = grouped_for
                assert len(self.tasks) == count
            case ev.GrowTask(task):
                assert task.name not in self.unclean, "a round of its may be left half done"
                assert task.name not in self.places, "it stands somewhere"
                assert task.name in self.tasks, "it is not there"
                self.tasks[task.name] = task
            case ev.LaunchWorker(name) | ev.LaunchStandby(name):
                self.containers.append(name)
            case ev.PublishStatus(status):
                self.status = status
            case _:
                return


def make_config(**changes: Any) -> DataflowConfig:
    """The smallest config there is."""
    return DataflowConfig.parse(
        {
            "name": "flow",
            "sources": {"in": {"kind": "log", "logs": "in/*"}},
            "sinks": {"out": {"kind": "log", "log": "out"}},
            "sql": "SELECT payload FROM in",
            **changes,
        },
        source="the transcript",
    )


def make_task(number: int, *streams: int) -> TaskDescriptor:
    """A task of one source stream (or these) and one sink stream."""
    return TaskDescriptor(
        name=f"task-{number}",
        sources=tuple(make_stream(n) for n in streams or (number,)),
        sinks=(SinkStreamDescriptor(sink="out", resource="log:/logs/out", name=str(number)),),
    )


def make_stream(number: int) -> SourceStreamDescriptor:
    """One source stream."""
    return SourceStreamDescriptor(source="in", name=f"in/{number}")


def make_report(worker: str) -> WorkerReport:
    """What a worker says at first: nothing."""
    return WorkerReport(worker=worker, written_ms=0)


def describe(instruction: ev.Instruction) -> str:
    """An instruction as one line of a transcript."""
    match instruction:
        case ev.AcceptConfig(_, version, since, plan):
            rolling = f", workers since {since}" * plan.rolling
            return f"AcceptConfig version {version}{rolling} ({'; '.join(plan.actions)})"
        case ev.RefuseConfig(_, version):
            return f"RefuseConfig version {version}"
        case ev.ReplaceTasks(removed, tasks, count):
            return f"ReplaceTasks {' '.join(removed)} by {' '.join(task.name for task in tasks)}, {count} in all"
        case ev.Release(task, slot, generation, next_slot):
            there = f", then to {next_slot.worker}/{next_slot.executor}" if next_slot is not None else ""
            return f"Release {task} on {slot.worker}/{slot.executor} generation {generation}{there}"
        case ev.Assign(task, slot, generation, previous, release):
            moved = f" from {previous.worker}/{previous.executor}" if previous else ""
            return f"Assign {task} to {slot.worker}/{slot.executor} generation {generation}{moved}" + (
                " (release)" * release
            )
        case ev.Unassign(task, slot):
            return f"Unassign {task} from {slot.worker}/{slot.executor}"
        case ev.CreateTasks(tasks):
            return f"CreateTasks {' '.join(task.name for task in tasks)}"
        case ev.GrowTask(task):
            sinks = f", {' '.join(stream.sink for stream in task.sinks)}" * (len(task.sinks) > 1)
            return f"GrowTask {task.name} to {' '.join(stream.name for stream in task.sources)}{sinks}"
        case ev.RecordHistory(kind, message):
            return f"history: {kind}: {' / '.join(message.splitlines())}"
        case ev.PublishStatus(status):
            trouble = re.sub(r"\s*\n\s*", " / ", status.error or "")
            return f"status: {status.state}" + (f", error: {trouble}" if trouble else "")
        case ev.AskReaders():
            return "AskReaders"
        case ev.RunLastMaintenance():
            return "RunLastMaintenance"
        case ev.ResumeMaintenance():
            return "ResumeMaintenance"
        case ev.Leave(state):
            return f"Leave {state}"
        case ev.RemoveWorker(name) | ev.LaunchWorker(name) | ev.LaunchStandby(name) | ev.KillContainer(name):
            return f"{type(instruction).__name__} {name}"
