"""The store of another machine, through the proxies there, keeps what every segment store promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from scribengin.log import LogNamespace
from scribengin.proxy import ProxyClientConfig
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.elsewhere import StoreElsewhereByProxies
from scribengin.proxy.client.segments import SegmentQuestions
from scribengin.proxy.client.transport import FlightTransport, ProxyTransport
from scribengin.proxy.nodes import ProxyNodes
from scribengin.proxy.server import ProxyServer
from scribengin.testing.conformance.segments import SEGMENT_STORE_CHECKS, Check, a_segments_place_opens_it
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE
from tests.contract.direct_transport import DirectTransport

LOG = "flights/0"
PATH = "/logs"
_EPOCHS = 3


@dataclass
class Elsewhere:
    """A proxy over a disk in memory, and a log there."""

    stack: ExitStack
    disk: MemoryDisk
    namespace: LogNamespace
    server: ProxyServer
    directory: str

    def store(self, transport: ProxyTransport | None = None) -> StoreElsewhereByProxies:
        """As another machine has it."""
        client = ProxyClientConfig(patience_s=10)
        nodes = ProxyNodes(self.namespace.registry, PATH)
        delivery = ProxyDelivery(nodes, transport or DirectTransport(self.server), client)
        self.stack.callback(delivery.close)
        questions = SegmentQuestions(delivery)
        self.stack.callback(questions.close)
        return StoreElsewhereByProxies(questions, MEMORY_STORE, client)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with ExitStack() as stack:
        session = stack.enter_context(MemoryEnsemble().connect())
        disk = MemoryDisk("disk elsewhere")
        namespace = stack.enter_context(bound_namespace(session, disk.name, LOG, store=MEMORY_STORE))
        for _ in range(_EPOCHS):  # the suite makes segments under these, which the log must have had
            namespace.open_writer(LOG).close()
        server = stack.enter_context(ProxyServer(PATH, session))
        yield Elsewhere(stack, disk, namespace, server, namespace._metadata(LOG).descriptor().directory)


@pytest.mark.parametrize("check", SEGMENT_STORE_CHECKS, ids=lambda check: check.__name__)
def test_the_store_of_another_machine_keeps_its_promises(check: Check, elsewhere: Elsewhere) -> None:
    by_network = check is a_segments_place_opens_it  # whoever has a place opens it over the network
    store = elsewhere.store(FlightTransport() if by_network else None)
    store.create_log(elsewhere.directory)
    check(store, elsewhere.directory)
