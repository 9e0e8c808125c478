"""How requests get to whoever owns a log: which proxy is asked, and again, until one has answered for good."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Protocol

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.threads import pause as wait_a_while
from scribengin.errors import (
    ConfigInvalid,
    LogClosed,
    MessageInvalid,
    ProxyUnreachable,
    RegistryError,
    ScribenginError,
    StoreUnreachable,
)
from scribengin.proxy.client.transport import ProxyTransport
from scribengin.proxy.config import ProxyClientConfig
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.state.resend import OR_ALL_ARE_FULL, Lost, NotSent, SendAgain, SenderState, Sent, pause_after
from scribengin.proxy.state.routes import ProxyRoutes
from scribengin.proxy.wire.answers import Answer, AskDone, MovedTo, Refused, TryAgain, Written, decode_answer
from scribengin.proxy.wire.requests import ASK, WRITE, AskRequest, encode_ask, encode_write

_SERVERS_KNOWN_S = 2.0
"""So long the list of proxies is believed."""
_ATTEMPT_MIN_S = 5.0
"""The last attempt to write, too, has so long, if a call has: whoever is in a hurry shall not miss an answer on its
way."""
_LEFT_MIN_S = 0.1
"""The last call to a proxy of an address has so long, at the least."""
_NEARLY = 0.9
"""Of the limit of a call: timers may be a little early."""
_NO_PROXY = "no proxy of this namespace runs: start one with `scribengin proxy`"

_Call = Callable[[str, str, bytes, float], list[pa.Buffer]]
Pause = Callable[[float], object]
"""Waits so many seconds. True: there is no point in asking any more."""


class ProxyList(Protocol):
    """Who knows the proxies there are."""

    def servers(self) -> list[ProxyDescriptor]:
        """All of them. Raises what the registry raises."""
        ...


class ProxyDelivery:
    """What all writers and readers of a client share. Thread-safe."""

    def __init__(
        self, nodes: ProxyList, transport: ProxyTransport, config: ProxyClientConfig, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._nodes = nodes
        self._transport = transport
        self.config = config
        self.clock = clock
        self._lock = threading.Lock()
        self._routes = ProxyRoutes()
        self._listed_s: float | None = None

    def send(
        self,
        state: SenderState,
        log: str,
        directory: str,
        body: pa.RecordBatch,
        *,
        txids: bool,
        atomic: bool = False,
        since_s: float | None = None,
        pause: Pause = wait_a_while,
    ) -> Sent | NotSent | Lost:
        """Send records, as the sender's next ones, to the log of that directory, until it is known what became of them.
        With `atomic` readers see all of them or none. The last of them waits `since_s` (None: now), by the clock."""
        state.begin(body.num_rows, self.clock.monotonic_s() if since_s is None else since_s)
        if (lost := state.without_hope(self.clock.monotonic_s())) is not None:
            return lost
        for attempt in count():
            numbers = (state.sender, state.number, state.answered)
            request = encode_write(
                log, *numbers, body, txids=txids, directory=directory, atomic=atomic, since=state.since
            )
            left_s = state.left_s(self.clock.monotonic_s())
            answer = self._call(log, WRITE, request, left_s, alone=attempt > 0)  # its log may have stalled
            found = state.answer(answer, self.clock.monotonic_s())
            if not isinstance(found, SendAgain):
                return found
            self._learn(log, found)
            if found.pause_s and pause(found.pause_s):
                return Lost(LogClosed(f"log '{log}': the writer was closed before it was known what was written"))
        raise AssertionError("it is sent until it is known what became of it")

    def ask(
        self,
        request: AskRequest,
        *,
        pause: Pause = wait_a_while,
        done_if: Callable[[ScribenginError], bool] = lambda _error: False,
        patience_s: float | None = None,
    ) -> AskDone:
        """Ask until it is done. After an attempt that may have done it, it also is done if it is refused with an error
        that says so, as `done_if` tells.

        Raises what a proxy refuses it with, and after `patience_s` (None: that of the client) what was in the way.
        """
        until_s = self.clock.monotonic_s() + (self.config.patience_s if patience_s is None else patience_s)
        body = encode_ask(request)
        unsure = False
        for failures in count():
            answer = self._call(request.log, ASK, body, until_s - self.clock.monotonic_s())
            match answer:
                case AskDone():
                    return answer
                case Refused(error):
                    if unsure and done_if(error):
                        return AskDone()
                    raise error
                case MovedTo(address):
                    self._learn(request.log, SendAgain(0.0, owner=address))
                    told = f"proxies disagree whose log '{request.log}' is"
                    why: ScribenginError = ProxyUnreachable(f"{told}{OR_ALL_ARE_FULL}")
                case TryAgain(why, maybe_done):
                    unsure |= maybe_done
                    self._learn(request.log, SendAgain(0.0, elsewhere=True))
                case Written():
                    raise MessageInvalid("a proxy has answered with the places of records that were not sent")
            if self.clock.monotonic_s() >= until_s or pause(pause_after(failures)):
                raise why
        raise AssertionError("it is asked until there is an answer")

    def ask_any(self, key: str, request: AskRequest, *, pause: Pause = wait_a_while) -> AskDone:
        """Ask what every proxy can answer: the one that is chosen for the key, and then others, until one has.

        Raises what a proxy refuses it with, and StoreUnreachable when none has answered for as long as the client has
        patience.
        """
        until_s = self.clock.monotonic_s() + self.config.patience_s
        body = encode_ask(request)
        for failures in count():
            answer = self._call(key, request.kind, body, until_s - self.clock.monotonic_s(), once=True)
            if isinstance(answer, AskDone):
                return answer
            why = _why_again(answer, request.op)
            if self.clock.monotonic_s() >= until_s or (failures and pause(pause_after(failures - 1))):
                raise why if isinstance(why, StoreUnreachable) else StoreUnreachable(str(why)) from why
        raise AssertionError("it is asked until there is an answer")

    def ask_at(
        self, address: str, request: AskRequest, *, pause: Pause = wait_a_while, patience_s: float | None = None
    ) -> AskDone:
        """Ask the proxy of that address, again and again while it runs: what is asked is done once however often it is
        asked for.

        Raises what the proxy refuses it with, and StoreUnreachable once it is gone, or has not answered for
        `patience_s` (None: that of the client).
        """
        until_s = self.clock.monotonic_s() + (self.config.patience_s if patience_s is None else patience_s)
        body = encode_ask(request)
        for failures in count():
            left_s = max(until_s - self.clock.monotonic_s(), _LEFT_MIN_S)
            limit_s = min(self.config.call_timeout_s, left_s)
            answer = self._call_at(address, request.kind, body, limit_s, self._transport.call)
            if isinstance(answer, AskDone):
                return answer
            why = _why_again(answer, request.op)
            if self.clock.monotonic_s() >= until_s or not self.runs(address) or pause(pause_after(failures)):
                raise StoreUnreachable(str(why)) from why
        raise AssertionError("it is asked until there is an answer")

    def proxy_for(self, key: str, *, pause: Pause = wait_a_while) -> str:
        """The address of the proxy that is chosen for the key, as soon as one runs. Raises StoreUnreachable when none
        has come for as long as the client has patience, and what the registry raises."""
        until_s = self.clock.monotonic_s() + self.config.patience_s
        for failures in count():
            address = self._address(key)
            if address is not None:
                return address
            if self.clock.monotonic_s() >= until_s or pause(pause_after(failures)):
                raise StoreUnreachable(_NO_PROXY)
        raise AssertionError("it is waited for until one runs")

    def runs(self, address: str) -> bool:
        """Whether the registry knows of a proxy there: also if nobody can tell just now."""
        try:
            return any(one.address == address for one in self._nodes.servers())
        except RegistryError:
            return True

    def addresses(self) -> tuple[str, ...]:
        """The proxies that take requests, as of a moment ago. Raises what the registry raises."""
        self._know_servers()
        with self._lock:
            return self._routes.addresses

    def close(self) -> None:
        """Ask nobody any more."""
        self._transport.close()

    def _call(
        self, log: str, kind: str, body: bytes, left_s: float, *, once: bool = False, alone: bool = False
    ) -> Answer:
        """What the proxy says that is to be asked about the log, by somebody who has `left_s` of patience. With `once`
        it is not asked again for a while if it cannot do it just now. `alone`: the request goes with no others."""
        call = self._transport.call_alone if alone else self._transport.call
        try:
            address = self._address(log)
        except RegistryError as error:
            return TryAgain(error)
        if address is None:
            return TryAgain(ProxyUnreachable(_NO_PROXY))
        answer = self._call_at(address, kind, body, self._limit_s(kind, left_s), call)
        if once and isinstance(answer, TryAgain):
            self._failed(address)
        return answer

    def _call_at(self, address: str, kind: str, body: bytes, limit_s: float, call: _Call) -> Answer:
        began_s = self.clock.monotonic_s()
        try:
            return decode_answer(call(address, kind, body, limit_s))
        except (ProxyUnreachable, MessageInvalid) as error:
            if not self._cut_short(error, began_s):
                self._failed(address)
            return TryAgain(error, maybe_written=True)
        except ConfigInvalid as error:  # it was not asked: this client must not, or cannot
            return Refused(error)

    def _limit_s(self, kind: str, left_s: float) -> float:
        """So long a call may take. All but writes have the whole time: a proxy that opens a log may have to wait for
        its store, and is not dead for that."""
        whole_s = self.config.call_timeout_s
        return min(whole_s, max(left_s, _ATTEMPT_MIN_S)) if kind == WRITE else whole_s

    def _cut_short(self, error: ScribenginError, began_s: float) -> bool:
        """Whether the call was ended before a proxy that is silent counts as dead."""
        took_s = self.clock.monotonic_s() - began_s
        timed_out = isinstance(error, ProxyUnreachable) and error.timed_out
        return timed_out and took_s < _NEARLY * self.config.call_timeout_s

    def _failed(self, address: str) -> None:
        with self._lock:
            self._routes.failed(address, self.clock.monotonic_s())
            self._listed_s = None

    def _address(self, log: str) -> str | None:
        self._know_servers()
        with self._lock:
            return self._routes.choose(log, self.clock.monotonic_s())

    def _know_servers(self) -> None:
        now_s = self.clock.monotonic_s()
        if self._listed_s is None or now_s - self._listed_s >= _SERVERS_KNOWN_S:
            servers = self._nodes.servers()
            with self._lock:
                self._routes.servers_are(one.address for one in servers if one.takes_more)
                self._listed_s = now_s if servers else None  # that there are none is not believed for long

    def _learn(self, log: str, found: SendAgain) -> None:
        with self._lock:
            if found.owner is not None:
                self._routes.moved(log, found.owner)
            elif found.elsewhere:
                self._routes.forget(log)
                self._listed_s = None


def _why_again(answer: Answer, op: str) -> ScribenginError:
    """Why what any proxy could answer is not done, and may be asked again. Raises what it is refused with."""
    match answer:
        case Refused(error):
            raise error
        case TryAgain(why):
            return why
        case _:
            raise MessageInvalid(f"a proxy has answered '{op}' with what is no answer to it")
