"""A proxy is found by its clients, in whatever session its node was made."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from scribengin.proxy.nodes import ProxyDescriptor, ProxyNodes
from scribengin.proxy.service import ProxyService
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.waiting import wait_until

PROXY = ProxyDescriptor(name="a", address="a proxy")


def test_a_proxy_is_found_whose_session_ends_while_it_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        ensemble = MemoryEnsemble()
        registry, other = (stack.enter_context(ensemble.connect()) for _ in range(2))
        disk = MemoryDisk(f"disk {id(stack)}")
        namespace = stack.enter_context(bound_namespace(registry, disk.name, "log", store=MEMORY_STORE))
        service = stack.enter_context(ProxyService(namespace, registry, PROXY))
        announce = ProxyNodes.announce

        def announced_too_late(nodes: ProxyNodes, proxy: ProxyDescriptor) -> None:
            announce(nodes, proxy)
            monkeypatch.setattr(ProxyNodes, "announce", announce)
            before = registry.session_id
            ensemble.expire(registry)
            wait_until(lambda: registry.session_id not in (0, before), what="another session has begun")

        monkeypatch.setattr(ProxyNodes, "announce", announced_too_late)
        service.announce()
        nodes = ProxyNodes(other, namespace.path)
        wait_until(lambda: nodes.servers() == [PROXY], what="clients find it")
