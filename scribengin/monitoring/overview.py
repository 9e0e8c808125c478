"""The whole overview of dataflows, from the registry alone: what `status`, `list`, `monitor` and others show.

A look reads four nodes of a dataflow and one more a worker, whatever the number of tasks; what is made of it is pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from scribengin.base.model import Part
from scribengin.connectors.contract import Guarantee
from scribengin.dataflow.config import DEFAULT_STALLED_AFTER_S, DataflowConfig
from scribengin.dataflow.lag import UNKNOWN, LagOverview, is_old, lag_of
from scribengin.dataflow.registry.config_node import ConfigNode, config_from_bytes, config_is_gone
from scribengin.dataflow.registry.descriptors import (
    DataflowState,
    DataflowStatus,
    EdgeRates,
    PhaseTimes,
    StreamLag,
    TaskReport,
    WorkerReport,
)
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import ConfigInvalid, DataflowNotFound, DescriptorUnreadable
from scribengin.monitoring.stalled import SILENT_S, age_s, behind_s, stalled_tasks
from scribengin.spark.transform.spec import StateReport
from scribengin_registry.contract import Registry, Watch

ShownState = DataflowState | Literal["stalled", "leaderless", "unreadable"]
"""`leaderless`: its tasks go on, and nobody is there who would replace a worker, or do what is asked for."""
_LED: tuple[DataflowState, ...] = ("running", "paused", "stopping")
"""What no dataflow is for long without a master."""
SOURCE_STREAMS_MAX = 20
"""Of how many streams of one source the lag is shown."""


@dataclass(frozen=True, slots=True)
class OverviewNodes:
    """What stands in the registry about one dataflow, read once. `edit` is what is wrong with the config as it stands
    there; `config` is what it says, or the one in force where it says nothing."""

    status: DataflowStatus
    config: DataflowConfig | None
    config_version: int
    edit: str | None
    masters: int
    reports: dict[str, WorkerReport | None]


class TaskOverview(TaskReport):
    """A task, as its present or last owner reports it, and who that is."""

    worker: str | None = None
    stalled: bool = False
    lag_about: bool = False
    """Whether `lag_records` is older than LAG_OLD_S; of a task that has finished it is final, however old."""


class WorkerOverview(LagOverview):
    """A worker: counts are of its tasks. `silent_s` is how old its report is."""

    name: str
    ready: bool = False
    leaving: bool = False
    silent_s: float | None = None
    tasks: int = 0
    in_per_s: float = 0.0
    out_per_s: float = 0.0


class SourceOverview(LagOverview):
    """What is read from one source, its lag, and that of those of its streams that are furthest behind."""

    source: str
    in_per_s: float = 0.0
    streams: tuple[StreamLag, ...] = ()


class SinkOverview(Part):
    """What is written to one sink."""

    sink: str
    out_per_s: float


class DataflowOverview(LagOverview):
    """One dataflow. Counts of records are of the present owners of its tasks."""

    dataflow: str
    chain: str | None = None
    """CHAIN/NAME of one that is a part of a chain, where somebody has looked at that."""
    state: ShownState
    desired_state: str
    config_version: int
    config_version_latest: int
    config_error: str | None = None
    error: str | None = None
    master: str | None = None
    masters: int = 0
    workers_wanted: int | None = None
    workers: tuple[WorkerOverview, ...] = ()
    tasks_total: int = 0
    tasks_unassigned: tuple[str, ...] = ()
    tasks_stalled: tuple[str, ...] = ()
    tasks: tuple[TaskOverview, ...] = ()
    sources: tuple[SourceOverview, ...] = ()
    sinks: tuple[SinkOverview, ...] = ()
    records_in: int = 0
    records_out: int = 0
    records_bad: int = 0
    in_per_s: float = 0.0
    out_per_s: float = 0.0
    last_commit_ms: int | None = None
    round_ms: PhaseTimes | None = None
    """A mean over the tasks that have had a round."""
    kept: StateReport | None = None
    """Of a dataflow with state: how much there is, in all tasks together."""
    failures: int = 0
    submitted_ms: int = 0
    guarantees: dict[str, Guarantee] = {}


def read_overview(view: DataflowView, watch: Watch | None = None) -> OverviewNodes:
    """Read one dataflow; `watch` fires when its status changes. Raises DataflowNotFound, RegistryUnreachable."""
    status = view.status(watch)
    try:
        found, masters = view.counted_config(), view.masters()
    except DataflowNotFound:  # its deletion was cut short
        return OverviewNodes(status, None, 0, None, 0, {})
    config, edit = _edited(view, found)
    if config is None or status.config_error:  # what was refused is not what counts
        config = DataflowConfig.parse(found.accepted.config, source=view.paths.config_in_force)
    return OverviewNodes(
        status=status,
        config=config,
        config_version=found.version,
        edit=edit,
        masters=masters,
        reports={name: view.report(name) for name in status.workers},
    )


def overviews(registry: Registry, now_ms: int, names: Sequence[str] = ()) -> tuple[DataflowOverview, ...]:
    """The dataflows of these names, in order, or all there are; one whose nodes are damaged hides no other. Raises
    DataflowNotFound of one that was named."""
    found = []
    for name in names or dataflow_names(registry):
        try:
            found.append(overview_of(DataflowView(registry, name), now_ms))
        except DataflowNotFound:
            if names:
                raise
    return tuple(found)


def overview_of(view: DataflowView, now_ms: int) -> DataflowOverview:
    """One dataflow, read now; one whose nodes are damaged is a overview that says so. Raises DataflowNotFound."""
    try:
        return build_overview(read_overview(view), now_ms)
    except DescriptorUnreadable as error:
        return unreadable_overview(view.dataflow, str(error))


def unreadable_overview(name: str, why: str) -> DataflowOverview:
    """Of something that stands in the registry, and cannot be read: only that."""
    return DataflowOverview(
        dataflow=name, state="unreadable", desired_state="unknown", config_version=0, config_version_latest=0, error=why
    )


def build_overview(nodes: OverviewNodes, now_ms: int) -> DataflowOverview:
    """What was read, put together."""
    status, config = nodes.status, nodes.config
    tasks = _tasks(nodes, now_ms)
    stalled = tuple(task.task for task in tasks if task.stalled)
    rates = _rates(nodes, now_ms)
    return DataflowOverview(
        dataflow=status.dataflow,
        state=_shown_state(nodes, stalled=bool(stalled)),
        desired_state=config.desired_state if config is not None else "running",
        config_version=status.config_version,
        config_version_latest=nodes.config_version,
        config_error=status.config_error or nodes.edit,
        error=status.error,
        master=status.master,
        masters=nodes.masters,
        workers_wanted=config.workers if config is not None else None,
        workers=tuple(_worker(name, report, now_ms) for name, report in nodes.reports.items()),
        tasks_total=status.tasks_total,
        tasks_unassigned=status.tasks_unassigned,
        tasks_stalled=stalled,
        tasks=tasks,
        sources=_sources(tasks, rates),
        sinks=tuple(SinkOverview(sink=sink, out_per_s=per_s) for sink, per_s in sorted(rates.sinks.items())),
        records_in=sum(task.records_in for task in tasks),
        records_out=sum(task.records_out for task in tasks),
        records_bad=sum(task.records_bad for task in tasks),
        in_per_s=round(sum(task.in_per_s for task in tasks), 1),
        out_per_s=round(sum(task.out_per_s for task in tasks), 1),
        **dict(_lag(tasks, status)),
        last_commit_ms=max((task.last_commit_ms for task in tasks if task.last_commit_ms), default=None),
        round_ms=_mean_round(tasks),
        kept=StateReport.total([task.kept for task in tasks if task.kept is not None]),
        failures=sum(task.failures for task in tasks),
        submitted_ms=status.submitted_ms,
        guarantees=status.guarantees,
    )


def _shown_state(nodes: OverviewNodes, *, stalled: bool) -> ShownState:
    """What its last master wrote, or what is worse."""
    state = nodes.status.state
    if stalled and state == "running":
        return "stalled"
    return "leaderless" if not nodes.masters and state in _LED else state


def _edited(view: DataflowView, found: ConfigNode) -> tuple[DataflowConfig | None, str | None]:
    """The config as it stands in the registry, and what is wrong with it."""
    path = view.paths.config
    if found.node is None:
        return None, config_is_gone(view.dataflow, path, found.version)
    try:
        return config_from_bytes(found.node.data, path), None
    except ConfigInvalid as error:
        return None, str(error)


def _tasks(nodes: OverviewNodes, now_ms: int) -> tuple[TaskOverview, ...]:
    """Every task that somebody has reported of: its owner, or the master before that."""
    after_s = _stalled_after_s(nodes)
    owned: dict[str, TaskOverview] = {}
    for worker, report in nodes.reports.items():
        if report is None:
            continue
        stalled = stalled_tasks(report, now_ms, after_s)
        age = age_s(report, now_ms)
        for task in report.tasks:
            known = owned.get(task.task)
            if known is None or task.generation >= known.generation:
                owner = worker if task.state != "released" else None
                owned[task.task] = _owned(task, owner, age, stalled=task.task in stalled)
    orphans = [_orphan(task, nodes, now_ms) for task in nodes.status.tasks if task.task not in owned]
    return tuple(sorted([*owned.values(), *orphans], key=_in_order))


def _owned(task: TaskReport, worker: str | None, age: float, *, stalled: bool) -> TaskOverview:
    changed: dict[str, object] = {"behind_s": round(behind_s(task, age), 1), "worker": worker, "stalled": stalled}
    changed |= dict(_known(task, age))
    if age > SILENT_S or worker is None:
        changed |= {"in_per_s": 0.0, "out_per_s": 0.0}
    return TaskOverview.model_validate({**dict(task), **changed})


def _orphan(task: TaskReport, nodes: OverviewNodes, now_ms: int) -> TaskOverview:
    """A task that nobody owns just now. With records waiting it is behind since its last commit."""
    fields: dict[str, object] = {**dict(task), "in_per_s": 0.0, "out_per_s": 0.0, "behind_s": 0.0}
    fields |= dict(_known(task, None))
    if (task.lag_records or 0) > task.lag_paused and nodes.status.state == "running" and task.state != "finished":
        since_ms = max(task.last_commit_ms or 0, nodes.status.submitted_ms)
        behind = max(0.0, (now_ms - since_ms) / 1000)
        fields |= {"behind_s": round(behind, 1), "stalled": behind > _stalled_after_s(nodes)}
    return TaskOverview.model_validate(fields)


def _known(task: TaskReport, report_age_s: float | None) -> LagOverview:
    """How far a task is behind, and how old that is by now; a report of unknown age (None) is old."""
    if task.lag_records is None:
        return UNKNOWN
    age = None if task.lag_age_s is None or report_age_s is None else round(task.lag_age_s + report_age_s, 1)
    about = is_old(age) and task.state != "finished"
    return LagOverview(lag_records=task.lag_records, lag_age_s=age, lag_about=about)


def _lag(tasks: Sequence[TaskOverview], status: DataflowStatus) -> LagOverview:
    """Of a whole dataflow. Of tasks that nobody has told of, or that are not made yet, nobody knows."""
    untold = not tasks or status.tasks_total > len(tasks)
    return lag_of([*tasks, UNKNOWN] if untold else tasks)


def _stalled_after_s(nodes: OverviewNodes) -> float:
    if nodes.config is not None and all(source.paused for source in nodes.config.sources.values()):
        return math.inf  # nothing is to be read, whoever is silent
    return nodes.config.stalled_after_s if nodes.config is not None else DEFAULT_STALLED_AFTER_S


def _worker(name: str, report: WorkerReport | None, now_ms: int) -> WorkerOverview:
    if report is None:
        return WorkerOverview(name=name)
    tasks = [task for task in report.tasks if task.state != "released"]
    age = age_s(report, now_ms)
    rates = tasks if age <= SILENT_S else []
    return WorkerOverview(
        name=name,
        ready=report.spark_ready,
        leaving=report.leaving,
        silent_s=round(age, 1) if report.written_ms else None,
        tasks=len(tasks),
        in_per_s=round(sum(task.in_per_s for task in rates), 1),
        out_per_s=round(sum(task.out_per_s for task in rates), 1),
        **dict(lag_of(_known(task, age) for task in tasks)),
    )


def _rates(nodes: OverviewNodes, now_ms: int) -> EdgeRates:
    """Over all workers; of one that is silent nobody knows."""
    heard = [report for report in nodes.reports.values() if report and age_s(report, now_ms) <= SILENT_S]
    return EdgeRates.total([report.rates for report in heard])


def _sources(tasks: Sequence[TaskOverview], rates: EdgeRates) -> tuple[SourceOverview, ...]:
    streams: dict[str, list[StreamLag]] = {source: [] for source in rates.sources}
    lags: dict[str, list[LagOverview]] = {}
    for task in tasks:
        for stream in task.lag:
            streams.setdefault(stream.source, []).append(stream)
            lag = LagOverview(lag_records=stream.records, lag_age_s=task.lag_age_s, lag_about=task.lag_about)
            lags.setdefault(stream.source, []).append(lag)
    rest = [] if tasks and all(_told_by_stream(task) for task in tasks) else [UNKNOWN]
    return tuple(
        SourceOverview(
            source=source,
            in_per_s=rates.sources.get(source, 0.0),
            **dict(lag_of([*lags.get(source, ()), *rest])),
            streams=tuple(sorted(found, key=lambda s: (-s.records, s.stream))[:SOURCE_STREAMS_MAX]),
        )
        for source, found in sorted(streams.items())
    )


def _told_by_stream(task: TaskOverview) -> bool:
    """Whether the streams that a report had room for are all that the task waits with."""
    return task.lag_records is not None and task.lag_records == sum(stream.records for stream in task.lag)


def _mean_round(tasks: Iterable[TaskOverview]) -> PhaseTimes | None:
    means = [task.times.mean for task in tasks if task.times is not None]
    if not means:
        return None
    return PhaseTimes(
        **{phase: round(sum(getattr(m, phase) for m in means) / len(means), 1) for phase in PhaseTimes.model_fields}
    )


def _in_order(task: TaskReport) -> tuple[int, str]:
    """task-2 before task-10."""
    return len(task.task), task.task
