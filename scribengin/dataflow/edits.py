"""What an edit of a dataflow's config means. Pure: two configs in; what changes and what is done, or why not, out.

| kind    | what                                                 | done                                                |
|---------|------------------------------------------------------|-----------------------------------------------------|
| live    | workers, desired_state, rebalance, limits of a       | by the master at once; by workers, which see it,    |
|         | round, `paused`, errors.records_max, patience        | from the next round on. No task stops               |
| rolling | whatever is not named here: size of the containers,  | a worker with the new config is started, an old one |
|         | executors, Spark's settings, settings, ...           | gives its tasks back and goes; then the next one    |
| regroup | tasks                                                | tasks whose streams change drain, are made anew     |
| restart | the code: transformation, sql, package; the error    | refused while there are workers, which would not    |
|         | route, with a sink of its own where there was none;  | agree about it. Taken over when there are none      |
|         | `errors.action`, which also ends the route;          |                                                     |
|         | what else a source says                              |                                                     |
| never   | name, launcher, yarn, sinks, which sources there are | refused: other resources are another dataflow       |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.config_node import as_json, too_large
from scribengin.dataflow.registry.descriptors import shortened
from scribengin.dataflow.registry.edit_log import changed_values, difference

Kind = Literal["live", "rolling", "regroup", "restart", "never"]
Path = tuple[str, ...]

_KINDS: dict[Path, Kind] = {
    ("workers",): "live",
    ("desired_state",): "live",
    ("rebalance",): "live",
    ("stalled_after_s",): "live",
    ("round",): "live",
    ("patience",): "live",
    ("errors",): "restart",
    ("errors", "records_max"): "live",
    ("tasks",): "regroup",
    ("transformation",): "restart",
    ("sql",): "restart",
    ("package",): "restart",
    ("name",): "never",
    ("launcher",): "never",
    ("yarn",): "never",
    ("sinks",): "never",
    ("sources",): "never",
}
_TOLD_MAX, _NAMES_MAX, _PATH_MAX = 100, 20, 200
"""The history keeps what an edit changes, and a node takes so much."""
_PAUSED = "paused"
_STREAMS = "streams"  # of files: which stream a file is of, and so where it was read, depends on their number


@dataclass(frozen=True, slots=True)
class EditPlan:
    """What an edit changes (`field: old -> new`) and does, for people; or the `refusal`, and then nothing is done."""

    changes: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    refusal: str | None = None
    rolling: bool = False
    rebalance: bool = False

    @property
    def line(self) -> str:
        """What changes, in a line."""
        return ", ".join(self.changes) or "nothing"


def plan_edit(old: DataflowConfig, new: DataflowConfig, *, running: bool) -> EditPlan:
    """What the edit from `old`, which is in force, to `new` means. `running`: whether there are workers."""
    found = changed_values(as_json(old), as_json(new))
    changes = tuple(difference(path, a, b, _dotted(path)) for path, a, b in found[:_TOLD_MAX])
    changes += (f"{len(found) - _TOLD_MAX:,} more",) if len(found) > _TOLD_MAX else ()
    by_kind: dict[Kind, list[Path]] = {}
    route = _added_route(old, new)
    for path, _, _ in found:
        by_kind.setdefault("restart" if path[:2] == route else kind_of(path), []).append(path)
    refusal = _moved_route(old, new) or _refusal(by_kind, new.name, running=running) or too_large(new)
    if refusal is not None:
        return EditPlan(changes, refusal=refusal)
    fields = {path[0] for path, _, _ in found}
    actions = [_live(path, before, after) for path, before, after in found if kind_of(path) == "live"]
    actions += ["the streams are grouped anew; tasks that change drain first"] if "regroup" in by_kind else []
    rolling = "rolling" in by_kind and running
    actions += ["workers are replaced, one after the other"] if rolling else []
    actions += ["taken over by the next workers"] if not running and {"rolling", "restart"} & set(by_kind) else []
    return EditPlan(changes, tuple(dict.fromkeys(actions)), None, rolling, "rebalance" in fields)


def _added_route(old: DataflowConfig, new: DataflowConfig) -> Path | None:
    """Where the sink stands to which bad records go from now on, if that is one more sink. The tasks get a stream of it
    each; what they read and write besides, and where they stand, is as it was."""
    sink = new.errors.sink
    return ("sinks", sink) if sink is not None and old.errors.sink is None and sink not in old.sinks else None


def _moved_route(old: DataflowConfig, new: DataflowConfig) -> str | None:
    """Why the sink to which bad records go cannot go elsewhere, or away.

    Tasks have a stream of it: a round that is not complete is brought to its end there, by whoever comes next.
    """
    sink = old.errors.sink
    if sink is None or new.sinks.get(sink) == old.sinks[sink]:
        return None
    return (
        f"sinks.{sink} takes the bad records and stays as it is, for rounds that are not complete may have written "
        "there: errors.action=stop ends the route; for another place submit another dataflow"
    )


def kind_of(path: Path) -> Kind:
    """How a change at that path of the config is carried out."""
    if path[0] == "sources" and len(path) == 3 and path[2] not in ("kind", _STREAMS):
        return "live" if path[2] == _PAUSED else "restart"
    if path[0] == "sources" and len(path) > 3:
        return "restart"
    return _KINDS.get(path[:2]) or _KINDS.get(path[:1]) or "rolling"


def _refusal(by_kind: dict[Kind, list[Path]], name: str, *, running: bool) -> str | None:
    never = _names(by_kind.get("never", []))
    if never:
        return f"{never} cannot be edited: delete the dataflow and submit it again, or submit another one beside it"
    code = _names(by_kind.get("restart", []))
    if code and running:
        return (
            f"{code} cannot be edited while there are workers: `scribengin restart {name}` with the new value does it"
        )
    return None


def _live(path: Path, before: Any, after: Any) -> str:
    field = path[0]
    if field == "workers":
        difference = int(after) - int(before)
        many = "worker" if abs(difference) == 1 else "workers"
        return f"{difference} {many} more" if difference > 0 else f"{-difference} {many} give their tasks back and go"
    if field == "desired_state":
        return {"paused": "every task drains", "stopped": "every task drains, then all processes leave"}.get(
            str(after), "tasks are placed"
        )
    if field == "rebalance":
        return "tasks move by the records that they read"
    if field == "sources":
        return f"source '{path[1]}' is {'read no longer' if after else 'read again'}"
    return "workers take it over with their next round"


def _names(paths: list[Path]) -> str:
    more = len(paths) - _NAMES_MAX
    return ", ".join(_dotted(path) for path in paths[:_NAMES_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _dotted(path: Path) -> str:
    return shortened(".".join(path), _PATH_MAX)
