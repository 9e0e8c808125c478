"""Records at a steady rate that carry when they were sent, and how long they were on their way.

Both ends read the machine's monotonic clock, which all its processes share. A record is stamped right before it is
handed to the writer, whose calls do not wait for the disk or the network.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.errors import ServerDown

_T = TypeVar("_T")
_STAMP = struct.Struct("<d")
_WARM_UP_SHARE = 0.2
_SILENCE_MAX_S = 30.0


def send_paced(
    send: Callable[[bytes], _T],
    records: int,
    per_s: float,
    record_bytes: int,
    written: Callable[[_T], object] = lambda _: None,
) -> None:
    """Call `send` with each record when its time has come. With `written` the first one is waited for: what the first
    write has made (a segment, a ledger, a connection) is there before the others come."""
    rest = bytes(record_bytes - _STAMP.size)
    written(send(_STAMP.pack(SYSTEM_CLOCK.monotonic_s()) + rest))
    begun_s = SYSTEM_CLOCK.monotonic_s()
    for number in range(records - 1):
        early_s = begun_s + number / per_s - SYSTEM_CLOCK.monotonic_s()
        if early_s > 0:
            Event().wait(early_s)
        send(_STAMP.pack(SYSTEM_CLOCK.monotonic_s()) + rest)


def receive(poll: Callable[[], Iterable[bytes]], records: int) -> dict[str, float]:
    """Poll until all have come; {p50_ms, p99_ms} of their ways, without the first of them (a JVM has to warm up)."""
    ways_s: list[float] = []
    heard_s = SYSTEM_CLOCK.monotonic_s()
    while len(ways_s) < records:
        payloads = poll()
        now_s = SYSTEM_CLOCK.monotonic_s()
        before = len(ways_s)
        ways_s.extend(now_s - _STAMP.unpack_from(payload)[0] for payload in payloads)
        if len(ways_s) > before:
            heard_s = now_s
        elif now_s - heard_s > _SILENCE_MAX_S:
            raise ServerDown(f"{records - len(ways_s)} of {records} records did not come within {_SILENCE_MAX_S:g} s")
    return ways_of(ways_s)


def ways_of(ways_s: list[float]) -> dict[str, float]:
    """{p50_ms, p99_ms} of ways in the order in which they were gone, without the first of them."""
    ways_s = sorted(ways_s[int(len(ways_s) * _WARM_UP_SHARE) :])
    return {"p50_ms": 1000 * _quantile(ways_s, 0.5), "p99_ms": 1000 * _quantile(ways_s, 0.99)}


def rate_of_all(readers: Sequence[Callable[[], int]]) -> float:
    """Records per second of readers that begin together, a thread each, and say how many they have read."""
    with ThreadPoolExecutor(len(readers)) as threads:
        begun_s = SYSTEM_CLOCK.monotonic_s()
        found = [future.result() for future in [threads.submit(reader) for reader in readers]]
        return sum(found) / (SYSTEM_CLOCK.monotonic_s() - begun_s)


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
