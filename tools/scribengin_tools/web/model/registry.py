"""One look at everything: the dataflows of a registry, their chains, and who feeds whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scribengin.base.names import natural
from scribengin.base.text.plain_words import in_plain_words
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import DataflowNotFound, DescriptorUnreadable
from scribengin.monitoring.overview import DataflowOverview, build_overview, read_overview
from scribengin.operations.chain.registry import ChainMember, memberships
from scribengin_registry.contract import Registry


@dataclass(frozen=True, slots=True)
class RegistryView:
    """What stands in the registry. `unreadable` says why of a dataflow, or of `chain NAME`, there is no overview."""

    overviews: Mapping[str, DataflowOverview] = field(default_factory=dict)
    configs: Mapping[str, DataflowConfig | None] = field(default_factory=dict)
    chains: Mapping[str, tuple[str, ChainMember]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)


def look_around(registry: Registry, now_ms: int) -> RegistryView:
    """Look at all dataflows. One whose nodes cannot be read hides no other; nor does a chain. Raises RegistryError."""
    overviews: dict[str, DataflowOverview] = {}
    configs: dict[str, DataflowConfig | None] = {}
    unreadable: dict[str, str] = {}
    for name in sorted(dataflow_names(registry), key=natural):
        try:
            nodes = read_overview(DataflowView(registry, name))
        except DataflowNotFound:
            continue  # it was deleted just now
        except DescriptorUnreadable as error:
            unreadable[name] = in_plain_words(error)
            continue
        overviews[name] = build_overview(nodes, now_ms)
        configs[name] = nodes.config
    damaged: dict[str, str] = {}
    chains = memberships(registry, damaged)
    unreadable |= {f"chain {name}": why for name, why in damaged.items()}
    return RegistryView(overviews, configs, chains, unreadable)
