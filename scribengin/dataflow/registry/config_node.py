"""What stands in the nodes of a dataflow, of its config and of a sink resource, and what is said when a name or a
resource is taken, or a dataflow is half gone. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scribengin.base.model import indented, node_name
from scribengin.base.text.yaml_text import TEXT_BYTES_MAX
from scribengin.connectors.contract import Guarantee
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import (
    ConfigEdit,
    ConfigInForce,
    ConfigVersionBase,
    DataflowStatus,
    History,
    PlacementHead,
    TaskDescriptor,
    TaskSet,
)
from scribengin.dataflow.registry.paths import DataflowPaths
from scribengin.errors import ConfigInvalid, DataflowBusy, DataflowExists, ResourceTaken
from scribengin_registry.contract import Create, Node, Operation

CONFIG_BYTES_MAX = TEXT_BYTES_MAX
"""A submission writes a config three times in one transaction, the history's copies indented a little further, and
ZooKeeper takes 1 MiB of one."""
_VERSIONS_APART = 1000


def as_json(config: DataflowConfig) -> dict[str, Any]:
    """A config as it is kept: every default written out."""
    return config.model_dump(mode="json", exclude_none=True)


def config_to_bytes(config: DataflowConfig) -> bytes:
    """The content of a `config` node: indented JSON with every default written out, because people edit it."""
    return indented(as_json(config))


def too_large(config: DataflowConfig) -> str | None:
    """Why the registry cannot take the config, if so. Raises nothing, so that an edit can be judged by it."""
    size = len(config_to_bytes(config))
    if size <= CONFIG_BYTES_MAX:
        return None
    return (
        f"the config of '{config.name}' is {size:,} bytes, and the registry takes {CONFIG_BYTES_MAX:,} of one, because "
        "its versions are kept: put tables and long lists into files of the package"
    )


def refuse_too_large(config: DataflowConfig) -> None:
    """Raise ConfigInvalid for a config that the registry cannot take."""
    why = too_large(config)
    if why is not None:
        raise ConfigInvalid(why)


def config_from_bytes(data: bytes, path: str) -> DataflowConfig:
    """Read a `config` node. Raises ConfigInvalid, naming the node."""
    try:
        value = json.loads(data, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"{path} is not JSON: {error}") from None
    config = DataflowConfig.parse(value, source=path)
    try:
        config_to_bytes(config)
    except (ValueError, RecursionError) as error:  # half a character, or a hundred levels of settings
        raise ConfigInvalid(f"{path} holds what cannot be written again: {error}") from None
    return config


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON as people wrote it. Of a key that is there twice the parser would take the last, unsaid."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"the key '{key}' stands twice in one mapping: leave one out")
        made[key] = value
    return made


def first_nodes(
    paths: DataflowPaths,
    config: DataflowConfig,
    now_ms: int,
    guarantees: Mapping[str, Guarantee],
    author: str | None,
    head: PlacementHead,
) -> list[Operation]:
    """What stands below a dataflow's root when it is submitted, the root included."""
    status = DataflowStatus(
        dataflow=paths.dataflow,
        state="starting",
        config_version=0,
        submitted_ms=now_ms,
        guarantees=dict(guarantees),
    )
    first = ConfigEdit(version=0, at_ms=now_ms, author=author, config=as_json(config), outcome="accepted")
    return [
        Create(paths.root),
        Create(paths.config, config_to_bytes(config)),
        Create(paths.edits),
        Create(paths.edit(0), first.to_bytes()),
        Create(paths.status, status.to_bytes()),
        Create(paths.history, History().to_bytes()),
        Create(paths.config_in_force, in_force(config, 0).to_bytes()),
        Create(paths.master),
        Create(paths.task_descriptors, TaskSet().to_bytes()),
        Create(paths.placement, head.to_bytes()),
        Create(paths.workers),
    ]


def in_force(
    config: DataflowConfig, version: int, workers_since: int = 0, numbers: ConfigVersionBase | None = None
) -> ConfigInForce:
    """What stands in the `config-in-force` node when a config has been accepted."""
    return ConfigInForce(
        version=version, config=as_json(config), workers_since=workers_since, numbers=numbers or ConfigVersionBase()
    )


@dataclass(frozen=True, slots=True)
class ConfigNode:
    """The `config` node (None: it is gone), how its versions are counted, and what is `accepted`."""

    node: Node | None
    numbers: ConfigVersionBase
    accepted: ConfigInForce

    @property
    def version(self) -> int:
        """The version that stands there; of one that is gone, the one in force."""
        return self.accepted.version if self.node is None else self.numbers.base + self.node.version


def version_base_of(config: Node | None, kept: Node, accepted: ConfigInForce) -> ConfigVersionBase:
    """How the versions of the `config` node are counted, given the `config-in-force` node and what stands there.

    Both were made in one transaction; a `config` node of another age (or None: one that is gone) goes on at the next
    round number, beyond all that was ever refused. So does one that was restored from a backup: there both were made
    anew, in one transaction maybe, and what was accepted is an edit that was never written to `kept`.
    """
    made_ms = accepted.numbers.made_ms or kept.created_ms
    restored = accepted.version > 0 and kept.version == 0
    if config is not None and config.created_ms == made_ms and not restored:
        return accepted.numbers
    base = (accepted.version // _VERSIONS_APART + 1) * _VERSIONS_APART
    return ConfigVersionBase(base=base, made_ms=None if config is None else config.created_ms)


def config_is_gone(dataflow: str, path: str, version: int) -> str:
    """What is said when somebody has deleted the `config` node."""
    return (
        f"{path} is gone: version {version} of the config stays in force; `scribengin config rollback {dataflow} "
        f"{version}` writes it again, and so does any other edit"
    )


def task_nodes(root: str, task: TaskDescriptor) -> list[Operation]:
    """The creation of a task at `root`: its node, and below it the tree of its streams that operators look at."""
    operations: list[Operation] = [
        Create(root, task.to_bytes()),
        Create(f"{root}/sources"),
        Create(f"{root}/sinks"),
    ]
    for kind, streams in (
        ("sources", [(s.source, s) for s in task.sources]),
        ("sinks", [(s.sink, s) for s in task.sinks]),
    ):
        for name in dict.fromkeys(name for name, _ in streams):
            operations.append(Create(f"{root}/{kind}/{name}"))
        operations += [Create(f"{root}/{kind}/{name}/{node_name(s.name)}", s.to_bytes()) for name, s in streams]
    return operations


def owner_of_resource(node: Node) -> str:
    """The dataflow that a sink resource's node names, or an empty string."""
    try:
        return str(json.loads(node.data)["dataflow"])
    except (ValueError, KeyError, TypeError):
        return ""


def already_there(dataflow: str) -> DataflowExists:
    """The error of a name that is in use."""
    return DataflowExists(
        f"dataflow '{dataflow}' exists already: see `scribengin status {dataflow}`, or give this one another name"
    )


def half_deleted(dataflow: str) -> DataflowBusy:
    """The error of whoever would have a dataflow that is `deleting` go on: its positions may be gone."""
    return DataflowBusy(f"the deletion of '{dataflow}' was cut short: `scribengin delete {dataflow}` ends it")


def refuse_taken(resource: str, owner: str, dataflow: str) -> None:
    """Raise ResourceTaken if `resource` belongs to a dataflow other than `dataflow`."""
    if owner not in ("", dataflow):
        raise ResourceTaken(
            f"dataflow '{owner}' writes {resource} already, and a sink has one dataflow: write somewhere else, "
            f"or stop and delete '{owner}' first"
        )
