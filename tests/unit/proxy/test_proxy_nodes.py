"""Proxies die, and lose replies, before and after each thing that they write to the registry: the next one goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scribengin.proxy.nodes import ProxyDescriptor, ProxyNodes
from scribengin.testing.failpoints import at_failpoint, record_stops
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown
from tests.dying import Died
from tests.house.failpoints import failpoint_names

LOG = "flights/0"
FIRST, SECOND = (ProxyDescriptor(name=name, address=f"grpc://{name}:1") for name in ("first", "second"))
NAMES = failpoint_names("proxy.")
STOPS = [f"{name}:{side}" for name in NAMES for side in ("before", "after")]


def raising(error: BaseException) -> Callable[[str], None]:
    def act(_stop: str) -> None:
        raise error

    return act


def live(registry: Registry, proxy: ProxyDescriptor) -> None:
    """All that a proxy does with its nodes, from its start to its end."""
    nodes = ProxyNodes(registry, "/logs")
    nodes.announce(proxy)
    assert nodes.claim(LOG, proxy) == proxy
    nodes.announce(proxy.model_copy(update={"takes_more": False}))
    nodes.release(LOG, proxy)
    nodes.withdraw(proxy)


def test_a_proxy_passes_every_stop_of_its_nodes() -> None:
    with record_stops() as passed, MemoryEnsemble().connect() as registry:
        live(registry, FIRST)
    assert set(passed) == set(STOPS)


@pytest.mark.parametrize("stop", STOPS)
def test_what_a_dead_proxy_left_goes_with_its_session(stop: str) -> None:
    ensemble = MemoryEnsemble()
    dying = ensemble.connect()
    with pytest.raises(Died), at_failpoint(stop, raising(Died())):
        live(dying, FIRST)
    ensemble.expire(dying)
    with ensemble.connect() as registry:
        nodes = ProxyNodes(registry, "/logs")
        assert nodes.servers() == []
        assert nodes.owner(LOG) is None
        live(registry, SECOND)


@pytest.mark.parametrize("stop", STOPS)
def test_a_reply_that_is_lost_is_found_out(stop: str) -> None:
    with MemoryEnsemble().connect() as registry, at_failpoint(stop, raising(OutcomeUnknown("lost"))):
        live(registry, FIRST)
        nodes = ProxyNodes(registry, "/logs")
        assert (nodes.servers(), nodes.owner(LOG)) == ([], None)
