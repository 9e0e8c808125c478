"""Editing the config of a dataflow: what every command that changes a running dataflow does in the end.

An edit is judged here before it is written, by the rules of the master itself, so what would be refused is not even
written. The master has the last word all the same: `verdict` waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.text.masking import masked, unmasked
from scribengin.base.text.refusals import did_you_mean
from scribengin.base.text.yaml_text import parse_yaml
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edges import reordering
from scribengin.dataflow.edits import EditPlan, plan_edit, streams_left, with_wishes
from scribengin.dataflow.registry.config_node import as_json, config_from_bytes, half_deleted
from scribengin.dataflow.registry.descriptors import FINAL_STATES, ConfigEdit, DataflowStatus
from scribengin.dataflow.registry.edit_log import config_of_version, edited_since, until_written, write_edit
from scribengin.dataflow.registry.view import DataflowView, Versioned
from scribengin.dataflow.tasks import crowding
from scribengin.errors import ConfigInvalid, DataflowBusy
from scribengin.operations.lifecycle import Change, author, refuse_without_master
from scribengin.operations.submit.memory import with_other_needs, with_room
from scribengin_registry.contract import Registry

_VERDICT_S = 10.0
_LOOK_S = 0.5

ConfigChange = Callable[[DataflowConfig], DataflowConfig]


@dataclass(frozen=True, slots=True)
class EditResult:
    """An edit that was written as `version`; nothing was, if it changed nothing."""

    version: int
    plan: EditPlan
    written: bool
    meanwhile: str = ""
    """What others have edited while this was being written; it stays as well."""


def edit_config(view: DataflowView, change: ConfigChange, by: str | None = None, *, force: bool = False) -> EditResult:
    """Apply `change` to the config as it stands, again and again while others edit it.

    For changes that mean the same whatever else is edited. An edit that the master has refused is replaced by the
    config in force: else this one would be refused with it. `by` is who edits; default: who runs this process. `force`:
    also where a reader might see records out of order, and for more workers than there are tasks for. Raises
    ConfigInvalid and DataflowBusy (it would be refused, or others keep editing; nothing was written), DataflowNotFound.
    """
    first: int | None = None

    def attempt() -> EditResult:
        nonlocal first
        found = view.config_to_edit()
        first = found.version if first is None else first
        edited = replace_config(view, found, change(found.value), by, force=force)
        since = edited_since(view, first, upto=found.version) if found.version > first else ""
        return replace(edited, meanwhile=since)

    return until_written(view, attempt)


def replace_config(
    view: DataflowView,
    found: Versioned[DataflowConfig],
    config: DataflowConfig,
    by: str | None = None,
    *,
    force: bool = False,
) -> EditResult:
    """Replace the config that was `found`. Raises ConfigInvalid, DataflowBusy (it would be refused), EditConflict."""
    refuse_invalid(view, config)
    if not force:
        refuse_unmeant(view, found.value, config)
    plan = plan_edit(found.value, config, running=view.has_workers())
    if config == found.value and _stands(view, config):
        return EditResult(found.version, plan, written=False)
    version = write_edit(view, config, found.version, author=by or author(), at_ms=SYSTEM_CLOCK.now_ms())
    return EditResult(version, plan, written=True)


def _stands(view: DataflowView, config: DataflowConfig) -> bool:
    """Whether the node holds it. What was refused may stand there in its place, or nothing at all."""
    node = view.registry.find(view.paths.config)
    try:
        return node is not None and config_from_bytes(node.data, view.paths.config) == config
    except ConfigInvalid:
        return False


def rolled_back(view: DataflowView, version: int) -> ConfigChange:
    """The change that makes the config what it was at that version. Whether the dataflow runs, is paused or stops is
    left as it is. Raises ConfigInvalid: that version is not kept."""
    old = config_of_version(view, version)

    def back(config: DataflowConfig) -> DataflowConfig:
        return with_wishes(old, of=config)

    return back


def refuse_invalid(view: DataflowView, config: DataflowConfig) -> None:
    """Raise ConfigInvalid for what the master would refuse."""
    state = view.status().state
    if state == "deleting":
        raise half_deleted(view.dataflow)
    refuse_edit(view, config, running=view.has_workers())


def refuse_edit(view: DataflowView, config: DataflowConfig, *, running: bool) -> None:
    """Raise ConfigInvalid for a config that cannot follow the one that is in force, with workers or without."""
    before = view.config_in_force().value
    refusal = plan_edit(before, config, running=running).refusal
    if refusal is None and config.sources != before.sources:
        refusal = streams_left(before, config, view.tasks().values())
    if refusal is not None:
        raise ConfigInvalid(refusal)


def refuse_unmeant(view: DataflowView, before: DataflowConfig, config: DataflowConfig) -> None:
    """What only `force` does. Raises DataflowBusy as `refuse_reordering`, and ConfigInvalid for more workers on one
    machine than the tasks can use: more than there were before."""
    refuse_reordering(view, before, config)
    if config.workers > before.workers and (why := crowding(before, config, view.status().tasks_total)) is not None:
        raise ConfigInvalid(why)


def refuse_reordering(view: DataflowView, before: DataflowConfig, config: DataflowConfig) -> None:
    """Raise DataflowBusy if the edit of a dataflow that has not ended changes how many tasks there are, and a reader
    that nobody waits for might see records of a stream out of order."""
    if config.tasks == before.tasks or view.status().state in FINAL_STATES:
        return
    why = reordering(view, config.tasks)
    if why is not None:
        raise DataflowBusy(why)


def refuse_unless_led(view: DataflowView) -> DataflowStatus:
    """The status of a dataflow that has not ended, was not asked to, and has a master to carry edits out. Raises
    DataflowBusy: an edit of one that is to stop might take the stop back, unsaid, before its master has heard of it."""
    status = view.status()
    name = view.dataflow
    if status.state == "deleting":
        refuse_invalid(view, view.config_in_force().value)
    if status.state in FINAL_STATES:
        raise DataflowBusy(f"dataflow '{name}' is {status.state}: `scribengin start {name}` first")
    if status.state == "stopping" or view.config_to_edit().value.desired_state == "stopped":
        raise DataflowBusy(f"dataflow '{name}' is stopping: wait until it has, then `scribengin start {name}`")
    refuse_without_master(view)
    return status


def verdict(view: DataflowView, version: int) -> ConfigEdit | None:
    """What a master made of the version; None if none has looked at it within some seconds. Raises ConfigInvalid when
    it refused it."""
    path = view.paths.edit(version)
    deadline_s = SYSTEM_CLOCK.monotonic_s() + _VERDICT_S
    with Change(view.registry) as changed:
        while SYSTEM_CLOCK.monotonic_s() < deadline_s:
            changed.clear()
            node = view.registry.find(path, changed)
            if node is None:
                return None
            edit = ConfigEdit.from_bytes(node.data, path=path)
            if edit.outcome == "refused":
                raise ConfigInvalid(f"the master refuses version {version}: {edit.error}")
            if edit.outcome == "accepted":
                return edit
            changed.wait(_LOOK_S)
    return None


def with_values(registry: Registry, config: DataflowConfig, values: Mapping[str, str]) -> DataflowConfig:
    """The config with other values: dotted keys to YAML. An empty value is the default. Raises ConfigInvalid."""
    edited: dict[str, Any] = as_json(config)
    for key, text in values.items():
        *above, last = key.split(".")
        node: Any = edited
        for part in above:
            node = node.setdefault(part, {}) if isinstance(node, dict) else None
        if not isinstance(node, dict):
            raise ConfigInvalid(f"{key}: '{'.'.join(above)}' holds no keys")
        value = unmasked(parse_yaml(text, source=f"{key}: the value"), None, None, tuple(key.split(".")))
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value
    made = with_room(registry, DataflowConfig.parse(edited, source="the edit"))
    needs = {"container.cores", "state.memory_mb"} & set(values)
    alone = needs and not {"container", "container.memory_mb"} & set(values)
    return with_other_needs(registry, made, config) if alone else made


def shown_json(config: DataflowConfig, *, secrets: bool = False) -> dict[str, Any]:
    """A config to look at: what looks like a secret is masked, unless it is asked for."""
    whole = as_json(config)
    return whole if secrets else {key: masked(value, key) for key, value in whole.items()}


def value_at(config: DataflowConfig, key: str, *, secrets: bool = False) -> Any:
    """What stands at a dotted key. Raises ConfigInvalid."""
    node: Any = shown_json(config, secrets=secrets)
    if key in DataflowConfig.model_fields:
        return node.get(key)
    above = ""
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            raise _no_key(above, part, node)
        node, above = node[part], f"{above}{part}."
    return node


def _no_key(above: str, part: str, node: Any) -> ConfigInvalid:
    """`above`: with its dot, what was found."""
    if not isinstance(node, dict):
        return ConfigInvalid(f"the config has no '{above}{part}': '{above[:-1]}' holds no keys")
    keys = [f"{above}{key}" for key in (node if above else DataflowConfig.model_fields)]
    listed = f" (it has {', '.join(f'{above}{key}' for key in node) or 'nothing there'})"
    return ConfigInvalid(f"the config has no '{above}{part}'{listed}{did_you_mean(above + part, keys)}")


def as_yaml(config: DataflowConfig, *, secrets: bool = False) -> str:
    """A config for people. What looks like a secret is masked, unless it is asked for."""
    return yaml.safe_dump(shown_json(config, secrets=secrets), sort_keys=False, allow_unicode=True, width=100)


def from_yaml(registry: Registry, text: str, before: DataflowConfig) -> DataflowConfig:
    """The config that people made of `before`, as `as_yaml` showed it: what they left masked is what it was. Raises
    ConfigInvalid."""
    value = unmasked(parse_yaml(text, source="this"), as_json(before), shown_json(before))
    return with_room(registry, DataflowConfig.parse(value, source="the edit"))
