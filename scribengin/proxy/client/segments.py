"""Segments as a reader has them that asks proxies for them: a store that can only be read.

Whatever a proxy says is what its store has, byte by byte. What is checked, is checked by the reader.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from scribengin.errors import ConfigInvalid, LogClosed, ScribenginError
from scribengin.log.config import LogConfig
from scribengin.log.store.contract import (
    Announced,
    IndexKind,
    SegmentAppender,
    SegmentLocation,
    SegmentName,
    SegmentStore,
    SegmentView,
    Tail,
)
from scribengin.proxy.client.credentials import ProxyCredentials
from scribengin.proxy.client.delivery import ProxyDelivery
from scribengin.proxy.client.tail_poll import TailPoll
from scribengin.proxy.client.transport import FlightTransport
from scribengin.proxy.config import ProxyClientConfig
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.answers import AskDone
from scribengin.proxy.wire.requests import AskRequest

_AHEAD_BYTES_MIN = 64 * 1024


class SegmentQuestions:
    """Asks proxies about segments. Thread-safe."""

    def __init__(self, delivery: ProxyDelivery) -> None:
        self.delivery = delivery
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._polls: list[TailPoll] = []

    def ask(self, op: str, name: SegmentName, **fields: object) -> AskDone:
        """Raises what the proxy's store raises, and StoreUnreachable, LogClosed."""
        return self.send(str(name), wire.about_segment(op, name, **fields))

    def send(self, key: str, request: AskRequest) -> AskDone:
        """Ask whichever proxy is chosen for the key. Raises as `ask`."""
        self._check_open(key)
        return self.delivery.ask_any(key, request, pause=self._ending.wait)

    def send_to(self, address: str, request: AskRequest, *, patience_s: float | None = None) -> AskDone:
        """Ask the proxy of that address, and no other one. Raises as `ask`."""
        self._check_open(request.log)
        return self.delivery.ask_at(address, request, pause=self._ending.wait, patience_s=patience_s)

    def proxy_for(self, key: str) -> str:
        """As ProxyDelivery.proxy_for. Raises as `ask`, and what the registry raises."""
        self._check_open(key)
        return self.delivery.proxy_for(key, pause=self._ending.wait)

    def _check_open(self, what: str) -> None:
        if self._ending.is_set():
            raise LogClosed(f"{what} is not asked for any more: the namespace was closed; open it again")

    def tail(self, name: SegmentName, known: int = -1, wait_s: float = 0.0) -> Tail | None:
        """How far it may be read: as soon as that is behind `known`, or after `wait_s`."""
        return wire.heard_tail(self.ask(wire.TAIL, name, known=known, wait_s=wait_s).said)

    def data(self, op: str, name: SegmentName, **fields: object) -> pa.Buffer:
        """The bytes that the answer has."""
        data = self.ask(op, name, **fields).data
        return pa.py_buffer(b"") if data is None else data

    def poll(self, name: SegmentName) -> TailPoll:
        """Asks for a segment's tail all the time. Closed by whoever wanted it."""
        poll = TailPoll(lambda known, wait_s: self.tail(name, known, wait_s))
        with self._lock:
            self._polls = [*(one for one in self._polls if not one.ended), poll]
        return poll

    def close(self) -> None:
        """Ask no more, and wait for the last answers. Idempotent."""
        self._ending.set()
        with self._lock:
            polls, self._polls = self._polls, []
        for poll in polls:
            poll.close()
        for poll in polls:
            poll.join()


class ProxiedView(SegmentView):
    """One segment, open for reading. Raises LogNotFound where it is gone.

    It asks for more than it needs, up to `ahead_bytes_max`, when it is read from one end to the other.
    """

    def __init__(
        self,
        questions: SegmentQuestions,
        name: SegmentName,
        ahead_bytes_max: int,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        """`closed` is called when this is."""
        self._questions = questions
        self._name = name
        self._ahead_bytes_max = ahead_bytes_max
        self._ahead_bytes = 0
        self._closed = closed
        self._is_open = True
        self._poll: TailPoll | None = None
        self._window = pa.py_buffer(b"")
        self._window_start = 0
        questions.ask(wire.OPEN, name)

    def tail(self) -> Tail | None:
        heard = None if self._poll is None else self._poll.latest()
        return heard or self._asked().tail(self._name)

    def watch_tail(self, moved: threading.Event) -> Callable[[], None] | None:
        if self._poll is None:
            self._poll = self._asked().poll(self._name)
        return self._poll.watch(moved)

    def size(self) -> int:
        return int(self._asked().ask(wire.SIZE, self._name).said["size"])

    def read(self, offset: int, length: int) -> pa.Buffer:
        questions = self._asked()
        at = offset - self._window_start
        if not 0 <= at <= at + length <= self._window.size:
            self._fetch(questions, offset, offset + length)
            at = 0
        return self._window.slice(at, min(length, self._window.size - at))

    def doubt(self) -> None:
        self._window = pa.py_buffer(b"")
        with suppress(ScribenginError):  # whoever reads it again asks again
            self._asked().ask(wire.DOUBT, self._name)

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._window = pa.py_buffer(b"")
        if self._poll is not None:
            self._poll.close()
        self._closed()

    def _fetch(self, questions: SegmentQuestions, start: int, end: int) -> None:
        """Let the window begin at `start`, and hold what there is up to `end`, at least. Bytes that it has are kept."""
        at = start - self._window_start
        goes_on = self._window.size > 0 and 0 <= at <= self._window.size
        parts = [self._window.slice(at)] if goes_on else []
        ahead = max(2 * self._ahead_bytes, _AHEAD_BYTES_MIN) if goes_on else 0
        self._ahead_bytes = min(ahead, self._ahead_bytes_max)
        have = start + sum(part.size for part in parts)
        while have < end:
            part = questions.data(wire.BYTES, self._name, offset=have, length=end - have, ahead=self._ahead_bytes)
            if not part.size:
                break
            parts.append(part)
            have += part.size
        self._window = parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(map(memoryview, parts)))
        self._window_start = start

    def _asked(self) -> SegmentQuestions:
        if not self._is_open:
            raise LogClosed(f"segment {self._name} is closed; open a new reader")
        return self._questions


