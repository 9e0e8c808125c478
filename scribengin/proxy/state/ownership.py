"""What a proxy does with a request for a log, by what it knows of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogSight:
    """What a proxy knows of a log: whether it writes it, and well; whose it is by the registry, if somebody's; how many
    logs it writes, and of how many it takes charge."""

    us: str
    serving: bool
    owner: str | None
    ending: bool
    logs: int
    logs_max: int
    others: Sequence[str] = ()
    """Addresses of proxies that take more logs, if they have room, in the order in which they are to be asked. Another
    one each time: two that are full would send to each other, and never to one that has room."""
    handed_to: str | None = None
    """The address of the proxy for which we have just given it up."""


@dataclass(frozen=True, slots=True)
class Serve:
    """The log is ours, and its writer is well."""


@dataclass(frozen=True, slots=True)
class TakeLog:
    """It is nobody's, or ours without a writer: make it ours, and open the writer."""


@dataclass(frozen=True, slots=True)
class SendTo:
    """Another proxy is to be asked."""

    address: str


@dataclass(frozen=True, slots=True)
class PutOff:
    """Nobody can take it just now."""

    why: str


Step = Serve | TakeLog | SendTo | PutOff


def next_step(sight: LogSight) -> Step:
    """What to do with a request for the log."""
    if sight.serving and not sight.ending:
        return Serve()
    if sight.owner not in (None, sight.us):
        return SendTo(str(sight.owner))
    if sight.handed_to in sight.others:
        return SendTo(str(sight.handed_to))
    full = sight.owner is None and sight.logs >= sight.logs_max
    if not sight.ending and not full:
        return TakeLog()
    if sight.others:
        return SendTo(sight.others[0])
    return PutOff("it ends" if sight.ending else f"it writes {sight.logs} logs, and takes no more")
