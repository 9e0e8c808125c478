"""What the monitor shows of a overview, as cells and lines: the same on the screen and in a script's output. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from scribengin.base.names import natural
from scribengin.base.text.counting import many, which
from scribengin.dataflow.lag import Lag, lag_of
from scribengin.dataflow.registry.descriptors import FINAL_STATES, PhaseTimes
from scribengin.monitoring.overview import DataflowOverview, TaskOverview
from scribengin.operations.chain.registry import shared_state
from scribengin_tools.rendering.text import age, kept_text, lag_text, state_text
from scribengin_tools.terminal import visible

_MEASURES = {">IN/S": 5, ">OUT/S": 5, ">LAG": 6, ">AGE": 5, ">ROUND": 5, ">FAIL": 4}
FLOW_COLUMNS: dict[str, int] = {"DATAFLOW": 12, "STATE": 8, ">WORK": 5, ">TASKS": 5, **_MEASURES}
TASK_COLUMNS: dict[str, int] = {"TASK": 10, "STATE": 11, "WORKER": 10, **_MEASURES}
"""Headings (of numbers behind a `>`) and widths, which fit 80 columns. The first one takes what is left beyond."""
STREAMS_SHOWN = 3
TASKS_SHOWN_MAX = 200
_TROUBLE = ("unreadable", "stalled", "leaderless", "failed")
_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class ChainRow:
    """A chain, of those of its dataflows that are shown, in its order."""

    chain: str
    dataflows: tuple[DataflowOverview, ...]

    @property
    def state(self) -> str:
        """What all of them are, or else what most needs to be looked at."""
        return shared_state(one.state for one in self.dataflows).split()[0]


def in_order(found: Iterable[DataflowOverview]) -> list[DataflowOverview | ChainRow]:
    """What is in trouble first, then by name; a chain before its dataflows, which stay in the order that they have."""
    chains: dict[str, list[DataflowOverview]] = {}
    groups: list[tuple[DataflowOverview | ChainRow, ...]] = []
    for overview in found:
        if overview.chain is None:
            groups.append((overview,))
        else:
            chains.setdefault(overview.chain.partition("/")[0], []).append(overview)
    groups += [(ChainRow(chain, tuple(flows)), *flows) for chain, flows in chains.items()]
    groups.sort(key=lambda group: (group[0].state not in _TROUBLE, natural(key_of(group[0]))))
    return [one for group in groups for one in group]


def key_of(found: DataflowOverview | ChainRow) -> str:
    """What tells a line from all others."""
    return f"{found.chain}/" if isinstance(found, ChainRow) else found.dataflow


def row_cells(found: DataflowOverview | ChainRow, now_ms: int) -> list[Text]:
    """One line, for FLOW_COLUMNS."""
    return chain_cells(found) if isinstance(found, ChainRow) else flow_cells(found, now_ms)


def chain_cells(found: ChainRow) -> list[Text]:
    """A chain in one line: records as they come in at its beginning are not added to what they become later."""
    state = state_text(found.state)
    flows = found.dataflows
    tasks, lag = sum(one.tasks_total for one in flows), lag_of(flows)
    failures = sum(one.failures for one in flows)
    name = Text(visible(found.chain), "bold", no_wrap=True, overflow="ellipsis")
    nothing = _number("")
    return [
        name,
        state,
        nothing,
        _number(f"{tasks:,}"),
        nothing,
        nothing,
        _number(lag_text(lag, short)),
        nothing,
        nothing,
        _count_of_failures(failures),
    ]


def flow_cells(found: DataflowOverview, now_ms: int) -> list[Text]:
    """One dataflow in one line, for FLOW_COLUMNS. WORK: workers that are ready / wanted; AGE: of the last commit."""
    ready = sum(worker.ready for worker in found.workers)
    wanted = found.workers_wanted if found.workers_wanted is not None else len(found.workers)
    return [
        Text(visible(_shown_name(found)), no_wrap=True, overflow="ellipsis"),
        state_text(found.state),
        _number(f"{ready}/{wanted}"),
        _number(f"{found.tasks_total:,}"),
        *_measures(found.in_per_s, found.out_per_s, found, found.last_commit_ms, now_ms),
        _number(compact(duration(sum(found.round_ms.model_dump().values()))) if found.round_ms else "-"),
        _count_of_failures(found.failures),
    ]


def _shown_name(found: DataflowOverview) -> str:
    return found.dataflow if found.chain is None else f"  {found.chain.partition('/')[2]}"


def task_cells(task: TaskOverview, now_ms: int) -> list[Text]:
    """One task in one line, for TASK_COLUMNS."""
    return [
        Text(visible(task.task)),
        state_text("stalled" if task.stalled else task.state),
        Text(visible(task.worker or "-")),
        *_measures(task.in_per_s, task.out_per_s, task, task.last_commit_ms, now_ms),
        _number("-" if task.round_ms is None else compact(duration(task.round_ms))),
        _count_of_failures(task.failures),
    ]


def tasks_shown(found: DataflowOverview) -> list[TaskOverview]:
    """As many tasks as a screen is good for, in order: those that are stalled, then those that are furthest behind."""
    if len(found.tasks) <= TASKS_SHOWN_MAX:
        return list(found.tasks)
    chosen = sorted(found.tasks, key=lambda task: (not task.stalled, task.error is None, -(task.lag_records or 0)))
    names = {task.task for task in chosen[:TASKS_SHOWN_MAX]}
    return [task for task in found.tasks if task.task in names]


def headline(found: Sequence[DataflowOverview]) -> Text:
    """How many dataflows are in which state."""
    text = Text(many(len(found), "dataflow"))
    for state in dict.fromkeys(sorted((overview.state for overview in found), key=lambda s: (s != "stalled", s))):
        text.append("  ").append_text(state_text(state)).append(f" {sum(p.state == state for p in found)}")
    return text


def detail_lines(found: DataflowOverview) -> list[Text]:
    """What one line a dataflow has no room for: who leads, lag by source, a round by phase, trouble."""
    if found.state == "unreadable":
        return [Text(visible(found.dataflow), "bold"), _fact("error", found.error or "", "red")]
    lines = [_first_line(found)]
    lines += _rates("in", {source.source: source.in_per_s for source in found.sources})
    lines += _rates("out", {sink.sink: sink.out_per_s for sink in found.sinks})
    for source in found.sources:
        lines.append(_fact("lag", f"{source.source} {lag_text(source, short)}"))
        streams = [f"{s.stream} {short(s.records)}" for s in source.streams[:STREAMS_SHOWN] if s.records]
        more = sum(1 for s in source.streams[STREAMS_SHOWN:] if s.records)
        if streams:
            lines[-1].append(f" ({', '.join(streams)}{f' and {more} more' if more else ''})", "dim")
    if found.round_ms is not None:
        lines.append(_fact("round", phases(found.round_ms)))
    if found.kept is not None:
        lines.append(_fact("state", kept_text(found.kept)))
    if len(found.tasks) > TASKS_SHOWN_MAX:
        lines.append(_fact("tasks", f"the {TASKS_SHOWN_MAX} furthest behind of {len(found.tasks):,}", "dim"))
    lines += [_fact("stalled", _stalled(found), "red")] if found.tasks_stalled else []
    if found.tasks_unassigned:
        waiting = len(found.tasks_unassigned)
        has = which(waiting, "has", "have")
        lines.append(_fact("waiting", f"{many(waiting, 'task')} {has} no worker", "yellow"))
    lines += [_fact("config", found.config_error, "red")] if found.config_error else []
    trouble = found.error or next((f"{task.task}: {task.error}" for task in found.tasks if task.error), None)
    lines += [_fact("error", trouble.strip().splitlines()[-1], "red")] if trouble else []
    return lines


def chain_lines(found: ChainRow) -> list[Text]:
    """What there is to say of a chain as a whole."""
    order = ", then ".join((one.chain or one.dataflow).partition("/")[2] for one in found.dataflows)
    keys = "keys are for one dataflow: put the cursor on it"
    return [Text(visible(f"chain {found.chain}"), "bold"), _fact("order", order), Text(keys, "dim")]


def phases(times: PhaseTimes) -> str:
    """A round by phase, in the order in which they happen."""
    return " · ".join(f"{phase} {duration(ms)}" for phase, ms in times.model_dump().items())


def short(number: float) -> str:
    """A number of at most five characters: 7, 3.5, 999, 12.3k, 4.5M."""
    for size, unit in _UNITS:
        if number >= 0.9995 * size:
            scaled = number / size
            return f"{scaled:.0f}{unit}" if scaled >= 99.95 else f"{scaled:.1f}{unit}"
    return f"{number:.0f}" if number >= 99.95 or number == int(number) else f"{number:.1f}"


def duration(milliseconds: float) -> str:
    """A time that something took: 3 ms, 1.5 s, 2.0 min."""
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def compact(text: str) -> str:
    """A time in at most five characters: 58ms, 1.5s, 119m."""
    return text.replace(" ", "").replace("min", "m")


def _measures(per_s_in: float, per_s_out: float, lag: Lag, commit_ms: int | None, now_ms: int) -> Iterable[Text]:
    yield _number(short(per_s_in))
    yield _number(short(per_s_out))
    yield _number(lag_text(lag, short))
    yield _number(compact(age(commit_ms, now_ms)))


def _rates(way: str, by_name: Mapping[str, float]) -> list[Text]:
    """Of one alone the table says it."""
    told = [f"{name} {short(per_s)}/s" for name, per_s in by_name.items()]
    return [_fact(way, " · ".join(told))] if len(told) > 1 else []


def _first_line(found: DataflowOverview) -> Text:
    text = Text(visible(found.chain or found.dataflow), "bold").append(f"  config {found.config_version}", "none")
    if found.masters:
        leader = visible(found.master or "a master")
        text.append(f"  {leader} leads{' + standby' if found.masters > 1 else ''}", "none")
    elif found.state not in FINAL_STATES:
        text.append("  no master is alive", "red")
    if found.desired_state != "running" and found.desired_state != found.state and found.state not in FINAL_STATES:
        text.append(visible(f"  to be {found.desired_state}"), "yellow")
    return text


def _stalled(found: DataflowOverview) -> str:
    stalled = [task for task in found.tasks if task.stalled]
    shown = ", ".join(f"{task.task} for {task.behind_s:.0f} s" for task in stalled[:STREAMS_SHOWN])
    return shown + (f" and {len(stalled) - STREAMS_SHOWN} more" if len(stalled) > STREAMS_SHOWN else "")


def _fact(name: str, text: str, style: str = "") -> Text:
    return Text(f"{name:8}", "dim").append(visible(text), style or "none")


def _number(text: str) -> Text:
    return Text(text, justify="right")


def _count_of_failures(count: int) -> Text:
    return Text(short(count), "red" if count else "", justify="right")
