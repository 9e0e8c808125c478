"""Operating a chain whose dataflows are no longer as they were submitted, or not all there."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from scribengin.dataflow.registry.descriptors import DataflowState, DataflowStatus
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.retention_holds import register_holds
from scribengin.errors import ChainExists, ChainNotFound, DataflowBusy, LauncherError
from scribengin.log import LogNamespace
from scribengin.operations.chain import lifecycle
from scribengin.operations.chain.config import ChainConfig, full_name
from scribengin.operations.chain.lifecycle import release_chain_holds, start_chain, stop_chain
from scribengin.operations.chain.registry import (
    ChainDescriptor,
    complete_chain,
    create_chain,
    descriptor_of,
    find_chain,
    forget_chain,
    path_of,
)
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin_tools.cli import main as cli
from scribengin_tools.cli.dataflow import end, submit


def chain_of(**ways: tuple[str, str]) -> ChainConfig:
    """Each dataflow reads the logs `<from>/*` and writes `<to>`."""
    flows = {
        key: {
            "name": full_name("orders", key),
            "sources": {"src": {"kind": "log", "logs": f"{source}/*"}},
            "sinks": {"out": {"kind": "log", "log": sink}},
            "sql": "SELECT payload FROM src",
        }
        for key, (source, sink) in ways.items()
    }
    return ChainConfig.parse({"name": "orders", "dataflows": flows}, source="the test")


CHAIN = chain_of(last=("mid", "out"), first=("in", "mid"))


@pytest.fixture
def chain(memory_registry: MemoryRegistry) -> ChainDescriptor:
    """It stands in the registry, and none of its dataflows does."""
    chain = descriptor_of(CHAIN, 1)
    create_chain(memory_registry, chain)
    return chain


def put(registry: MemoryRegistry, key: str, state: DataflowState, chain: ChainConfig = CHAIN) -> DataflowView:
    """A dataflow of the chain; one that has not ended has a master."""
    config = chain.dataflows[key]
    view = DataflowView(registry, config.name)
    view.submit(config, [], now_ms=1)
    view.set_status(DataflowStatus(dataflow=config.name, state=state, config_version=0))
    if state not in ("stopped", "killed"):
        registry.create(f"{view.paths.master}/somebody", ephemeral=True)
    return view


def stopped(
    registry: MemoryRegistry, chain: ChainDescriptor, now: ChainConfig, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Stop the chain, whose dataflows are as in `now`: what is told, and what is waited for to be read."""
    for key in ("first", "last"):
        put(registry, key, "stopped", now)
    asked: list[tuple[str, list[str]]] = []
    told: list[str] = []

    def left(view: DataflowView, sources: Iterable[str]) -> tuple[str, ...]:
        asked.append((view.dataflow, list(sources)))
        return ()

    monkeypatch.setattr(lifecycle, "left_to_read", left)
    stop_chain(registry, chain, told.append)
    return told, asked


