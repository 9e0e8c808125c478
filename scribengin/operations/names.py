"""What a name on a command line means: a dataflow, a chain, or `CHAIN/NAME`, a dataflow of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from scribengin.dataflow.registry.paths import DataflowPaths
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ChainNotFound, ConfigInvalid, DataflowExists, DescriptorUnreadable
from scribengin.operations.chain.registry import ChainDescriptor, find_chain, get_chain, refuse_reserved
from scribengin_registry.contract import Registry


def view_of(registry: Registry, name: str) -> DataflowView:
    """The one dataflow that is meant; whether it exists is for its nodes to tell. Raises ChainNotFound, and
    ConfigInvalid for a chain, and for what is no name."""
    _refuse_empty(name)
    chain_name, slash, key = name.partition("/")
    if slash:
        chain = get_chain(registry, chain_name)
        member = chain.member(key)
        if member is None:
            raise ChainNotFound(f"chain '{chain_name}' has no dataflow '{key}' (it has: {_keys(chain)})")
        return DataflowView(registry, member.dataflow)
    found = chain_of(registry, name)
    if found is not None:
        raise ConfigInvalid(
            f"'{name}' is a chain, and this is done to one dataflow: name one of {_keys(found, f'{name}/')}"
        )
    return DataflowView(registry, name)


def chain_of(registry: Registry, name: str) -> ChainDescriptor | None:
    """The chain that is meant; None if a dataflow is. Raises ConfigInvalid for what is no name."""
    _refuse_empty(name)
    if "/" in name or registry.find(DataflowPaths(name).root) is not None:
        return None
    return find_chain(registry, name)


@dataclass(frozen=True, slots=True)
class Meant:
    """What one of several names means: a dataflow, or a chain with those of its dataflows that are there."""

    name: str
    chain: ChainDescriptor | None
    views: tuple[DataflowView, ...]


def all_meant(registry: Registry, names: Sequence[str]) -> list[Meant]:
    """What several names mean, looked at before anything is done to one of them. Raises ChainNotFound,
    DataflowNotFound, and ConfigInvalid for what is no name, and where two mean the same dataflow."""
    found: list[Meant] = []
    by_dataflow: dict[str, str] = {}
    for name in names:
        chain = chain_of(registry, name)
        if chain is None:
            views = [view_of(registry, name)]
            with suppress(DescriptorUnreadable):  # who needs it says so; it can be killed all the same
                views[0].status()
        else:
            members = [DataflowView(registry, member.dataflow) for member in chain.members]
            views = [view for view in members if registry.find(view.paths.root) is not None]
        for view in views:
            if (other := by_dataflow.setdefault(view.dataflow, name)) != name or name in (one.name for one in found):
                raise ConfigInvalid(f"'{other}' and '{name}' mean the same dataflow: name it once")
        found.append(Meant(name, chain, tuple(views)))
    return found


def refuse_name_of_chain(registry: Registry, dataflow: str) -> None:
    """Raise DataflowExists for a dataflow's name that a chain has, because commands could not tell the two apart, or
    that it has kept for one of its dataflows."""
    if find_chain(registry, dataflow) is not None:
        raise DataflowExists(f"'{dataflow}' is the name of a chain: give the dataflow another one")
    refuse_reserved(registry, dataflow)


def _refuse_empty(name: str) -> None:
    if not all(part.strip() for part in name.split("/")):  # as of a script whose variable is not set
        raise ConfigInvalid(f"'{name}' names no dataflow and no chain: write NAME, or CHAIN/NAME")


def _keys(chain: ChainDescriptor, prefix: str = "") -> str:
    return ", ".join(f"{prefix}{member.key}" for member in chain.members)
