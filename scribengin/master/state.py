"""What the master of a dataflow decides. Pure: events in, instructions out; no registry, no clock, no threads.

`MasterState.handle` first lets every event change what is known, and then decides from all that is known, so a decision
never depends on which event told of something. What it instructs it takes as done: either it is done as one
transaction, or the shell starts again from a new snapshot.

A dataflow's goal, the first that holds:

| goal     | when                    | tasks                                       | then                        |
|----------|-------------------------|---------------------------------------------|-----------------------------|
| failed   | a task has failed       | released; lost ones taken over and released | last maintenance, all leave |
| finished | every task has finished | none to do anything with                    | last maintenance, all leave |
| stopped  | desired_state: stopped  | released; lost ones taken over and released | last maintenance, all leave |
| paused   | desired_state: paused   | released; lost ones taken over and released | workers stay                |
| running  | else                    | spread evenly over the executors            |                             |

A task is *clean* when its last owner reported its end, or it never had one: then nothing of it is staged or waits to be
completed. A task whose owner was lost is not, and is never left so: even a stopping dataflow gives it to somebody once
more, only to take it over and release it. A new master does not know which tasks are clean, and takes none for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from scribengin.dataflow.descriptors import (
    FINAL_STATES,
    STATUS_TASKS_MAX,
    DataflowState,
    DataflowStatus,
    PlacementHead,
    TaskDescriptor,
    TaskReport,
)
from scribengin.dataflow.view import Placement
from scribengin.master import events as ev
from scribengin.master.backoff import YOUNG_S
from scribengin.master.facts import LastMaintenance, Place, Recoveries, Worker, accepted_changes, refused_changes, runs
from scribengin.master.placement import Slot, natural, spread
from scribengin.master.staff import Staff
from scribengin.master.telling import Telling, shown_reports


class MasterState:
    """The master `master` of one dataflow, with `standbys` further ones waiting behind it."""

    def __init__(
        self,
        snapshot: ev.DataflowSnapshot,
        *,
        master: str,
        standbys: int,
        now_s: float,
        before: MasterState | None = None,
    ) -> None:
        """`before`: this leadership's earlier state, if it begins again; what no snapshot says is taken from there."""
        self.config = snapshot.config
        self.config_version = snapshot.config_version
        self.config_error: str | None = None
        self.head: PlacementHead = snapshot.head
        self.tasks = dict(snapshot.tasks)
        self.reports: dict[str, TaskReport] = {report.task: report for report in snapshot.status.tasks}
        self.staff = Staff(master, standbys, snapshot.containers, now_s)
        self.errors: dict[str, str] = {}
        self._dataflow = snapshot.dataflow
        self._since_s = now_s
        self._places: dict[str, Place] = {}
        self._clean: set[str] = set(self.tasks) if self.head.next_lease == 1 else set()
        self._finished: set[str] = set()
        self._failed: dict[str, str] = {}
        self._recoveries = Recoveries()
        self._ran = snapshot.status.state not in ("starting", *FINAL_STATES)
        self._state: DataflowState = snapshot.status.state
        self._last_maintenance = LastMaintenance()
        self._winding_down: DataflowState | None = None
        self._left = False
        self._telling = Telling(now_s)
        self._submitted_ms = snapshot.status.submitted_ms
        self._changes: list[ev.RegistryInstruction] = []
        self._actions: list[ev.Instruction] = []
        self._restore(snapshot, now_s)
        if before is None:
            self._telling.record("master", f"{master} leads")
        else:
            self._remember(before)

    def handle(self, events: Iterable[ev.MasterEvent], now_s: float) -> list[ev.Instruction]:
        """Let the events happen, then decide. Changes of the registry come first, to be made as one."""
        if self._left:
            return []
        for event in events:
            self._hear(event, now_s)
        self._decide(now_s)
        done: list[ev.Instruction] = [*self._changes, *self._actions]
        self._changes, self._actions = [], []
        return done

    def provide_standby(self, now_s: float) -> list[ev.Instruction]:
        """Have somebody wait behind this master: a leader's first concern, before it does anything that may kill it."""
        if not self.staff.standby_wanted(now_s):
            return []
        name = f"master-{self.head.next_master}"
        self.head = self.head.model_copy(update={"next_master": self.head.next_master + 1})
        self.staff.standby_launched(name, now_s)
        return [ev.LaunchStandby(name)]

    # -- hearing

    def _restore(self, snapshot: ev.DataflowSnapshot, now_s: float) -> None:
        for worker in snapshot.workers.values():
            self.staff.registered(worker.name, worker.executors, now_s)
            if not worker.alive:
                self.staff.lost(worker.name)
        for placement in sorted(snapshot.placements, key=lambda p: p.assignment.lease):
            self._restore_place(placement)
        for worker in snapshot.workers.values():
            if worker.report is not None:
                self._hear(ev.ReportRead(worker.report), now_s)

    def _remember(self, before: MasterState) -> None:
        self.staff.remember(before.staff)
        self.errors, self._since_s, self._recoveries = before.errors, before._since_s, before._recoveries
        self._clean, self._finished, self._failed = before._clean, before._finished, before._failed
        self._last_maintenance, self._winding_down = before._last_maintenance, before._winding_down

    def _restore_place(self, placement: Placement) -> None:
        assignment, slot = placement.assignment, Slot(placement.worker, placement.executor)
        earlier = self._places.get(assignment.task)
        if earlier is not None:
            self._changes.append(ev.Unassign(assignment.task, earlier.slot))
        self._places[assignment.task] = Place(slot, assignment.lease, assignment.release)

    def _hear(self, event: ev.MasterEvent, now_s: float) -> None:
        match event:
            case ev.ConfigEdited():
                self._hear_edit(event)
            case ev.TasksFound(tasks):
                self._hear_tasks(tasks)
            case ev.StreamsIgnored(streams):
                self._telling.record("streams_ignored", f"not read, because `tasks` is fixed: {', '.join(streams)}")
            case ev.WorkerRegistered(name, executors):
                self.staff.registered(name, executors, now_s)
                self._telling.record("worker_registered", name)
            case ev.WorkerLost(name):
                self.staff.lost(name)
            case ev.ContainerExited(name, how, log):
                self._hear_exit(name, how.reason, log, killed=how.kind == "killed", now_s=now_s)
            case ev.LaunchFailed(name, reason):
                self._hear_exit(name, reason, "", killed=False, now_s=now_s)
            case ev.ReportRead(report):
                self.staff.reported(report)
                for task_report in report.tasks:
                    self._hear_report(report.worker, task_report, now_s)
            case ev.ChoreDone(chore, error):
                self._hear_chore(chore, error)
            case ev.Tick():
                pass

    def _hear_edit(self, event: ev.ConfigEdited) -> None:
        if event.version <= self.config_version or self._winding_down is not None:
            return
        refusal = event.error
        if event.config is not None:
            changes = refused_changes(self.config, event.config)
            refusal = f"{', '.join(changes)} cannot be edited while the dataflow exists" if changes else None
        if refusal is not None or event.config is None:
            text = f"version {event.version} of the config is refused: {refusal}; version {self.config_version} stays"
            if text != self.config_error:
                self._telling.record("config_refused", text)
            self.config_error = text
            return
        self._telling.record("config_accepted", accepted_changes(self.config, event.config))
        self.config, self.config_version, self.config_error = event.config, event.version, None
        self._changes.append(ev.AcceptConfig(event.config, event.version))

    def _hear_tasks(self, tasks: tuple[TaskDescriptor, ...]) -> None:
        new = [task for task in tasks if task.name not in self.tasks]
        if not new or len(new) < len(tasks) or self._goal() not in ("running", "paused"):
            return  # found before the last ones were made, or too late
        self._changes.append(ev.CreateTasks(tuple(new)))
        self.tasks.update({task.name: task for task in new})
        self._clean.update(task.name for task in new)
        self._telling.record("tasks_created", f"{len(new)} tasks, {len(self.tasks)} in all")

    def _hear_exit(self, name: str, reason: str, log: str, *, killed: bool, now_s: float) -> None:
        surprise = self.staff.exited(name, reason, killed=killed, now_s=now_s)
        if surprise is None:
            return
        kind, why = surprise
        self._telling.record(f"{kind}_ended", f"{name}: {why}")
        if self._winding_down is None:
            self.errors[kind] = f"{name} ended: {why}" + (f"\n{log}" if log else "")

    def _hear_report(self, worker: str, report: TaskReport, now_s: float) -> None:
        place = self._places.get(report.task)
        if place is None or place.lease != report.lease or place.slot.worker != worker:
            return  # of an earlier assignment
        self.reports[report.task] = report
        place.done = report.state in ("released", "finished", "failed")
        self._ran = self._ran or runs(report)
        if report.state == "finished":
            self._finished.add(report.task)
        if report.state == "failed" and report.task not in self._failed:
            self._failed[report.task] = report.error or "it does not say why"
            self._telling.record("task_failed", f"{report.task}: {self._failed[report.task].splitlines()[-1]}")
        if runs(report):
            for line in self._recoveries.runs(report.task, now_s):
                self._telling.record("recovered", line)

    def _hear_chore(self, chore: str, error: str | None) -> None:
        kind = "maintenance" if chore == "last maintenance" else chore
        if error is None:
            self.errors.pop(kind, None)
        else:
            self.errors[kind] = error
        if chore == "last maintenance":
            self._last_maintenance.heard(error)

    # -- deciding

    def _goal(self) -> DataflowState:
        if self._winding_down is not None:
            return self._winding_down
        if self._failed:
            return "failed"
        if self.tasks and self._finished.issuperset(self.tasks):
            return "finished"
        return self.config.desired_state

    def _decide(self, now_s: float) -> None:
        self._settle(now_s)
        for worker in self.staff.to_remove_lost():
            self._lose(worker, now_s)
        goal = self._goal()
        if self._winding_down is None:
            self._plan_staff(goal, now_s)
            if goal == "running":
                self._place()
            else:
                self._drain()
            for worker in self.staff.retiring():
                if all(place.done for place in self._places.values() if place.slot.worker == worker.name):
                    self._remove(worker, now_s)
        if goal in FINAL_STATES and self._drained():
            self._end(goal, now_s)
        self._actions += self.staff.to_kill(now_s)
        self._publish(goal, now_s)

    def _settle(self, now_s: float) -> None:
        """This leadership has lasted: the next one need not be careful because of it."""
        if self.head.unsettled and now_s - self._since_s >= YOUNG_S:
            self.head = self.head.model_copy(update={"unsettled": 0})
        for kind in self.staff.calm(self.config.workers, now_s):
            self.errors.pop(kind, None)

    def _plan_staff(self, goal: DataflowState, now_s: float) -> None:
        wanted: int | None = self.config.workers
        if goal in FINAL_STATES:
            # Nobody new, and nobody goes before all is drained; but lost tasks need somebody to bring them to an end.
            wanted = None if self._drained() or self.staff.anybody() else 1
        if wanted is not None:
            load = Counter(place.slot.worker for place in self._places.values() if not place.done)
            self._launch(self.staff.plan_workers(wanted, load, now_s), now_s)
        self._actions += self.provide_standby(now_s)

    def _launch(self, count: int, now_s: float) -> None:
        for number in range(self.head.next_worker, self.head.next_worker + count):
            self.staff.launched(f"worker-{number}", now_s)
            self._actions.append(ev.LaunchWorker(f"worker-{number}"))
        if count:
            self.head = self.head.model_copy(update={"next_worker": self.head.next_worker + count})

    def _place(self) -> None:
        """Spread all tasks that have not finished over the executors that take tasks."""
        executors = self.staff.executors()
        settled: dict[str, Slot] = {}
        homeless: list[str] = []
        leaving = 0
        for task in self.tasks:
            place = self._places.get(task)
            if task in self._finished:
                continue
            if place is None or place.done:
                homeless.append(task)
            elif place.release:
                leaving += 1
            elif place.slot.worker in executors:
                settled[task] = place.slot
            else:
                self._release(task, place)
                leaving += 1
        spreading = spread(executors, settled, homeless, leaving)
        for task in spreading.release:
            self._release(task, self._places[task])
        for task, slot in spreading.assign.items():
            self._assign(task, slot)

    def _drain(self) -> None:
        """Have every task brought to a clean end where it stands, or by somebody else where its owner was lost."""
        executors = self.staff.executors()
        settled: dict[str, Slot] = {}
        for task, place in self._places.items():
            if not place.done and not place.release:
                self._release(task, place)
            if place.slot.worker in executors:
                settled[task] = place.slot
        lost = [task for task in self.tasks if task not in self._places and task not in self._clean]
        for task, slot in spread(executors, settled, lost).assign.items():
            self._assign(task, slot, release=True)

    def _release(self, task: str, place: Place) -> None:
        place.release = True
        self._changes.append(ev.Release(task, place.slot, place.lease))

    def _assign(self, task: str, slot: Slot, *, release: bool = False) -> None:
        previous = self._places.get(task)
        lease = self.head.next_lease
        self.head = self.head.model_copy(update={"next_lease": lease + 1})
        self._places[task] = Place(slot, lease, release)
        self._clean.discard(task)
        self._changes.append(ev.Assign(task, slot, lease, previous.slot if previous else None, release))

    def _lose(self, worker: Worker, now_s: float) -> None:
        """A worker is gone: its tasks stand nowhere now, and are placed again in the transaction that removes it."""
        tasks = self._remove(worker, now_s)
        unfinished = {task for task in tasks if task not in self._finished}
        self._telling.record(
            "worker_lost", f"{worker.name}; its tasks: {', '.join(sorted(unfinished, key=natural)) or 'none'}"
        )
        if self._goal() == "running":
            self._recoveries.lost(worker.name, unfinished, now_s)

    def _remove(self, worker: Worker, now_s: float) -> list[str]:
        """Remove a worker and what stands on it. Returns the tasks that it had not brought to an end."""
        self._changes.append(ev.RemoveWorker(worker.name))
        self.staff.removed(worker, now_s)
        on_it = [task for task, place in self._places.items() if place.slot.worker == worker.name]
        done = [task for task in on_it if self._places[task].done]
        for task in on_it:
            del self._places[task]
        self._clean.update(done)
        return [task for task in on_it if task not in done]

    def _drained(self) -> bool:
        return all(self._places[task].done if task in self._places else task in self._clean for task in self.tasks)

    # -- ending, and telling

    def _end(self, goal: DataflowState, now_s: float) -> None:
        if self._last_maintenance.to_ask():
            self._actions.append(ev.RunLastMaintenance())
        if not self._last_maintenance.done:
            return
        if self._winding_down is None:
            self._winding_down = goal
            self.errors = {kind: error for kind, error in self.errors.items() if kind == "maintenance"}
        for worker in self.staff.to_dismiss(now_s):
            self._remove(worker, now_s)
        if self.staff.nobody_left():
            self._left = True

    def _publish(self, goal: DataflowState, now_s: float) -> None:
        before, self._state = self._state, self._state_of(goal)
        if self._state != before:
            self._telling.record("state", f"{before} -> {self._state}")
        self._actions += self._telling.tell(self._status(), now_s, last=self._left)
        if self._left:
            self._actions.append(ev.Leave(self._state))

    def _state_of(self, goal: DataflowState) -> DataflowState:
        if self._left:
            return goal
        if goal in FINAL_STATES:
            return "stopping"
        if goal == "paused" and self._drained():
            return "paused"
        return "running" if self._ran else "starting"

    def _status(self) -> DataflowStatus:
        troubles = [f"{task}: {error}" for task, error in self._failed.items()]
        troubles += [self.errors[kind] for kind in sorted(self.errors)]
        return DataflowStatus(
            dataflow=self._dataflow,
            state=self._state,
            config_version=self.config_version,
            config_error=self.config_error,
            error="\n\n".join(troubles) or None,
            master=self.head.master,
            workers=tuple(self.staff.names()),
            tasks=shown_reports(self.reports[task] for task in self.tasks if task in self.reports),
            tasks_total=len(self.tasks),
            tasks_unassigned=tuple(self._unassigned()[:STATUS_TASKS_MAX]),
            submitted_ms=self._submitted_ms,
        )

    def _unassigned(self) -> list[str]:
        if self._goal() in FINAL_STATES:
            return []
        return sorted((t for t in self.tasks if t not in self._places and t not in self._finished), key=natural)
