"""Chains in the registry: one node each, `/scribengin/chains/<chain>`, that names its dataflows in order."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Literal

from scribengin.base.model import Descriptor, JsonObject, Part, from_node_name, node_name
from scribengin.dataflow.registry import paths
from scribengin.errors import ChainExists, ChainNotFound, DataflowExists, DescriptorUnreadable
from scribengin.operations.chain.config import ChainConfig, full_name
from scribengin.operations.chain.graph import graph_of
from scribengin_registry.compare_and_set import win_race
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeExists, NodeMissing, OutcomeUnknown, VersionConflict

_BAD = ("missing", "unreadable", "failed", "killed", "stalled", "leaderless", "deleting", "stopping", "starting")
CHAINS = f"{paths.ROOT}/chains"


class ChainMember(Part):
    """A dataflow of a chain: its name there, its name in the registry, and which others feed it (their names there)."""

    key: str
    dataflow: str
    fed_by: tuple[str, ...] = ()


class ChainDescriptor(Descriptor):
    """A chain that was submitted. `members` stand in the order in which records flow."""

    name: str
    members: tuple[ChainMember, ...]
    config: JsonObject
    """The ChainConfig that it was submitted as. What its dataflows are now stands with them."""
    submitted_ms: int
    state: Literal["submitting", "submitted"] = "submitting"
    """`submitting`: not all of its dataflows have been started yet. The same `submit` again starts the others."""

    def member(self, key: str) -> ChainMember | None:
        """The dataflow of that name."""
        return next((member for member in self.members if member.key == key), None)

    def parsed(self) -> ChainConfig:
        """The configuration that it was submitted as."""
        return ChainConfig.parse(self.config, source=path_of(self.name))


def descriptor_of(chain: ChainConfig, now_ms: int) -> ChainDescriptor:
    """What stands in the node of a chain that is submitted."""
    graph = graph_of(chain)
    members = tuple(
        ChainMember(
            key=key,
            dataflow=chain.dataflows[key].name,
            fed_by=tuple(dict.fromkeys(edge.writer for edge in graph.feeding(key))),
        )
        for key in graph.order
    )
    config = chain.model_dump(mode="json", exclude_none=True)
    return ChainDescriptor(name=chain.name, members=members, config=config, submitted_ms=now_ms)


def path_of(chain: str) -> str:
    """The node of a chain."""
    return f"{CHAINS}/{node_name(chain)}"


def chain_names(registry: Registry) -> list[str]:
    """The chains of this registry, sorted."""
    try:
        return sorted(from_node_name(name) for name in registry.children(CHAINS))
    except NodeMissing:
        return []


def find_chain(registry: Registry, name: str) -> ChainDescriptor | None:
    """The chain of that name, if there is one."""
    node = registry.find(path_of(name))
    return None if node is None else ChainDescriptor.from_bytes(node.data, path=path_of(name))


def get_chain(registry: Registry, name: str) -> ChainDescriptor:
    """The chain of that name. Raises ChainNotFound."""
    found = find_chain(registry, name)
    if found is None:
        raise ChainNotFound(f"there is no chain '{name}' (there are: {', '.join(chain_names(registry)) or 'none'})")
    return found


def memberships(
    registry: Registry, unreadable: MutableMapping[str, str] | None = None
) -> dict[str, tuple[str, ChainMember]]:
    """Of which chain each dataflow is a part, by the dataflow's name in the registry. Raises DescriptorUnreadable; for
    who only looks, what cannot be read goes to `unreadable` instead, by the chain's name."""
    found: dict[str, tuple[str, ChainMember]] = {}
    for name in chain_names(registry):
        try:
            chain = find_chain(registry, name)
        except DescriptorUnreadable as error:
            if unreadable is None:
                raise
            unreadable[name] = str(error)
            continue
        found |= {member.dataflow: (name, member) for member in (chain.members if chain else ())}
    return found


def membership(registry: Registry, dataflow: str) -> tuple[str, ChainMember] | None:
    """Of which chain a dataflow is a part, if of any. Raises DescriptorUnreadable where that is a chain that nobody can
    read: by the name alone it may be that one's."""
    unreadable: dict[str, str] = {}
    found = memberships(registry, unreadable).get(dataflow)
    if found is None:
        for name, why in unreadable.items():
            if dataflow.startswith(full_name(name, "")):
                raise DescriptorUnreadable(why)
    return found


def refuse_reserved(registry: Registry, name: str) -> None:
    """Raise DataflowExists for a name that a chain has kept for one of its dataflows, which is not there yet,
    and DescriptorUnreadable as `membership`."""
    found = membership(registry, name)
    if found is not None:
        chain, member = found
        raise DataflowExists(
            f"'{name}' is the name of {chain}/{member.key}, of a chain that was submitted: submit the chain again, or "
            "choose another name"
        )


def shared_state(states: Iterable[str]) -> str:
    """The state that all dataflows of a chain share, or else the one that most needs to be looked at."""
    found = set(states)
    if len(found) == 1:
        return found.pop()
    return next((state for state in _BAD if state in found), "partly " + "/".join(sorted(found)))


def create_chain(registry: Registry, chain: ChainDescriptor) -> None:
    """Raises ChainExists."""
    try:
        registry.create(path_of(chain.name), chain.to_bytes(), parents=True)
    except NodeExists:
        raise already_there(chain.name) from None
    except OutcomeUnknown:
        registry.sync()
        if find_chain(registry, chain.name) != chain:
            raise


def complete_chain(registry: Registry, chain: ChainDescriptor) -> None:
    """Every dataflow of it has been started. What others have written to its node meanwhile stays. Raises
    ChainNotFound, ChainExists: it was deleted since, or another one stands there."""

    def attempt() -> None:
        node = registry.find(path_of(chain.name))
        if node is None:
            raise ChainNotFound(f"chain '{chain.name}' was deleted while it was submitted: submit it again")
        there = ChainDescriptor.from_bytes(node.data, path=path_of(chain.name))
        if there.submitted_ms != chain.submitted_ms:
            raise ChainExists(
                f"chain '{chain.name}' was deleted and submitted anew while it was submitted: see `scribengin status "
                f"{chain.name}`"
            )
        registry.set(path_of(chain.name), there.model_copy(update={"state": "submitted"}).to_bytes(), node.version)

    win_race(attempt, races=(VersionConflict, NodeMissing), registry=registry)


def forget_chain(registry: Registry, name: str) -> None:
    """Its node goes. Idempotent."""
    try:
        registry.delete(path_of(name))
    except NodeMissing:
        return


def already_there(name: str) -> ChainExists:
    """The error of a name that is in use."""
    return ChainExists(
        f"chain '{name}' exists already: see `scribengin status {name}`; `scribengin config edit {name}/...` changes "
        "one of its dataflows, or give this chain another name"
    )
