"""A sender: which numbers its records have, and what it makes of an answer. Pure: told the time.

One request is under way at a time. It is sent again, under the same numbers, until it is answered for good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scribengin.errors import OverCapacity, ProxyUnreachable, ScribenginError, SenderUnknown
from scribengin.log.write.results import SlotRange
from scribengin.proxy.wire.answers import Answer, AskDone, MovedTo, Refused, TryAgain, Written

_PAUSE_S = 0.02
_PAUSE_MAX_S = 1.0
_REDIRECTS_AT_ONCE = 3
"""So many redirects in a row are followed at once: proxies that disagree who owns a log need a moment."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The records are in the log, there."""

    runs: tuple[SlotRange, ...]


@dataclass(frozen=True, slots=True)
class NotSent:
    """The records are not in the log. Their numbers are free: the next ones take them."""

    error: ScribenginError


@dataclass(frozen=True, slots=True)
class Lost:
    """Whether the records are in the log cannot be told, or nobody has taken them in time. The sender sends nothing any
    more."""

    error: ScribenginError


@dataclass(frozen=True, slots=True)
class SendAgain:
    """After a pause; by `owner`, if that is known now. `elsewhere`: the proxy that was asked does not write the log."""

    pause_s: float
    owner: str | None = None
    elsewhere: bool = False


class SenderState:
    """Not thread-safe. `new_sender` gives 16 bytes that nobody else has."""

    def __init__(self, new_sender: Callable[[], bytes], patience_s: float) -> None:
        self._new_sender = new_sender
        self._patience_s = patience_s
        self.sender = new_sender()
        self.number = 1
        """Of the first record of the request."""
        self._records = 0
        self._maybe_written = False
        """Whether an attempt of this request may have written some of it."""
        self._begun_s = 0.0
        self._failures = 0
        self._redirects = 0

    @property
    def answered(self) -> int:
        """Up to which number there were answers."""
        return self.number - 1

    def begin(self, records: int, now_s: float) -> None:
        """The next request has so many records."""
        self._records = records
        self._maybe_written = False
        self._begun_s = now_s
        self._failures = 0
        self._redirects = 0

    def answer(self, answer: Answer, now_s: float) -> Sent | NotSent | Lost | SendAgain:
        """What an attempt came to."""
        match answer:
            case Written(runs):
                self.number += self._records
                return Sent(runs)
            case MovedTo(address):
                self._redirects += 1
                if self._redirects <= _REDIRECTS_AT_ONCE:
                    return SendAgain(0.0, owner=address)
                why = ProxyUnreachable(f"proxies name each other as the log's owner, {address} the last of them")
                return self._again(why, now_s, owner=address)
            case TryAgain(why, maybe_written):
                self._maybe_written |= maybe_written
                return self._again(why, now_s, elsewhere=True)
            case Refused(error):
                return self._refused(error, now_s)
            case AskDone():
                raise AssertionError("records are written or refused")

    def _refused(self, error: ScribenginError, now_s: float) -> NotSent | Lost | SendAgain:
        if not self._maybe_written and not isinstance(error, SenderUnknown):
            return NotSent(error)
        if isinstance(error, OverCapacity):
            return self._again(error, now_s)
        if self._maybe_written:
            return Lost(error)
        # All that it sent before was answered, so what it is forgotten for is written already: it begins anew.
        self.sender = self._new_sender()
        self.number = 1
        return self._again(error, now_s, at_once=True)

    def _again(
        self,
        why: ScribenginError,
        now_s: float,
        *,
        owner: str | None = None,
        elsewhere: bool = False,
        at_once: bool = False,
    ) -> SendAgain | Lost:
        if now_s - self._begun_s >= self._patience_s:
            return Lost(why)
        self._failures += 1
        pause_s = 0.0 if at_once else min(_PAUSE_S * 2 ** (self._failures - 1), _PAUSE_MAX_S)
        return SendAgain(pause_s, owner, elsewhere)
