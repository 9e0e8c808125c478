"""One look at everything: the dataflows of a registry, their chains, and who feeds whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scribengin.base.names import natural
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import DataflowNotFound, DescriptorUnreadable
from scribengin.monitoring.overview import DataflowPicture, look, picture
from scribengin.operations.chain.registry import ChainMember, memberships
from scribengin_registry.contract import Registry


@dataclass(frozen=True, slots=True)
class Look:
    """What stands in the registry. `unreadable` says why of a dataflow, or of `chain NAME`, there is no picture."""

    pictures: Mapping[str, DataflowPicture] = field(default_factory=dict)
    configs: Mapping[str, DataflowConfig | None] = field(default_factory=dict)
    chains: Mapping[str, tuple[str, ChainMember]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)


def look_around(registry: Registry, now_ms: int) -> Look:
    """Look at all dataflows. One whose nodes cannot be read hides no other; nor does a chain. Raises RegistryError."""
    pictures: dict[str, DataflowPicture] = {}
    configs: dict[str, DataflowConfig | None] = {}
    unreadable: dict[str, str] = {}
    for name in sorted(dataflow_names(registry), key=natural):
        try:
            sight = look(DataflowView(registry, name))
        except DataflowNotFound:
            continue  # it was deleted just now
        except DescriptorUnreadable as error:
            unreadable[name] = str(error)
            continue
        pictures[name] = picture(sight, now_ms)
        configs[name] = sight.config
    damaged: dict[str, str] = {}
    chains = memberships(registry, damaged)
    unreadable |= {f"chain {name}": why for name, why in damaged.items()}
    return Look(pictures, configs, chains, unreadable)
