"""A namespace whose logs are written and read through proxies: for clients on any machine, many of them to a log."""

from __future__ import annotations

import threading
from typing import Any

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.errors import ConfigInvalid, LogExists, LogNotFound
from scribengin.log import DLSN, LogConfig, LogDescriptor, LogNamespace, NamespaceDescriptor
from scribengin.log.metadata.binding import bound, session_for
from scribengin.log.store.opening import open_store
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.segments import ProxiedSegmentStore, SegmentQuestions
from scribengin.proxy.client.transport import FlightTransport, ProxyTransport
from scribengin.proxy.client.writer import ProxiedWriter
from scribengin.proxy.config import ProxyClientConfig
from scribengin.proxy.nodes import ProxyNodes
from scribengin.proxy.wire.requests import AskRequest
from scribengin_registry.contract import Registry


class ProxiedNamespace(LogNamespace):
    """As LogNamespace, opened in the same way, by the same URI: what changes a log is done by the proxy that owns it.
    Segments are read where `ProxyClientConfig.reads` says.

    Proxies are found in the registry. Thread-safe.
    """

    def __init__(
        self,
        registry: Registry,
        path: str,
        descriptor: NamespaceDescriptor,
        config: LogConfig,
        clock: Clock,
        *,
        own: bool,
        create_if_missing: bool,
        delivery: ProxyDelivery,
        questions: SegmentQuestions | None,
    ) -> None:
        """With `questions`, segments are asked for at proxies."""
        store = None
        if questions is not None:
            store = ProxiedSegmentStore(questions, descriptor.store, delivery.config)
        super().__init__(
            registry, path, descriptor, config, clock, own=own, create_if_missing=create_if_missing, store=store
        )
        self._delivery = delivery
        self._questions = questions

    @classmethod
    def open(  # type: ignore[override]  # a client has neither limits nor a thread for all writers: the proxy has
        cls,
        uri: str,
        *,
        registry: Registry | None = None,
        config: LogConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        create_if_missing: bool = False,
        client: ProxyClientConfig | None = None,
        transport: ProxyTransport | None = None,
    ) -> ProxiedNamespace:
        """As LogNamespace.open, by the same URI. `transport` carries requests (None: Arrow Flight).

        Raises ConfigInvalid, RegistryUnreachable, NamespaceNotBound, and StoreNotMounted and StoreElsewhere where it is
        to read the store itself.
        """
        session, path, own = session_for(uri, registry)
        try:
            client = client or ProxyClientConfig()
            descriptor = bound(session, path, uri, anywhere=client.reads != "store")
            transport = transport or FlightTransport()
            nodes = ProxyNodes(session, path)
            delivery = ProxyDelivery(nodes, transport, client, clock)
            questions = None
            if _reads_through_proxies(descriptor, client):
                # Of its own: a proxy that cannot read a segment just now is well for writers.
                questions = SegmentQuestions(ProxyDelivery(nodes, transport, client, clock))
            else:
                open_store(descriptor.store, descriptor.location, descriptor.token).check_mounted()
            return cls(
                session,
                path,
                descriptor,
                config or LogConfig(),
                clock,
                own=own,
                create_if_missing=create_if_missing,
                delivery=delivery,
                questions=questions,
            )
        except BaseException:
            if own:
                session.close()
            raise

    def open_writer(  # type: ignore[override]  # one of many writers: it stages nothing, and takes no numbers
        self,
        name: str,
        *,
        timeout_s: float = 10.0,
        create: bool | None = None,
        cancel: threading.Event | None = None,
    ) -> ProxiedWriter:
        """A writer of a log, beside those of other clients. Waits until a proxy has the log.

        Raises LogNotFound, EndOfStream, OwnershipAcquireFailed (somebody who is no proxy writes it), ProxyUnreachable,
        and what else is in the way of the proxy after `timeout_s`.
        """
        metadata = self._metadata(name)
        if self._create_if_missing if create is None else create:
            self._create_missing(name)
        pause = threading.Event() if cancel is None else cancel
        self._delivery.ask(AskRequest("open", metadata.log), pause=pause.wait, patience_s=timeout_s)
        return ProxiedWriter(self._delivery, metadata.log, metadata.descriptor().config)

    def create(self, name: str, config: LogConfig | None = None) -> LogDescriptor:
        """As LogNamespace.create. Raises ProxyUnreachable, too."""
        metadata = self._metadata(name)
        fields = {"config": (config or self._config).model_dump(mode="json")}
        self._delivery.ask(AskRequest("create", metadata.log, fields), done_if=LogExists)
        return metadata.descriptor()

    def delete(self, name: str, *, force: bool = False) -> None:
        """As LogNamespace.delete: the proxy that writes the log ends that before. Raises ProxyUnreachable, too."""
        log = self._metadata(name).log
        self._delivery.ask(AskRequest("delete", log, {"force": force}), done_if=LogNotFound)

    def truncate(self, name: str, before: DLSN, *, force: bool = False) -> bool:
        """As LogNamespace.truncate. Raises ProxyUnreachable, too."""
        request = AskRequest("truncate", self._metadata(name).log, {"before": list(before), "force": force})
        return bool(self._delivery.ask(request).said["changed"])

    def release(self, name: str) -> None:
        """Have the proxy that owns the log complete its segment and give it up: the next request takes it anew,
        wherever that comes. Raises ProxyUnreachable."""
        self._delivery.ask(AskRequest("release", self._metadata(name).log))

    def recover(self, name: str, **_options: Any) -> Any:
        """Raises ConfigInvalid."""
        raise ConfigInvalid(f"log '{name}' is recovered on the machine of its store: use LogNamespace there")

    def close(self) -> None:
        """As LogNamespace.close."""
        if self._questions is not None:
            self._questions.close()
        self._delivery.close()
        super().close()


def _reads_through_proxies(descriptor: NamespaceDescriptor, client: ProxyClientConfig) -> bool:
    here = descriptor.machine is not None and descriptor.machine.is_this()
    return client.reads == "proxy" or (client.reads == "auto" and not here)
