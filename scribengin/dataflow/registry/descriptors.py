"""What stands in the nodes of a dataflow: complete, frozen, JSON (paths.py says where)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator
from pydantic_core import to_json

from scribengin.base.model import Descriptor, JsonObject, Part, indented
from scribengin.connectors.contract import Guarantee, SinkStreamDescriptor, SourceStreamDescriptor
from scribengin.spark.transform.spec import StateReport

DataflowState = Literal[
    "starting", "running", "paused", "stopping", "stopped", "finished", "failed", "killed", "deleting"
]
STATUS_TASKS_MAX = 1000
"""A status must fit into one node."""
FINAL_STATES: tuple[DataflowState, ...] = ("stopped", "finished", "failed", "killed")
TaskState = Literal["taking_over", "waiting", "running", "isolating", "idle", "finished", "failed", "released"]


def _writable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


Told = Annotated[str, AfterValidator(_writable)]
"""What people are told, in the words of whoever met it. Half a character, as of a file whose name is no text, becomes
its escape: no node takes it."""


class TaskDescriptor(Descriptor):
    """One task: the source streams it reads, the sink streams it writes. Complete: a worker needs nothing else but
    the config.
    """

    name: str
    sources: tuple[SourceStreamDescriptor, ...]
    sinks: tuple[SinkStreamDescriptor, ...]


class WorkerDescriptor(Descriptor):
    """One worker process and the container it lives in. `container` is the launcher's name for it."""

    name: str
    container: str
    host: str
    pid: int
    executors: tuple[str, ...]
    started_ms: int
    metrics: str | None = None
    """Where it serves /metrics and /health, if it does."""
    config_version: int = 0
    """The version of the config in force that it was started with."""


class TaskAssignment(Descriptor):
    """The master's word that an executor shall run a task. `generation` grows with every assignment of the task.

    `release` asks the executor to drain: finish the round, give the locks back and say so in its report. `next_slot`
    is where the task goes after that (worker, executor), if that is decided already: the next master may be another.
    """

    format: int = 2
    task: str
    generation: int
    release: bool = False
    next_slot: tuple[str, str] | None = None


class PlacementHead(Descriptor):
    """The data of the `placement` node: who places tasks. Every change that a master makes below checks its version, so
    a master that was replaced can place nothing any more. Names and generations are never used twice (numbers.py):
    `first_worker`, `first_master` and `first_generation` are where this dataflow began to count. Who has a lower number
    is of an earlier one of its name.

    `short_leaderships` counts the leaderships in a row that ended before they had lasted: what the next one's patience
    grows with.

    `balanced` are the workers over which the tasks were spread by load: as long as they are the same ones, tasks stay
    where that has put them. `rebalanced` is the config's `rebalance` that was done last.
    """

    format: int = 2
    master: str = ""
    epoch: int = 0
    next_worker: int = 1
    next_generation: int = 1
    next_master: int = 2
    short_leaderships: int = 0
    balanced: tuple[str, ...] = ()
    rebalanced: int = 0
    first_worker: int = 1
    first_master: int = 1
    first_generation: int = 1

    @classmethod
    def beginning(cls, worker: int = 1, master: int = 1, generation: int = 1) -> PlacementHead:
        """The head of a dataflow that has done nothing yet, but for its first master's name."""
        return cls(
            next_worker=worker,
            next_master=master + 1,
            next_generation=generation,
            first_worker=worker,
            first_master=master,
            first_generation=generation,
        )

    def is_foreign(self, process: str) -> bool:
        """Whether a process of that name (`worker-3`, `master-1`) was an earlier dataflow's."""
        kind, _, number = process.rpartition("-")
        first = {"worker": self.first_worker, "master": self.first_master}.get(kind, 0)
        return number.isdecimal() and int(number) < first


class ConfigVersionBase(Part):
    """How versions of the config are counted: from `base` on, by the versions of the `config` node that was made at
    `made_ms` of the registry's clock (None: together with the dataflow). A node that was deleted and made again begins
    at 0, and must not be taken for what it was long ago."""

    base: int = 0
    made_ms: int | None = None


class ConfigInForce(Descriptor):
    """The data of the `config-in-force` node: the config that masters and workers go by, and the version of it that was
    accepted. A bad edit of the `config` node leaves this one alone.

    Workers that were started with a version before `workers_since` are replaced.
    """

    format: int = 2
    version: int
    config: JsonObject
    workers_since: int = 0
    numbers: ConfigVersionBase = ConfigVersionBase()


class ConfigEdit(Descriptor):
    """One version of the config, as the history of edits keeps it. `author`: who wrote it, if the writer said so.

    A command writes it together with the config (`written`); the master adds what the edit changes (`field: old ->
    new`) and what it does, or why it is refused. One that stays `written` was overwritten before a master saw it.
    """

    version: int
    at_ms: int
    author: str | None = None
    config: JsonObject | None = None
    """None: what was written there is no config."""
    outcome: Literal["written", "accepted", "refused"] = "written"
    changes: tuple[Told, ...] = ()
    actions: tuple[Told, ...] = ()
    error: Told | None = None


