"""Which dataflows the monitor shows where some are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from scribengin.operations.chain.registry import ChainDescriptor, ChainMember, create_chain
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin_tools.cli import main as cli
from scribengin_tools.cli import monitor
from tests.integration import watched


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryRegistry]:
    with MemoryEnsemble().connect() as session:
        monkeypatch.setattr(monitor, "connected", lambda *_, **__: nullcontext(session))
        yield session


def put_chain(registry: MemoryRegistry, name: str, *flows: str) -> None:
    members = tuple(ChainMember(key=flow, dataflow=flow) for flow in flows)
    create_chain(registry, ChainDescriptor(name=name, members=members, config={}, submitted_ms=0))


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ((), ["hot", "other"]),
        (("begun",), ["hot"]),
        (("nothing",), []),
        (("nothing", "other"), ["other"]),
    ],
)
def test_a_chain_of_which_nothing_is_there_yet_shows_no_others(
    registry: MemoryRegistry, capsys: pytest.CaptureFixture[str], names: tuple[str, ...], shown: list[str]
) -> None:
    for name in ("hot", "other"):
        watched.put(registry, name, [watched.task(0)])
    put_chain(registry, "begun", "hot", "later")
    put_chain(registry, "nothing", "soon")
    assert cli.run(["monitor", "--once", "--json", *names]) == 0
    assert [one["dataflow"] for one in json.loads(capsys.readouterr().out)] == shown
