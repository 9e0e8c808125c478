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

Where tasks stand, and when they are *clean*, is placement.py's; what an edit of the config means, edits.py's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from scribengin.base.names import a_few, natural
from scribengin.base.text.counting import many, which
from scribengin.dataflow.edits import EditPlan, in_order_of, plan_edit, streams_left
from scribengin.dataflow.registry.descriptors import (
    FINAL_STATES,
    STATUS_TASKS_MAX,
    DataflowState,
    DataflowStatus,
    PlacementHead,
    TaskDescriptor,
    TaskReport,
    joined_errors,
)
from scribengin.master.state import events as ev
from scribengin.master.state.facts import LastMaintenance, PooledWorker, Recoveries, runs
from scribengin.master.state.placement import TaskPlacement
from scribengin.master.state.spreading import Loads
from scribengin.master.state.status import StatusPublisher, shown_reports
from scribengin.master.state.worker_pool import COMING_UP_MAX, YOUNG_S, WorkerPool

READERS_PERIOD_S = 0.5
READERS_PATIENCE_S = 5.0
"""That output is still to be read is worth a word when it takes longer than that."""


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
        self.workers_since = snapshot.workers_since
        self.placement = TaskPlacement(snapshot.tasks, snapshot.head, snapshot.grouped_for)
        self.reports: dict[str, TaskReport] = {report.task: report for report in snapshot.status.tasks}
        self.pool = WorkerPool(master, standbys, snapshot.containers, now_s, snapshot.head.is_foreign)
        self.errors: dict[str, str] = {}
        self._dataflow = snapshot.dataflow
        self._since_s = now_s
        self._loads = Loads()
        self._failed: dict[str, str] = {}
        self._recoveries = Recoveries()
        self._ran = snapshot.status.state not in ("starting", *FINAL_STATES)
        self._state: DataflowState = snapshot.status.state
        self._last_maintenance = LastMaintenance()
        self._winding_down: DataflowState | None = None
        self._left = False
        self._asked: tuple[ev.Drained | None, float] = None, now_s
        self._readers_since: tuple[ev.Drained, float] | None = None
        self._telling = StatusPublisher(now_s)
        self._lasting = snapshot.status.model_dump(include={"submitted_ms", "guarantees"})
        self._actions: list[ev.Instruction] = []
        self._restore(snapshot, now_s)
        if before is None:
            if snapshot.status.state == "starting":
                self._try_again()
            self._telling.record("master", f"{master} leads")
            if self._ran and (led := snapshot.status.master) not in (None, master):
                self._telling.record("master_gone", f"{led} led before: it has died, or lost its session")
        else:
            self._remember(before)

    @property
    def head(self) -> PlacementHead:
        """The head as it is to be written with the next changes."""
        return self.placement.head

    @property
    def tasks(self) -> dict[str, TaskDescriptor]:
        """The tasks there are, in order."""
        return self.placement.tasks

    @property
    def regrouping(self) -> bool:
        """Whether the streams are to be grouped anew."""
        return self.placement.regrouping(self.config.tasks)

    def handle(self, events: Iterable[ev.MasterEvent], now_s: float) -> list[ev.Instruction]:
        """Let the events happen, then decide. Changes of the registry come first, to be made as one."""
        if self._left:
            return []
        for event in events:
            self._hear(event, now_s)
        self._decide(now_s)
        done: list[ev.Instruction] = [*self.placement.changes, *self._actions]
        self.placement.changes = []
        self._actions = []
        return done

    def provide_standby(self, now_s: float) -> list[ev.Instruction]:
        """Have somebody wait behind this master: a leader's first concern, before it does anything that may kill it."""
        if not self.pool.standby_wanted(now_s):
            return []
        name = f"master-{self.head.next_master}"
        self._head(next_master=self.head.next_master + 1)
        self.pool.standby_launched(name, now_s)
        return [ev.LaunchStandby(name)]

    # -- hearing

    def _restore(self, snapshot: ev.DataflowSnapshot, now_s: float) -> None:
        for worker in snapshot.workers.values():
            self.pool.registered(worker.name, worker.executors, now_s, worker.config_version)
            if not worker.alive:
                self.pool.lost(worker.name)
        for placement in sorted(snapshot.placements, key=lambda p: p.assignment.generation):
            self.placement.restore(placement)
        for worker in snapshot.workers.values():
            if worker.report is not None:
                self._hear(ev.ReportRead(worker.report), now_s)
        if snapshot.status.state == "starting":  # what finished before it was killed may have been rewound since
            self.placement.run_again(self.placement.finished)

    def _try_again(self) -> None:
        """It was started again, and what failed before may be mended: workers that were killed still say that it
        failed."""
        self.placement.leave(self._failed)
        self._failed = {}
        self._telling.forget()

    def _remember(self, before: MasterState) -> None:
        self.pool.remember(before.pool)
        self.errors = before.errors
        self._since_s = before._since_s
        self._recoveries = before._recoveries
        self.placement.remember(before.placement)
        self._failed = before._failed
        self._loads = before._loads
        self._last_maintenance = before._last_maintenance
        self._last_maintenance.forget_asking()
        self._winding_down = before._winding_down

    def _hear(self, event: ev.MasterEvent, now_s: float) -> None:
        match event:
            case ev.ConfigEdited():
                self._hear_edit(event)
            case ev.ConfigGone(words):
                if words != self.config_error:
                    self._telling.record("config_gone", words)
                self.config_error = words
            case ev.TasksFound():
                self._hear_tasks(event)
            case ev.OutputRead():
                self._hear_readers(event, now_s)
            case ev.WorkerRegistered(name, executors, config_version):
                self.pool.registered(name, executors, now_s, config_version)
                orphan = " of an earlier dataflow of this name, which was deleted: it is sent away"
                self._telling.record("worker_registered", name + orphan * self.head.is_foreign(name))
            case ev.WorkerLost(name):
                self.pool.lost(name)
            case ev.ContainerExited(name, how, log):
                self._hear_exit(name, how.reason, log, killed=how.kind == "killed", now_s=now_s)
            case ev.LaunchFailed(name, reason):
                self._hear_exit(name, reason, "", killed=False, now_s=now_s)
            case ev.ReportRead(report):
                self.pool.reported(report)
                self._loads.heard(report.tasks, now_s)
                for task_report in report.tasks:
                    self._hear_report(report.worker, task_report, now_s)
            case ev.JobDone(job, error):
                self._hear_job(job, error)
            case ev.RegistryWasAway(away_s):
                self._telling.record("registry_away", f"the registry did not answer for {away_s:.0f} s")
            case ev.Tick(waiting, ageing):
                self._hear_waiting(self.pool.waiting(waiting, now_s))
                for name in self.pool.ageing(ageing):
                    self._telling.record("worker_ageing", f"{name} is replaced before its tokens end")

    def _hear_waiting(self, names: list[str]) -> None:
        self.errors.pop("room", None)
        if names:
            self.errors["room"] = (
                f"no room yet for {', '.join(names)} (each {self.config.container.memory_mb} MB, "
                f"cores: {self.config.container.cores}); it is waited for: see the cluster's queue, or `workers`"
            )

    def _hear_edit(self, event: ev.ConfigEdited) -> None:
        if event.version <= self.config_version or self._winding_down is not None:
            return
        plan = EditPlan(refusal=event.error)
        if event.config is not None:
            plan = plan_edit(self.config, event.config, running=bool(self.pool.workers))
            left = streams_left(self.config, event.config, self.tasks.values())
            plan = plan if plan.refusal is not None or left is None else replace(plan, refusal=left)
        unasked = event.reordering if event.reordering is not None and self._ran else event.crowding
        if unasked is not None and plan.refusal is None:
            plan = replace(plan, refusal=unasked)
        if plan.refusal is not None or event.config is None:
            self._refuse(event, plan)
            return
        self._telling.record("config_accepted", plan.line)
        if plan.rolling:
            self.workers_since = event.version
        if event.config.tasks != self.config.tasks:
            self.placement.regroups_again()
        if event.config.desired_state == "running" != self.config.desired_state:
            self.placement.run_again(self.placement.finished)  # it may have been rewound meanwhile
        self.config = in_order_of(event.config, self.config)
        self.config_version = event.version
        self.config_error = None
        self.placement.changes.append(
            ev.AcceptConfig(self.config, event.version, self.workers_since, plan, event.at_ms, event.numbers)
        )

    def _refuse(self, event: ev.ConfigEdited, plan: EditPlan) -> None:
        text = f"version {event.version} of the config is refused: {plan.refusal}; version {self.config_version} stays"
        if text != self.config_error:
            self._telling.record("config_refused", text)
            self.placement.changes.append(ev.RefuseConfig(event.config, event.version, plan, event.at_ms))
        self.config_error = text

    def _hear_tasks(self, event: ev.TasksFound) -> None:
        if event.grouped_for != self.config.tasks or self._goal() not in ("running", "paused"):
            return  # found for another config, or too late
        made, again = self.placement.looked(event)
        if made:
            self._telling.record("tasks_created", f"{many(made, 'task')}, {len(self.tasks)} in all")
        if again:
            self._telling.record("streams_go_on", f"{', '.join(again)} had ended")
        self._lasting["guarantees"] = event.guarantees or self._lasting["guarantees"]

    def _hear_readers(self, event: ev.OutputRead, now_s: float) -> None:
        if event.drained is not self.placement.unread:
            return  # of an earlier regrouping
        if not event.unread:
            self.placement.was_read(event.drained)
        if self._readers_since is None:
            self._readers_since = (event.drained, now_s)
        if event.unread and now_s - self._readers_since[1] >= READERS_PATIENCE_S:
            tasks = len(event.drained.tasks)
            self.errors["readers"] = (
                f"{many(tasks, 'task')} {which(tasks, 'waits', 'wait')} to be grouped anew until what "
                f"{which(tasks, 'it', 'they')} wrote was read, or its "
                f"readers would see later records before earlier ones: {a_few(event.unread)}; have these run, or "
                "delete them, or set `tasks` back"
            )

    def _wait_for_readers(self, now_s: float) -> None:
        """Go on asking as long as there is anything to ask about."""
        drained = self.placement.unread
        if drained is not None and (drained is not self._asked[0] or now_s - self._asked[1] >= READERS_PERIOD_S):
            self._asked = drained, now_s
            self._actions.append(ev.AskReaders())
        if self._readers_since is not None and self._readers_since[0] is not self.placement.unread:
            self._readers_since = None
            self.errors.pop("readers", None)

    def _hear_exit(self, name: str, reason: str, log: str, *, killed: bool, now_s: float) -> None:
        surprise = self.pool.exited(name, reason, killed=killed, now_s=now_s)
        if surprise is None:
            return
        kind, why = surprise
        self._telling.record(f"{kind}_ended", f"{name}: {why}")
        if self._winding_down is None:
            self.errors[kind] = f"{name} ended: {why}" + (f"\n{log}" if log else "")

    def _hear_report(self, worker: str, report: TaskReport, now_s: float) -> None:
        if not self.placement.heard(worker, report):
            return  # of an earlier assignment
        self.reports[report.task] = report
        self._ran = self._ran or (runs(report) and self.pool.workers[worker].alive)
        if report.state == "failed" and report.task not in self._failed:
            self._failed[report.task] = report.error or "it does not say why"
            self._telling.record("task_failed", f"{report.task}: {self._failed[report.task].splitlines()[-1]}")
        if runs(report):
            for line in self._recoveries.runs(report.task, now_s):
                self._telling.record("recovered", line)

    def _hear_job(self, job: str, error: str | None) -> None:
        kind = "maintenance" if job == "last maintenance" else job
        if error is None:
            self.errors.pop(kind, None)
        else:
            self.errors[kind] = error
        if job == "last maintenance":
            self._last_maintenance.heard(error)

    # -- deciding

    def _goal(self) -> DataflowState:
        if self._winding_down is not None:
            return self._winding_down
        if self._failed:
            return "failed"
        if self.placement.all_finished() and not self.config.endless:
            return "finished"
        return self.config.desired_state

    def _decide(self, now_s: float) -> None:
        self._settle(now_s)
        for worker in self.pool.to_remove_lost():
            self._lose(worker, now_s)
        goal = self._goal()
        if goal not in FINAL_STATES and self._last_maintenance.take_back():
            self._actions.append(ev.ResumeMaintenance())
        if self._winding_down is None:
            self._plan_staff(goal, now_s)
            self._place(goal)
            for worker in self.pool.retiring():
                if self.placement.empty(worker.name):
                    self._remove(worker, now_s)
        if goal in FINAL_STATES and self.placement.drained():
            self._end(goal, now_s)
        self._wait_for_readers(now_s)
        self._actions += self.pool.to_kill(now_s)
        self._publish(goal, now_s)

    def _settle(self, now_s: float) -> None:
        """This leadership has lasted: the next one need not be careful because of it."""
        if self.head.short_leaderships and now_s - self._since_s >= YOUNG_S:
            self._head(short_leaderships=0)
        for kind in self.pool.calm(self.config.workers, now_s):
            self.errors.pop(kind, None)

    def _plan_staff(self, goal: DataflowState, now_s: float) -> None:
        wanted: int | None = self.config.workers
        drained = self.placement.drained()
        if goal in FINAL_STATES or (goal == "paused" and not wanted and not drained):
            # Nobody new, and nobody goes before all is drained; but lost tasks need somebody to bring them to an end.
            wanted = None if drained or self.pool.anybody() else 1
        if wanted is not None:
            count = self.pool.plan_workers(wanted, self.placement.load(), now_s, self.workers_since)
            if self.config.launcher == "local":  # a cluster has a queue; here they would all start at once
                count = min(count, max(0, COMING_UP_MAX - self.pool.coming_up()))
            self._launch(count, now_s)
        self._actions += self.provide_standby(now_s)

    def _launch(self, count: int, now_s: float) -> None:
        for number in range(self.head.next_worker, self.head.next_worker + count):
            self.pool.launched(f"worker-{number}", now_s, self.config_version)
            self._actions.append(ev.LaunchWorker(f"worker-{number}"))
        if count:
            self._head(next_worker=self.head.next_worker + count)

    def _place(self, goal: DataflowState) -> None:
        """Have the tasks stand where they belong: spread over the executors that take tasks, or drained."""
        executors = self.pool.executors()
        if goal in ("running", "paused"):
            regrouped = self.placement.regroup(executors, self.config.tasks)
            if regrouped is not None:
                self._telling.record("tasks_regrouped", regrouped)
                self.reports = {task: report for task, report in self.reports.items() if task in self.tasks}
            if joined := self.placement.grow(executors):
                self._telling.record("streams_joined", a_few(joined))
        if goal != "running":
            self.placement.drain(executors)
            return
        if self.config.rebalance != self.head.rebalanced:
            self._rebalance()
        self.placement.place(executors, self.config.errors.sink)

    def _rebalance(self) -> None:
        moves = self.placement.rebalance(self.pool.executors(), self._loads.rates())
        if moves is not None:
            self._head(rebalanced=self.config.rebalance)
            told = ", ".join(f"{task} to {slot.worker}/{slot.executor}" for task, slot in moves.items())
            self._telling.record("rebalanced", told or "nothing has to move")

    def _head(self, **changes: object) -> None:
        self.placement.head = self.head.model_copy(update=changes)

    def _lose(self, worker: PooledWorker, now_s: float) -> None:
        """A worker is gone: its tasks stand nowhere now, and are placed again in the transaction that removes it."""
        tasks = self._remove(worker, now_s)
        unfinished = {task for task in tasks if task not in self.placement.finished}
        self._telling.record(
            "worker_lost", f"{worker.name}; its tasks: {', '.join(sorted(unfinished, key=natural)) or 'none'}"
        )
        if self._goal() == "running":
            self._recoveries.lost(worker.name, unfinished, now_s)

    def _remove(self, worker: PooledWorker, now_s: float) -> list[str]:
        """Remove a worker and what stands on it. Returns the tasks that it had not brought to an end."""
        self.pool.removed(worker, now_s)
        return self.placement.remove(worker.name)

    # -- ending, and telling

    def _end(self, goal: DataflowState, now_s: float) -> None:
        if self._last_maintenance.to_ask():
            self._actions.append(ev.RunLastMaintenance())
        if not self._last_maintenance.done:
            return
        if self._winding_down is None:
            self._winding_down = goal
            self.errors = {kind: error for kind, error in self.errors.items() if kind == "maintenance"}
        for worker in self.pool.to_dismiss(now_s):
            self._remove(worker, now_s)
        if self.pool.nobody_left():
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
        if goal == "paused" and self.placement.drained():
            return "paused"
        return "running" if self._ran else "starting"

    def _status(self) -> DataflowStatus:
        troubles = [f"{task}: {error}" for task, error in self._failed.items()]
        ending = self._goal() in FINAL_STATES
        troubles += [self.errors[kind] for kind in sorted(self.errors)]
        return DataflowStatus(
            dataflow=self._dataflow,
            state=self._state,
            config_version=self.config_version,
            config_error=self.config_error,
            error=joined_errors(troubles),
            master=self.head.master,
            workers=tuple(self.pool.names()),
            tasks=shown_reports(self.reports[task] for task in self.tasks if task in self.reports),
            tasks_total=len(self.tasks),
            tasks_unassigned=() if ending else tuple(self.placement.unassigned()[:STATUS_TASKS_MAX]),
            **self._lasting,
        )