class Origin(Descriptor):
    """Where the package of a dataflow was shipped from: the directory, and the machine."""

    package: str
    host: str


class TaskSet(Descriptor):
    """The data of the `task-descriptors` node: how many tasks there are. A descriptor beyond them (`task-<count>` and
    later) was left by a master that died while it made them. `grouped_for` is what `tasks` of the config was when the
    streams were grouped into them."""

    count: int = 0
    grouped_for: int | None = None


class StreamLag(Part):
    """How many records of one source stream its task has still to read."""

    source: str
    stream: str
    records: int
    paused: bool = False
    """They wait because the source is paused, and not because anything is amiss."""


class PhaseTimes(Part):
    """How long a round took, phase by phase, in milliseconds. `run` is reading and transforming; of a round that a
    Kafka transaction takes part in, `commit` holds that transaction's commit as well.
    """

    plan: float = 0.0
    run: float = 0.0
    prepare: float = 0.0
    commit: float = 0.0
    complete: float = 0.0


class RoundTimes(Part):
    """The last round, and a mean in which each round counts a fifth."""

    last: PhaseTimes
    mean: PhaseTimes


LAG_STREAMS_MAX = 8
"""Of how many streams of one task the lag is told; of a task with more, those that are furthest behind."""
DETAILS_BYTES_MAX = 64 * 1024
"""How much of a worker's report is lag by stream and time by phase (`with_bounded_details`)."""


class TaskReport(Descriptor):
    """What one task of a worker did since the worker took it over. Counts are of this ownership, lag is of now.

    Rates are the worker's own, smoothed over some ten seconds of its monotonic clock: so one look tells them, and no
    clock that jumps does. All that changes by time alone (rates, `behind_s`, `lag_age_s`) is as old as the report.
    """

    format: int = 2
    task: str
    generation: int
    state: TaskState
    rounds: int = 0
    records_in: int = 0
    records_out: int = 0
    records_bad: int = 0
    lag_records: int | None = None
    """None: nobody has looked yet."""
    lag_paused: int = 0
    """How many of those are of paused sources."""
    lag_age_s: float | None = None
    """How long before the report that was looked up; a round may take long. None: nobody knows."""
    last_commit_ms: int | None = None
    round_ms: float | None = None
    error: Told | None = None
    failures: int = 0
    """How many rounds and take-overs went wrong."""
    in_per_s: float = 0.0
    out_per_s: float = 0.0
    behind_s: float = 0.0
    """For how long there has been something to do, and nothing was committed; 0 when there is nothing to do."""
    lag: tuple[StreamLag, ...] = ()
    """The same by stream, of LAG_STREAMS_MAX at most. Left out, as `times`, where a report has no room for it."""
    times: RoundTimes | None = None
    kept: StateReport | None = None
    """Of a task with state: how much there is."""


class EdgeRates(Part):
    """Records a second, by the source that they are read from and by the sink that they are written to."""

    sources: dict[str, float] = {}
    sinks: dict[str, float] = {}

    @classmethod
    def total(cls, rates: Sequence[EdgeRates]) -> EdgeRates:
        """What goes over the same edges in several places, together."""
        return cls(sources=_sums(one.sources for one in rates), sinks=_sums(one.sinks for one in rates))


