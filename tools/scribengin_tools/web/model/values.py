"""What the page is told, as JSON values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from scribengin.base.names import natural
from scribengin.dataflow.registry.descriptors import ConfigEdit, HistoryEvent
from scribengin.dataflow.registry.edit_log import changes_of
from scribengin.monitoring.overview import DataflowOverview, TaskOverview
from scribengin.operations.chain.registry import ChainMember
from scribengin_tools.web.model.graph import FlowGraph
from scribengin_tools.web.model.layout import layout

TASKS_A_PAGE_MAX = 200
ERROR_CHARACTERS_MAX = 4_000

TaskOrder = Literal[
    "task", "worker", "state", "in_per_s", "out_per_s", "lag_records", "behind_s", "round_ms", "failures"
]
Json = dict[str, Any]


def flow_json(found: DataflowOverview, membership: tuple[str, ChainMember] | None) -> Json:
    """A dataflow in the overview: all but its tasks and workers. Nothing in it changes by time alone."""
    return {
        "name": found.dataflow,
        "chain": membership[0] if membership else None,
        "key": membership[1].key if membership else None,
        "state": found.state,
        "desired": found.desired_state,
        "config_version": found.config_version,
        "config_latest": found.config_version_latest,
        "config_error": found.config_error,
        "error": _ended(found.error),
        "master": found.master,
        "masters": found.masters,
        "ready": sum(worker.ready for worker in found.workers),
        "wanted": found.workers_wanted if found.workers_wanted is not None else len(found.workers),
        "tasks": found.tasks_total,
        "unassigned": len(found.tasks_unassigned),
        "stalled": len(found.tasks_stalled),
        "in_per_s": found.in_per_s,
        "out_per_s": found.out_per_s,
        "lag": found.lag_records,
        "lag_about": found.lag_about,
        "last_commit_ms": found.last_commit_ms,
        "round": found.round_ms.model_dump() if found.round_ms else None,
        "kept": found.kept.model_dump() if found.kept else None,
        "failures": found.failures,
        "records_in": found.records_in,
        "records_out": found.records_out,
        "records_bad": found.records_bad,
        "submitted_ms": found.submitted_ms,
        "guarantees": dict(found.guarantees),
        "sources": {source.source: [source.in_per_s, source.lag_records, source.lag_about] for source in found.sources},
        "sinks": {sink.sink: sink.out_per_s for sink in found.sinks},
    }


def unreadable_json(name: str, why: str) -> Json:
    """A dataflow of which there is nothing to show but the reason."""
    return {"name": name, "state": "unreadable", "error": _ended(why), "sources": {}, "sinks": {}}


def detail_json(found: DataflowOverview) -> Json:
    """What the page of one dataflow shows beside the overview's: workers, lag by stream, what is wrong with tasks."""
    stalled = [task for task in found.tasks if task.stalled]
    failed = [task for task in found.tasks if task.error]
    return {
        "name": found.dataflow,
        "workers": [worker.model_dump() for worker in found.workers],
        "sources": [source.model_dump() for source in found.sources],
        "sinks": [sink.model_dump() for sink in found.sinks],
        "stalled": [{"task": task.task, "behind_s": task.behind_s} for task in stalled[:20]],
        "errors": [{"task": task.task, "error": _ended(task.error)} for task in failed[:20]],
        "unassigned": list(found.tasks_unassigned[:20]),
    }


def tasks_json(
    found: DataflowOverview, *, order: TaskOrder, descending: bool, words: str, offset: int, limit: int
) -> Json:
    """One page of a dataflow's tasks: of those that have all the `words` in their name, worker, state or error."""
    chosen = [task for task in found.tasks if _matches(task, words.lower().split())]
    chosen.sort(key=lambda task: natural(task.task))
    if order != "task":
        chosen.sort(key=lambda task: _key(task, order), reverse=descending)
    elif descending:
        chosen.reverse()
    limit = max(1, min(limit, TASKS_A_PAGE_MAX))
    offset = max(0, min(offset, (len(chosen) - 1) // limit * limit)) if chosen else 0
    page = [{**task.model_dump(exclude={"format"}), "error": _ended(task.error)} for task in chosen[offset:][:limit]]
    return {"total": len(found.tasks), "found": len(chosen), "offset": offset, "limit": limit, "tasks": page}


def graph_json(graph: FlowGraph) -> Json:
    """The graph with the place of each node, in layers and rows."""
    places = layout([node.id for node in graph.nodes], [(edge.start, edge.end) for edge in graph.edges])
    return {
        "nodes": [{"id": n.id, "kind": n.kind, "label": n.label, **asdict(places[n.id])} for n in graph.nodes],
        "edges": [
            {"from": e.start, "to": e.end, "flow": e.flow, "direction": e.direction, "name": e.name}
            for e in graph.edges
        ],
    }


def history_json(
    edits: Sequence[ConfigEdit], events: Sequence[HistoryEvent], in_force: int, unreadable: Sequence[str] = ()
) -> Json:
    """Both histories, the newest first, and why a version is left out. What a version changes that no master has looked
    at is told from the one before it."""
    told = [_edit_json(edit, before) for edit, before in zip(edits, [None, *edits], strict=False)]
    return {
        "in_force": in_force,
        "edits": told[::-1],
        "events": [event.model_dump(mode="json", exclude={"format"}) for event in reversed(events)],
        "unreadable": list(unreadable),
    }


def _edit_json(edit: ConfigEdit, before: ConfigEdit | None) -> Json:
    return {**edit.model_dump(mode="json", exclude={"config", "format"}), "changes": list(changes_of(edit, before))}


def changed_since(entries: Mapping[str, tuple[int, Json]], since: int) -> list[Json]:
    """The values that have changed after that look."""
    return [value for seq, value in entries.values() if seq > since]


def _matches(task: TaskOverview, words: Sequence[str]) -> bool:
    state = "stalled" if task.stalled else task.state
    text = f"{task.task} {task.worker or ''} {state} {task.error or ''}".lower()
    return all(word in text for word in words)


def _key(task: TaskOverview, order: TaskOrder) -> Any:
    if order == "state":
        return (not task.stalled, task.error is None, task.state)
    if order == "worker":
        return natural(task.worker or "")
    return getattr(task, order) or 0


def _ended(error: str | None) -> str | None:
    """The end of an error: the last line of a traceback is the one that says what happened."""
    return None if error is None else error.strip()[-ERROR_CHARACTERS_MAX:]
