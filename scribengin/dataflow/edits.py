"""What an edit of a dataflow's config means. Pure: two configs in; what changes and what is done, or why not, out.

Which kind an edit is of, each field of the config says itself (`TakesEffect`); nothing else asks for a field's name.

| kind    | what                                                 | done                                                |
|---------|------------------------------------------------------|-----------------------------------------------------|
| live    | workers, desired_state, rebalance, limits of a       | by the master at once; by workers, which see it,    |
|         | round, `paused`, errors.records_max, patience        | from the next round on. No task stops               |
| rolling | what a process is started with: size of containers,  | a worker with the new config is started, an old one |
|         | executors, Spark's settings, settings, ...           | gives its tasks back and goes; then the next one    |
|         | state.partitions                                     | the same, and refused while tasks are to run        |
| regroup | tasks, without state                                 | tasks whose streams change drain, are made anew     |
| restart | the code: transformation, sql, package; the error    | refused while there are workers, which would not    |
|         | route, with a sink of its own where there was none;  | agree about it. Taken over when there are none      |
|         | `errors.action`, which also ends the route;          |                                                     |
|         | what else a source says; how the brokers of a sink   |                                                     |
|         | are reached                                          |                                                     |
| never   | name, launcher, yarn, sinks, which sources there are | refused: other resources are another dataflow       |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel

from scribengin.base.model import NEVER, EditKind, TakesEffect, models_in, takes_effect
from scribengin.base.names import a_few, natural
from scribengin.base.text.counting import many, which
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.config_diff import changed_values, difference
from scribengin.dataflow.registry.config_node import as_json, too_large
from scribengin.dataflow.registry.descriptors import TaskDescriptor, shortened

Path = tuple[str, ...]
_M = TypeVar("_M", bound=BaseModel)
_T = TypeVar("_T")

_TOLD_MAX, _NAMES_MAX, _PATH_MAX = 100, 20, 200
"""The history keeps what an edit changes, and a node takes so much."""


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
    by_kind: dict[EditKind, list[Path]] = {}
    route = _added_route(old, new)
    for path, _, _ in found:
        by_kind.setdefault("restart" if path[:2] == route else kind_of(path), []).append(path)
    refusal = (
        _moved_route(old, by_kind.get("never", []))
        or _moved_state(old, new)
        or _divided_state(old, new, running=running)
        or _refusal(by_kind, new.name, running=running)
        or too_large(new)
    )
    if refusal is not None:
        return EditPlan(changes, refusal=refusal)
    fields = {path[0] for path, _, _ in found}
    actions = [_live(path, before, after) for path, before, after in found if kind_of(path) == "live"]
    actions += ["the streams are grouped anew; tasks that change drain first"] if "regroup" in by_kind else []
    rolling = "rolling" in by_kind and running
    actions += ["workers are replaced, one after the other"] if rolling else []
    actions += ["taken over by the next workers"] if not running and {"rolling", "restart"} & set(by_kind) else []
    return EditPlan(changes, tuple(dict.fromkeys(actions)), None, rolling, "rebalance" in fields)


def in_order_of(config: DataflowConfig, before: DataflowConfig) -> DataflowConfig:
    """`config`, of a dataflow with state that has been as `before`: with its sources, sinks and statements in the order
    that they have there, and others behind them.

    Nobody means anything by another order. But Spark numbers what a query keeps, and where it has read up to, by the
    order in which the query has them: two sinks would go on with what the other one has kept.
    """
    if config.state is None:
        return config
    sinks = dict.fromkeys([*before.statements(), *before.sinks])  # the statements' order is the query's, if there are
    update: dict[str, Any] = {"sources": _ordered(config.sources, before.sources)}
    update["sinks"] = _ordered(config.sinks, sinks)
    if isinstance(config.sql, dict):
        update["sql"] = _ordered(config.sql, sinks)
    return config.model_copy(update=update)


def _ordered(named: Mapping[str, _T], names: Iterable[str]) -> dict[str, _T]:
    first = {name: named[name] for name in names if name in named}
    return {**first, **named}


def streams_left(old: DataflowConfig, new: DataflowConfig, tasks: Collection[TaskDescriptor]) -> str | None:
    """Why a source does not begin to mean other streams: tasks that are there read theirs to the end all the same, and
    what is held back for them stays so."""
    changed = {
        name: (old.sources[name], source)
        for name, source in new.sources.items()
        if name in old.sources and source.endpoint() != old.sources[name].endpoint()
    }
    for name, (before, after) in changed.items():
        read = [stream.name for task in tasks for stream in task.sources if stream.source == name]
        left = sorted((stream for stream in read if not after.still_reads(stream, before)), key=natural)
        if left:
            return (
                f"sources.{name}: the dataflow reads {a_few(left)}, which would not be meant any more: have it mean "
                "these, too, or submit another dataflow for the others"
            )
    return None


def _added_route(old: DataflowConfig, new: DataflowConfig) -> Path | None:
    """Where the sink stands to which bad records go from now on, if that is one more sink. The tasks get a stream of it
    each; what they read and write besides, and where they stand, is as it was."""
    sink = new.errors.sink
    return ("sinks", sink) if sink is not None and old.errors.sink is None and sink not in old.sinks else None


def _moved_route(old: DataflowConfig, never: Collection[Path]) -> str | None:
    """Why the sink to which bad records go cannot go elsewhere, or away. `never`: the changes that cannot be made.

    Tasks have a stream of it: a round that is not complete is brought to its end there, by whoever comes next.
    """
    sink = old.errors.sink
    if sink is None or not any(path[:2] == ("sinks", sink) for path in never):
        return None
    return (
        f"sinks.{sink} takes the bad records and stays as it is, for rounds that are not complete may have written "
        "there: errors.action=stop ends the route; for another place submit another dataflow"
    )


def _moved_state(old: DataflowConfig, new: DataflowConfig) -> str | None:
    """Why the streams of a dataflow with state are not grouped anew."""
    if old.state is None or old.tasks == new.tasks:
        return None
    return (
        f"tasks stays {old.tasks}: what is kept of a key cannot move from one task to another; for {new.tasks} submit "
        "another dataflow"
    )


def _divided_state(old: DataflowConfig, new: DataflowConfig, *, running: bool) -> str | None:
    """Why state is not divided anew: it stands still meanwhile, so somebody has to have decided that."""
    if old.state is None or new.state is None or old.state.partitions == new.state.partitions:
        return None
    if not running or old.desired_state != "running":
        return None
    return (
        f"state.partitions cannot be edited while tasks run: `scribengin pause {new.name}`, edit it, and then "
        f"`scribengin resume {new.name}`; each task divides its state before it goes on"
    )


def kind_of(path: Path) -> EditKind:
    """How a change at that path of the config is carried out: as the innermost field says that says anything. What
    nobody has said anything of is refused."""
    return _effect(path).kind


def with_live_part(config: DataflowConfig, newer: DataflowConfig) -> DataflowConfig:
    """`config` with what is live as `newer` has it. For a worker: for all else there will be another one."""
    return _merged(config, newer, ())


def with_wishes(config: DataflowConfig, of: DataflowConfig) -> DataflowConfig:
    """`config`, but what operators want of the dataflow just now as in `of`: whether it runs, and the like."""
    wished = {name: getattr(of, name) for name in DataflowConfig.model_fields if _effect((name,)).wish}
    return config.model_copy(update=wished)


@lru_cache(maxsize=4096)
def _effect(path: Path) -> TakesEffect:
    """The word of the innermost field on the way; a mapping's names are no fields. Workers ask at every look at their
    config, for every field."""
    models: tuple[type[BaseModel], ...] = (DataflowConfig,)
    said, in_mapping = NEVER, False
    for key in path:
        if in_mapping:
            in_mapping = False
            continue
        holders = [model for model in models if key in model.model_fields]
        if not holders:
            break
        said = next((word for model in holders if (word := takes_effect(model, key)) is not None), said)
        annotations = [model.model_fields[key].annotation for model in holders]
        in_mapping = any(get_origin(annotation) is dict for annotation in annotations)
        models = tuple(below for annotation in annotations for below in models_in(annotation))
    return said


def _merged(own: _M, newer: _M, path: Path) -> _M:
    update: dict[str, Any] = {}
    for name in type(own).model_fields:
        mine, there, below = getattr(own, name), getattr(newer, name, None), (*path, name)
        if _effect(below).kind == "live":
            update[name] = there
        elif isinstance(mine, dict) and isinstance(there, dict):
            update[name] = {key: _one(value, there.get(key), (*below, key)) for key, value in mine.items()}
        else:
            update[name] = _one(mine, there, below)
    return own.model_copy(update=update)


def _one(mine: Any, there: Any, path: Path) -> Any:
    both = isinstance(mine, BaseModel) and isinstance(there, type(mine))
    return _merged(mine, there, path) if both else mine


def _refusal(by_kind: dict[EditKind, list[Path]], name: str, *, running: bool) -> str | None:
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
        if difference > 0:
            return f"{many(difference, 'worker')} more"
        return f"{many(-difference, 'worker')} {which(-difference, 'gives its tasks back', 'give their tasks back')}"
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