def _sums(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            sums[name] = round(sums.get(name, 0.0) + value, 1)
    return sums


class WorkerReport(Descriptor):
    """The report of all tasks of one worker: one node, one write, whatever their number.

    A request has 900 KiB, and that of 2,000 tasks which all fail with long errors is below it, because values that are
    their defaults are left out, errors and details are bounded, and a long one is not indented.
    """

    format: int = 2
    worker: str
    written_ms: int
    tasks: tuple[TaskReport, ...] = ()
    rates: EdgeRates = EdgeRates()
    """Of all its tasks together: so that there is room for every edge, however many tasks there are."""
    spark_ready: bool = False
    leaving: bool = False
    """It was told to end (SIGTERM): it gives its tasks back and takes no new ones."""

    def to_bytes(self) -> bytes:
        """JSON without what is as it is by default."""
        value = {"format": self.format, **self.model_dump(mode="json", exclude_defaults=True)}
        readable = indented(value)
        return readable if len(readable) <= _READABLE_BYTES_MAX else to_json(value)


class HistoryEvent(Descriptor):
    """One line of a dataflow's history."""

    at_ms: int
    kind: str
    message: Told


class History(Descriptor):
    """The last events of a dataflow, oldest first."""

    events: tuple[HistoryEvent, ...] = ()


class DataflowStatus(Descriptor):
    """What the master makes of its dataflow. `error` is the last one, in the words of whoever met it."""

    dataflow: str
    state: DataflowState
    config_version: int
    """The version of the config in force; a later one in the `config` node was refused, and `config_error` says why."""
    config_error: Told | None = None
    error: Told | None = None
    master: str | None = None
    workers: tuple[str, ...] = ()
    tasks: tuple[TaskReport, ...] = ()
    """The last report of each task; of the first STATUS_TASKS_MAX, those with errors before the others."""
    tasks_total: int = 0
    tasks_unassigned: tuple[str, ...] = ()
    updated_ms: int = 0
    submitted_ms: int = 0
    guarantees: dict[str, Guarantee] = {}
    """What each sink promises of the output after a crash."""
    metrics: str | None = None
    """Where the leading master serves /metrics and /health, if it does."""


ERRORS_BYTES_MAX = 64 * 1024
"""How much of a node is errors in full. As much are the ends of others."""
_ERROR_SHORT_BYTES = 120
_READABLE_BYTES_MAX = 512 * 1024
HISTORY_EVENTS_MAX = 200
_HISTORY_BYTES_MAX = 600 * 1024
_EVENT_BYTES = 160
"""What an event takes beside its message."""
_ELLIPSIS = "..."
_CUT_BYTES_MIN = 16
_CUT_CHARACTERS_MIN = 4


def with_bounded_errors(reports: Iterable[TaskReport]) -> tuple[TaskReport, ...]:
    """The same reports, with so much of their errors that a node takes them all: the first in full, then their ends.

    When thousands of tasks fail at once they mostly fail alike, and the last line says how.
    """
    full = short = ERRORS_BYTES_MAX
    bounded = []
    for report in reports:
        error = report.error
        if error is not None and _taken(error) > full:
            lines = error.strip().splitlines() or [_ELLIPSIS]
            error = _fitting(lines[-1], min(_ERROR_SHORT_BYTES, short))
            short = max(0, short - _taken(error))
            report = report.model_copy(update={"error": error})
        elif error is not None:
            full -= _taken(error)
        bounded.append(report)
    return tuple(bounded)


def joined_errors(troubles: Sequence[str]) -> str | None:
    """All of them, as far as a status has room, and how many more there are. None: there is none."""
    left = ERRORS_BYTES_MAX - 2 * _ERROR_SHORT_BYTES
    told: list[str] = []
    for trouble in map(_writable, troubles):
        fitting = trouble if told else _fitting(trouble, left)
        left -= _taken(fitting) + 2
        if left < 0 and told:
            return "\n\n".join([*told, f"and {len(troubles) - len(told):,} more"])
        told.append(fitting)
    return "\n\n".join(told) or None


def last_events(events: Sequence[HistoryEvent]) -> tuple[HistoryEvent, ...]:
    """The last ones, as many as a history keeps and a node takes."""
    left = _HISTORY_BYTES_MAX
    kept: list[HistoryEvent] = []
    for event in reversed(events[-HISTORY_EVENTS_MAX:]):
        left -= _EVENT_BYTES + _taken(event.message)
        if left < 0:
            break
        kept.append(event)
    return tuple(reversed(kept))


def _taken(text: str) -> int:
    """How many bytes a text takes as JSON: of a letter, one to six."""
    return len(to_json(text))


def _fitting(text: str, bytes_max: int) -> str:
    """`text`, cut at its end if it would take more than that."""
    if bytes_max < _CUT_BYTES_MIN:
        return _ELLIPSIS
    fitting = shortened(text, bytes_max)
    while (taken := _taken(fitting)) > bytes_max:
        fitting = shortened(text, max(_CUT_CHARACTERS_MIN, min(len(fitting) - 1, len(fitting) * bytes_max // taken)))
    return fitting


def with_bounded_details(reports: Sequence[TaskReport]) -> tuple[TaskReport, ...]:
    """The same reports, with the details (`lag`, `times`) of so many that a node takes them all: of those furthest
    behind."""
    left = DETAILS_BYTES_MAX
    bounded = list(reports)
    for number in sorted(range(len(bounded)), key=lambda n: (-(bounded[n].lag_records or 0), n)):
        report = bounded[number]
        left -= _PHASES_BYTES + sum(_LAG_BYTES + _taken(s.source) + _taken(s.stream) for s in report.lag)
        if left < 0:
            bounded[number] = without_details(report)
    return tuple(bounded)


def without_details(report: TaskReport) -> TaskReport:
    """The same, as short as it can be."""
    return report.model_copy(update={"lag": (), "times": None})


_PHASES_BYTES = 260
_LAG_BYTES = 80


def shortened(text: str, characters_max: int) -> str:
    """`text`, cut at its end if it is longer than that."""
    return text if len(text) <= characters_max else text[: characters_max - 4] + " ..."
