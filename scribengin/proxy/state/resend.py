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
OR_ALL_ARE_FULL = ", or all of them write as many logs as they may (`logs_max`): start another proxy"


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
    silence: ScribenginError | None = None
    """What was in the way, if it was given up for want of patience."""


@dataclass(frozen=True, slots=True)
class SendAgain:
    """After a pause; by `owner`, if that is known now. `elsewhere`: the proxy that was asked does not write the log."""

    pause_s: float
    owner: str | None = None
    elsewhere: bool = False


class SenderState:
    """Not thread-safe. `new_sender` gives 16 bytes that nobody else has. `silence`: why the sender before this one was
    given up for want of patience. `segment`: nothing of it is in an earlier one of the log."""

    def __init__(
        self,
        new_sender: Callable[[], bytes],
        patience_s: float,
        silence: ScribenginError | None = None,
        segment: int = 1,
    ) -> None:
        self._new_sender = new_sender
        self._patience_s = patience_s
        self._silence = silence
        self.segment = segment
        self.sender = new_sender()
        self.number = 1
        """Of the first record of the request."""
        self._records = 0
        self._maybe_written = False
        """Whether an attempt of this request may have written some of it."""
        self._begun_s = 0.0
        self._answered_s = float("-inf")
        """When a request was last answered for good."""
        self._failures = 0
        self._redirects = 0

    @property
    def answered(self) -> int:
        """Up to which number there were answers."""
        return self.number - 1

    @property
    def since(self) -> int:
        """The segment since which the request may be in the log; 0: no attempt can have written any of it."""
        return self.segment if self._maybe_written else 0

    def begin(self, records: int, since_s: float) -> None:
        """The next request has so many records, and the last of them waits since then. What waits behind others is not
        given up for that, as long as those are answered."""
        self._records = records
        self._maybe_written = False
        self._begun_s = max(since_s, self._answered_s)
        self._failures = 0
        self._redirects = 0

    def left_s(self, now_s: float) -> float:
        """So long it waits for an answer still."""
        return self._begun_s + self._patience_s - now_s

    def without_hope(self, now_s: float) -> Lost | None:
        """What is made of a request that has waited for all its patience behind one that was given up: nobody is asked.
        Else those that wait would take an attempt each, one after the other."""
        if self._silence is None or self.left_s(now_s) > 0:
            return None
        return Lost(_given_up(self._silence, self._patience_s, maybe_written=False), self._silence)

    def answer(self, answer: Answer, now_s: float) -> Sent | NotSent | Lost | SendAgain:
        """What an attempt came to."""
        found = self._found(answer, now_s)
        if isinstance(found, Sent | NotSent):
            self._answered_s = now_s
            self._silence = None  # a proxy answers: what waits from here on is asked for
        return found

    def _found(self, answer: Answer, now_s: float) -> Sent | NotSent | Lost | SendAgain:
        match answer:
            case Written(runs):
                self.number += self._records
                self.segment = max(self.segment, runs[-1].first.segment)
                return Sent(runs)
            case MovedTo(address):
                self._redirects += 1
                if self._redirects <= _REDIRECTS_AT_ONCE:
                    return SendAgain(0.0, owner=address)
                told = f"proxies name each other as the log's owner, {address} the last of them"
                why = ProxyUnreachable(f"{told}{OR_ALL_ARE_FULL}")
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
        if self.left_s(now_s) <= 0:
            return Lost(_given_up(why, self._patience_s, maybe_written=self._maybe_written), why)
        self._failures += 1
        pause_s = 0.0 if at_once else pause_after(self._failures - 1)
        return SendAgain(pause_s, owner, elsewhere)


def pause_after(failures: int) -> float:
    """How long to wait before it is tried again, when so many more tries have failed before the last one."""
    pause_s: float = _PAUSE_S * 2 ** min(failures, 10)
    return min(pause_s, _PAUSE_MAX_S)


def _given_up(why: ScribenginError, patience_s: float, *, maybe_written: bool) -> ScribenginError:
    """The same error, of which it is said what the limit was, and what that means for the records."""
    fate = (
        "nobody knows whether the records are in the log, and they may still come: read it again once a proxy has "
        "taken a later record, or write them with a key that tells duplicates"
    )
    if not maybe_written:
        fate = "the records are not in the log"
    said = f"{why}; given up after {patience_s:g} s (`patience_s` of the client): {fate}"
    # A copy: others may have been told the same one. Not by its constructor, which may ask for more than the words.
    error = type(why).__new__(type(why), said)
    vars(error).update(vars(why))
    error.__cause__ = why
    return error