@dataclass(frozen=True, slots=True)
class _KnownProxies:
    """Proxies as somebody knew them once."""

    addresses: tuple[str, ...]

    def servers(self) -> list[ProxyDescriptor]:
        return [ProxyDescriptor(name=address, address=address) for address in self.addresses]


@dataclass(frozen=True, slots=True)
class ProxiedLocation(SegmentLocation):
    """A segment's name, and the proxies that were there when somebody planned to read it. Whoever reads it has a token
    of its own: from where `client` says, on its machine."""

    segment: SegmentName
    addresses: tuple[str, ...]
    client: ProxyClientConfig

    def open(self) -> SegmentView:
        transport = FlightTransport(ProxyCredentials.of(self.client))
        delivery = ProxyDelivery(_KnownProxies(self.addresses), transport, self.client)
        questions = SegmentQuestions(delivery)

        def close() -> None:
            questions.close()
            delivery.close()

        try:
            return ProxiedView(questions, self.segment, self.client.read_ahead_bytes_max, close)
        except BaseException:
            close()
            raise

    def __str__(self) -> str:
        return f"{self.segment} at {' '.join(self.addresses) or 'no proxy'}"


class ProxiedSegmentStore(SegmentStore):
    """What proxies serve of a namespace's store, whose kind is `kind`. Whatever would change something raises
    ConfigInvalid: that is done where the store is."""

    def __init__(self, questions: SegmentQuestions, kind: str, client: ProxyClientConfig) -> None:
        self._questions = questions
        self._kind = kind
        self._client = client

    def for_log(self, config: LogConfig) -> SegmentStore:
        return self if self._kind == "bk" else super().for_log(config)

    def check_mounted(self) -> None:
        """Nothing of it is on this machine."""

    def why_unwritable(self) -> str | None:
        return None

    def open(self, name: SegmentName, *, from_disk: bool = False) -> SegmentView:
        if from_disk:
            self._refuse("read past the cache of their machine")
        return ProxiedView(self._questions, name, self._client.read_ahead_bytes_max)

    def location(self, name: SegmentName) -> SegmentLocation:
        return ProxiedLocation(name, self._questions.delivery.addresses(), self._client)

    def load_index(self, name: SegmentName, kind: IndexKind = "positions") -> bytes:
        return bytes(self._questions.data(wire.INDEX, name, kind=kind))

    def save_index(self, name: SegmentName, index: bytes, kind: IndexKind = "positions") -> bool:
        return False

    def create_log(self, directory: str) -> None:
        self._refuse("made")

    def delete_log(self, directory: str) -> None:
        self._refuse("deleted")

    def create(self, name: SegmentName, *, fsync: bool) -> SegmentAppender:
        self._refuse("written")

    def fence(self, name: SegmentName) -> None:
        self._refuse("fenced")

    def make_durable(self, name: SegmentName) -> None:
        self._refuse("made durable")

    def names(self, directory: str) -> list[SegmentName]:
        self._refuse("listed")

    def announce(self, name: SegmentName) -> None:
        self._refuse("written")

    def announced(self, directory: str) -> Announced:
        self._refuse("listed")

    def remove(self, name: SegmentName) -> int:
        self._refuse("removed")

    def move(self, name: SegmentName, to: SegmentName) -> None:
        self._refuse("moved")

    def repair(self, name: SegmentName) -> int:
        self._refuse("repaired")

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigInvalid(
            f"segments are not {what} through a proxy: do that with LogNamespace, or `scribengin log`, on a machine "
            "that reaches their store"
        )
