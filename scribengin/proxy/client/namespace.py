"""A namespace whose logs are written and read through proxies: for clients on any machine, many of them to a log."""

from __future__ import annotations

import threading
from collections.abc import Container
from typing import Any, NoReturn

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.model import JsonObject
from scribengin.base.names import PROXIED_SCHEME, without_proxies
from scribengin.errors import ConfigInvalid, LogExists, LogNotFound, ScribenginError
from scribengin.log import DLSN, LogConfig, LogDescriptor, LogNamespace, NamespaceDescriptor
from scribengin.log.metadata.binding import bound, session_for
from scribengin.log.store.opening import open_store
from scribengin.proxy.client.credentials import ProxyCredentials, says_token
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.segments import ProxiedSegmentStore, SegmentQuestions
from scribengin.proxy.client.sending import LogSenders
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
        names_by_proxies: bool,
    ) -> None:
        """With `questions`, segments are asked for at proxies; with `names_by_proxies` the names of logs are, too."""
        store = None
        if questions is not None:
            store = ProxiedSegmentStore(questions, descriptor.store, delivery.config)
        super().__init__(
            registry, path, descriptor, config, clock, own=own, create_if_missing=create_if_missing, store=store
        )
        self._delivery = delivery
        self._senders = LogSenders(delivery)
        self._questions = questions
        self._names_by_proxies = names_by_proxies

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
        """As LogNamespace.open, by the same URI. `transport` carries requests (None: Arrow Flight). By a URI of proxies
        (`distributedlog-proxy://HOSTS/PATH`) readers ask them too, unless `client` says otherwise.

        Raises ConfigInvalid, ReferenceMissing, RegistryUnreachable, NamespaceNotBound, and StoreNotMounted and
        StoreElsewhere where it is to read the store itself.
        """
        client = client or ProxyClientConfig(reads="proxy" if uri.startswith(PROXIED_SCHEME) else "auto")
        uri = without_proxies(uri)
        session, path, own = session_for(uri, registry)
        try:
            descriptor = bound(session, path, uri, anywhere=client.reads != "store")
            transport = transport or FlightTransport(ProxyCredentials.of(client))
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
                names_by_proxies=says_token(client),
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
        steal: bool = False,
        create: bool | None = None,
        cancel: threading.Event | None = None,
    ) -> ProxiedWriter:
        """A writer of a log, beside those of other clients. Waits until a proxy has the log.

        Raises ConfigInvalid (nobody can `steal` it through a proxy), LogNotFound, EndOfStream, ProxyUnreachable,
        OwnershipAcquireFailed (somebody who is no proxy writes it), AccessDenied, and what else is in the way of the
        proxy after `timeout_s`.
        """
        if steal:
            raise ConfigInvalid(
                f"log '{name}': to steal takes a log from everybody, proxies too; do it with LogNamespace, or let the "
                "proxies wait for its writer"
            )
        metadata = self._metadata(name)
        if self._create_if_missing if create is None else create:
            self._create_missing(name)
        pause = threading.Event() if cancel is None else cancel
        self._delivery.ask(AskRequest("open", metadata.log), pause=pause.wait, patience_s=timeout_s)
        self.registry.sync(metadata.path)
        descriptor, (head, _version) = metadata.descriptor(), metadata.head()
        return ProxiedWriter(self._senders, self._delivery, descriptor, max(1, head.max_segment))

    def create(self, name: str, config: LogConfig | None = None) -> LogDescriptor:
        """As LogNamespace.create. Raises ProxyUnreachable, too."""
        metadata = self._metadata(name)
        config = config or self._config

        def is_ours(error: ScribenginError) -> bool:
            """Whether the log may be what a call without an answer has made."""
            if not isinstance(error, LogExists):
                return False
            self.registry.sync(metadata.path)
            return metadata.descriptor().config == config

        fields = {"config": config.model_dump(mode="json")}
        self._delivery.ask(AskRequest("create", metadata.log, fields), done_if=is_ours)
        self.registry.sync(metadata.path)
        return metadata.descriptor()

    def delete(self, name: str, *, force: bool = False, directory: str | None = None) -> None:
        """As LogNamespace.delete: the proxy that writes the log ends that before. Raises ProxyUnreachable, too."""
        request = self._about_this(name, "delete", directory, {"force": force})
        self._delivery.ask(request, done_if=lambda error: isinstance(error, LogNotFound))

    def names(self, prefix: str = "", known: Container[str] = ()) -> list[str]:
        """As LogNamespace.names. A client with a token asks proxies, and is told of the logs that it may read. Raises
        CallerUnknown, StoreUnreachable, too."""
        if not self._names_by_proxies:
            return super().names(prefix, known)
        self._check_open()
        names: list[str] = self._delivery.ask_any("names", AskRequest("names", fields={"prefix": prefix})).said["names"]
        return names

    def truncate(self, name: str, before: DLSN, *, force: bool = False, directory: str | None = None) -> bool:
        """As LogNamespace.truncate. Raises ProxyUnreachable, too."""
        request = self._about_this(name, "truncate", directory, {"before": list(before), "force": force})
        return bool(self._delivery.ask(request).said["changed"])

    def _about_this(self, name: str, op: str, directory: str | None, fields: JsonObject) -> AskRequest:
        """A question that means the log that there is now: asked again, it does nothing to one made in its place."""
        metadata = self._metadata(name)
        if directory is None:
            self.registry.sync(metadata.path)
            found = metadata.find_descriptor()
            directory = "" if found is None else found[0].directory
        return AskRequest(op, metadata.log, {**fields, "directory": directory})

    def release(self, name: str) -> None:
        """Have the proxy that owns the log complete its segment and give it up: the next request takes it anew,
        wherever that comes. Raises ProxyUnreachable."""
        self._delivery.ask(AskRequest("release", self._metadata(name).log))

    def recover(self, name: str, **_options: Any) -> NoReturn:
        """Raises ConfigInvalid."""
        _refuse(name, "recovered")

    def purge(self, name: str) -> NoReturn:
        """Raises ConfigInvalid: its writers purge it."""
        _refuse(name, "purged")

    def compress(self, name: str, *_codec: Any, **_options: Any) -> NoReturn:
        """Raises ConfigInvalid: its writers compress it."""
        _refuse(name, "compressed")

    def offload(self, name: str, **_options: Any) -> NoReturn:
        """Raises ConfigInvalid: its writers offload it."""
        _refuse(name, "offloaded")

    def close(self) -> None:
        """As LogNamespace.close."""
        if self._questions is not None:
            self._questions.close()
        self._delivery.close()
        super().close()


def _reads_through_proxies(descriptor: NamespaceDescriptor, client: ProxyClientConfig) -> bool:
    here = descriptor.machine is not None and descriptor.machine.is_this()
    return client.reads == "proxy" or (client.reads == "auto" and not here)


def _refuse(log: str, what: str) -> NoReturn:
    raise ConfigInvalid(f"log '{log}' is {what} on the machine of its store: use LogNamespace, or its path, there")