def test_a_chain_stops_in_the_order_that_records_flow_now(
    memory_registry: MemoryRegistry, chain: ChainDescriptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, asked = stopped(memory_registry, chain, chain_of(first=("mid", "out"), last=("in", "mid")), monkeypatch)
    assert told == ["stopping orders/last", "stopping orders/first"]
    assert asked == [("orders-first", ["src"])]


def test_a_chain_that_flows_in_a_circle_now_is_not_waited_for_without_end(
    memory_registry: MemoryRegistry, chain: ChainDescriptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, asked = stopped(memory_registry, chain, chain_of(first=("out", "mid"), last=("mid", "out")), monkeypatch)
    assert told == ["stopping orders/first", "stopping orders/last"]
    assert [dataflow for dataflow, _sources in asked] == ["orders-last"]


@pytest.fixture
def started(memory_registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is started; nothing is launched. Commands have this registry."""
    names: list[str] = []
    monkeypatch.setattr(lifecycle, "start_again", lambda view, _home: names.append(view.dataflow))
    for module in (submit, end):
        monkeypatch.setattr(module, "connected", lambda _hosts: nullcontext(memory_registry))
    return names


def test_who_starts_a_chain_hears_what_was_started_and_what_ran_already(
    memory_registry: MemoryRegistry, chain: ChainDescriptor, started: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    put(memory_registry, "first", "running")
    put(memory_registry, "last", "stopped")
    assert cli.run(["start", "orders"]) == 0
    assert started == ["orders-last"]
    assert capsys.readouterr().out == "dataflow 'orders/first' was running already\nstarted chain 'orders' (last)\n"


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("running", "running", "all dataflows of chain 'orders' run: there is nothing to start"),
        ("running", "starting", "all dataflows of chain 'orders' run: there is nothing to start"),
        ("paused", "running", "chain 'orders' is partly paused (first): `scribengin resume orders` lets it go on"),
        ("paused", "paused", "chain 'orders' is paused (first, last): `scribengin resume orders` lets it go on"),
        (
            "running",
            "stopping",
            "chain 'orders' is partly stopping (last): wait until it has, then `scribengin start orders`",
        ),
    ],
)
def test_a_chain_that_needs_no_start_is_told_in_a_line(
    memory_registry: MemoryRegistry,
    chain: ChainDescriptor,
    first: DataflowState,
    last: DataflowState,
    said: str,
    tmp_path: Path,
) -> None:
    put(memory_registry, "first", first)
    put(memory_registry, "last", last)
    with pytest.raises(DataflowBusy) as refused:
        start_chain(memory_registry, chain, tmp_path)
    assert str(refused.value) == said


def test_a_start_that_fails_half_way_says_what_it_has_started(
    memory_registry: MemoryRegistry, chain: ChainDescriptor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for key in ("first", "last"):
        put(memory_registry, key, "stopped")

    def start(view: DataflowView, _home: Path) -> None:
        if view.dataflow == "orders-first":
            raise LauncherError("there is no room")

    monkeypatch.setattr(lifecycle, "start_again", start)
    with pytest.raises(LauncherError, match="there is no room; started before it: last"):
        start_chain(memory_registry, chain, tmp_path)


def held(registry: MemoryRegistry, folder: Path) -> LogNamespace:
    """Something lies in each log, and all dataflows of the chain have it kept."""
    LogNamespace.bind("/logs", folder, registry=registry)
    logs = LogNamespace.open("/logs", registry=registry)
    for log in ("in/0", "mid/0"):
        logs.create(log)
        with logs.open_writer(log) as writer:
            writer.write(b"unread").result(60)
    for config in CHAIN.dataflows.values():
        register_holds(registry, config)
    return logs


def test_what_is_kept_for_a_chain_is_given_up_though_one_of_it_is_missing(
    memory_registry: MemoryRegistry,
    chain: ChainDescriptor,
    started: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(memory_registry, "first", "stopped")
    with held(memory_registry, tmp_path / "logs") as logs:
        assert all(logs.registered_readers(log) for log in logs.names())
        assert cli.run(["release-holds", "orders"]) == 0
        assert not any(logs.registered_readers(log) for log in logs.names())
    said = capsys.readouterr()
    assert said.out == "logs keep nothing for 'orders' any more (before: 2 records of 2 logs)\n"
    assert "orders/last is not there, its submission was cut short" in said.err


def test_nothing_kept_for_a_chain_is_given_up_while_one_of_it_runs(
    memory_registry: MemoryRegistry, chain: ChainDescriptor, tmp_path: Path
) -> None:
    put(memory_registry, "first", "running")
    with held(memory_registry, tmp_path / "logs") as logs:
        with pytest.raises(DataflowBusy, match="is to read what is kept for it"):
            release_chain_holds(memory_registry, chain)
        assert all(logs.registered_readers(log) for log in logs.names())


def test_what_others_write_to_the_node_of_a_chain_meanwhile_stays(
    memory_registry: MemoryRegistry, chain: ChainDescriptor
) -> None:
    theirs: dict[str, Any] = {**chain.config, "logs": {"more": {}}}
    memory_registry.set(path_of("orders"), chain.model_copy(update={"config": theirs}).to_bytes())
    complete_chain(memory_registry, chain)
    there = find_chain(memory_registry, "orders")
    assert there is not None
    assert (there.state, there.config) == ("submitted", theirs)


def test_a_chain_that_another_one_has_replaced_is_not_called_complete(
    memory_registry: MemoryRegistry, chain: ChainDescriptor
) -> None:
    forget_chain(memory_registry, "orders")
    with pytest.raises(ChainNotFound, match="chain 'orders' was deleted while it was submitted"):
        complete_chain(memory_registry, chain)
    other = chain.model_copy(update={"submitted_ms": 2})
    create_chain(memory_registry, other)
    with pytest.raises(ChainExists, match="chain 'orders' was deleted and submitted anew"):
        complete_chain(memory_registry, chain)
    assert find_chain(memory_registry, "orders") == other
