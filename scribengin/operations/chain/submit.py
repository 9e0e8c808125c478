"""Submitting a chain: what is checked first, and what is done, step by step, so that it can be done again.

    1  the chain's node, `submitting`      from here on the same file continues what was begun, and another is refused
    2  its logs and topics
    3  of each dataflow, writers first: its sinks' streams; then what is to read them holds them back; then it starts
    4  the node says `submitted`

Every step finds out by itself whether it was done before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.text.refusals import did_you_mean
from scribengin.connectors import Environment, open_source
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.containers import place_of
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.config_node import half_deleted
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.dataflow.retention_holds import register_holds
from scribengin.errors import ChainExists, ConfigInvalid, DataflowExists, ScribenginError, SourceMissing
from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.graph import declares, graph_of, written_or_made
from scribengin.operations.chain.registry import (
    ChainDescriptor,
    already_there,
    complete_chain,
    create_chain,
    descriptor_of,
    find_chain,
    refuse_reserved,
)
from scribengin.operations.submit.submit import launch_master
from scribengin.operations.submit.submit import submit as submit_dataflow
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeMissing

CHAIN_BYTES_MAX = 768 * 1024
"""Its node holds the configs of all of its dataflows, and ZooKeeper takes 1 MiB."""
Starting = Callable[[str], None]
"""Told the name of each dataflow that is started now."""


def problems_of(registry: Registry, chain: ChainConfig) -> list[ScribenginError]:
    """What is wrong with the chain as a whole: its graph, its name, and sources that nobody feeds and that are not
    there. What is wrong with a dataflow alone is for `scribengin.operations.submit.explain`. Changes nothing."""
    graph = graph_of(chain)
    errors: list[ScribenginError] = [ConfigInvalid(f"chain '{chain.name}': {line}") for line in graph.problems]
    size = len(descriptor_of(chain, 0).to_bytes())
    if size > CHAIN_BYTES_MAX:
        errors.append(
            ConfigInvalid(
                f"chain '{chain.name}' is {size:,} bytes, and the registry takes {CHAIN_BYTES_MAX:,} of one: put "
                "tables and long lists into files of its dataflows' packages"
            )
        )
    for key in graph.order:
        flow = chain.dataflows[key]
        environment = Environment(registry=registry, dataflow=flow.name, nodes=STREAM_NODES, looking=True)
        for name, source in flow.sources.items():
            if graph.is_fed(key, name) or declares(chain, source):
                continue
            try:
                opened = open_source(name, source, environment)
                try:
                    opened.streams()
                finally:
                    opened.close()
            except SourceMissing as error:
                meant = did_you_mean(source.endpoint().name, written_or_made(chain))
                errors.append(
                    SourceMissing(f"dataflow '{key}': {error}, or let a dataflow of the chain write it{meant}")
                )
    try:
        begun_before(registry, chain)
    except (ChainExists, DataflowExists) as error:
        errors.append(error)
    return errors


def begun_before(registry: Registry, chain: ChainConfig) -> ChainDescriptor | None:
    """The node of this very chain whose submission was cut short, or that has lost dataflows since; None if there is
    none of its name. `chain` is as its file says: what a cluster needs beside that is found out at each submission.

    Raises ChainExists, DataflowExists (a name is taken).
    """
    names = set(dataflow_names(registry))
    there = find_chain(registry, chain.name)
    if there is not None:
        if there.state == "submitted" and names.issuperset(member.dataflow for member in there.members):
            raise already_there(chain.name)
        if there.config != descriptor_of(chain, 0).config:
            raise ChainExists(
                f"chain '{chain.name}' was submitted half way with another content: submit that one again, or "
                f"`scribengin delete {chain.name}` first"
            )
        return there
    wanted = (chain.name, *(flow.name for flow in chain.dataflows.values()))
    taken = [name for name in wanted if name in names]
    if taken:
        raise DataflowExists(
            f"dataflow '{taken[0]}' exists already, and chain '{chain.name}' would need that name: give the chain "
            "another name"
        )
    for name in wanted:
        refuse_reserved(registry, name)
    return None


def submit_chain(
    registry: Registry,
    chain: ChainConfig,
    home: Path,
    *,
    author: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
    starting: Starting = lambda _: None,
    standbys: int = 1,
    ready: Mapping[str, DataflowConfig] | None = None,
) -> ChainDescriptor:
    """Deploy a chain that was checked, or what is missing of it. `ready` are its dataflows with what their cluster
    needs.

    Raises what `begun_before` and submitting one of its dataflows raise; what was done until then stays, and the same
    call again does the rest. Raises DataflowBusy where the deletion of one of them was cut short.
    """
    there = begun_before(registry, chain)
    if there is None:
        there = descriptor_of(chain, clock.now_ms())
        create_chain(registry, there)
    for member in there.members:
        _is_there(registry, member.dataflow)
    create_between(registry, chain)
    for member in there.members:
        config = (ready or chain.dataflows)[member.key]
        if _is_started(registry, config, home):
            continue
        starting(member.dataflow)
        _start(registry, chain, config, home, author=author, clock=clock, standbys=standbys)
    complete_chain(registry, there)
    return there


def create_between(registry: Registry, chain: ChainConfig) -> None:
    """Create the logs and topics that the chain describes and that are not there. Idempotent."""
    for _, name, between in chain.between():
        between.create_missing(registry, name)


def _is_started(registry: Registry, config: DataflowConfig, home: Path) -> bool:
    """Whether the dataflow is there, and had a master at some time."""
    if not _is_there(registry, config.name):
        return False
    view = DataflowView(registry, config.name)
    if view.status().state != "starting" or _has_masters(view):
        return True
    with place_of(view.config_in_force().value, home) as place:
        return bool(place.containers(registry.hosts, config.name))


def _is_there(registry: Registry, dataflow: str) -> bool:
    """Whether the dataflow is there. Raises DataflowBusy if it is half deleted: it would never run."""
    if dataflow not in dataflow_names(registry):
        return False
    if DataflowView(registry, dataflow).status().state == "deleting":
        raise half_deleted(dataflow)
    return True


def _has_masters(view: DataflowView) -> bool:
    try:
        return bool(view.registry.children(view.paths.master))
    except NodeMissing:
        return False


def _start(
    registry: Registry,
    chain: ChainConfig,
    config: DataflowConfig,
    home: Path,
    *,
    author: str | None,
    clock: Clock,
    standbys: int,
) -> None:
    environment = Environment(registry=registry, clock=clock, dataflow=config.name, nodes=STREAM_NODES, looking=True)
    with OpenedDataflow(config, environment) as resources:
        tasks = resources.tasks()
        for name, sink in resources.sinks.items():
            sink.create([stream for task in tasks for stream in task.sinks if stream.sink == name])
    for reader in chain.dataflows.values():
        register_holds(registry, reader)
    if config.name in dataflow_names(registry):  # cut short before its first master was launched
        launch_master(registry, config.name, home, standbys=standbys, clock=clock)
    else:
        submit_dataflow(registry, config, home, standbys=standbys, clock=clock, author=author)
