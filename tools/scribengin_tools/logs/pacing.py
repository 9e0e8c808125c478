"""Records at a steady rate that carry when they were sent, and how long they were on their way.

Both ends read the machine's monotonic clock, which all its processes share. A record is stamped right before it is
handed to the writer, whose calls do not wait for the disk or the network.

Those that go through windows are JSON, `{"at": the time when it is due, "sent": its stamp, ...}`. What comes out of a
window has the stamp of the last record in it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from threading import Event
from typing import TypeVar

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.text.counting import many
from scribengin.errors import ServerDown

_T = TypeVar("_T")
_STAMP = struct.Struct("<d")
STAMP_BYTES = _STAMP.size
"""A record takes so much at least."""
_WARM_UP_SHARE = 0.2
SILENCE_MAX_S = 30.0
"""Who hears nothing for so long gives up."""
_MS_PER_S = 1000
_LIKE_WINDOWED = '{"at": "2013-01-01T00:00:00.000+00:00", "sent": 1234567.123456789, "rest": ""}'


def send_paced(
    send: Callable[[bytes], _T],
    records: int,
    per_s: float,
    record_bytes: int,
    written: Callable[[_T], object] = lambda _: None,
    *,
    windowed: bool = False,
) -> None:
    """Call `send` with each record when its time has come. With `written` the first one is waited for: what the first
    write has made (a segment, a ledger, a connection) is there before the others come. `windowed`: as JSON; its time is
    a whole number of intervals, so that each is in a window of its own."""
    made = _windowed(per_s, record_bytes) if windowed else _stamped(record_bytes)
    written(send(made(0)))
    begun_s = SYSTEM_CLOCK.monotonic_s()
    for number in range(1, records):
        early_s = begun_s + (number - 1) / per_s - SYSTEM_CLOCK.monotonic_s()
        if early_s > 0:
            Event().wait(early_s)
        send(made(number))


def _stamped(record_bytes: int) -> Callable[[int], bytes]:
    rest = bytes(record_bytes - _STAMP.size)
    return lambda _: _STAMP.pack(SYSTEM_CLOCK.monotonic_s()) + rest


def _windowed(per_s: float, record_bytes: int) -> Callable[[int], bytes]:
    rest = "." * max(0, record_bytes - len(_LIKE_WINDOWED))
    interval_ms = round(_MS_PER_S / per_s)
    due_ms = SYSTEM_CLOCK.now_ms() // interval_ms * interval_ms

    def made(number: int) -> bytes:
        at = datetime.fromtimestamp((due_ms + number * interval_ms) / _MS_PER_S, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"at": at, "sent": SYSTEM_CLOCK.monotonic_s(), "rest": rest}).encode()

    return made


def receive(poll: Callable[[], Iterable[bytes]], records: int, *, windowed: bool = False) -> dict[str, float]:
    """Poll until all have come; {p50_ms, p99_ms} of their ways, without the first of them (a JVM has to warm up).
    `windowed`: the last one's window stays open, and what was sent before may still come."""
    sent = _sent_of_window if windowed else _sent
    records -= windowed
    ways_s: list[float] = []
    begun_s = heard_s = SYSTEM_CLOCK.monotonic_s()
    while len(ways_s) < records:
        payloads = poll()
        now_s = SYSTEM_CLOCK.monotonic_s()
        before = len(ways_s)
        ways_s.extend(now_s - at_s for at_s in map(sent, payloads) if not windowed or at_s >= begun_s)
        if len(ways_s) > before:
            heard_s = now_s
        elif now_s - heard_s > SILENCE_MAX_S:
            missing = f"{records - len(ways_s)} of {many(records, 'record')}"
            raise ServerDown(f"{missing} did not come within {SILENCE_MAX_S:g} s")
    return ways_of(ways_s)


def ways_of(ways_s: list[float]) -> dict[str, float]:
    """{p50_ms, p99_ms} of ways in the order in which they were gone, without the first of them."""
    ways_s = sorted(ways_s[int(len(ways_s) * _WARM_UP_SHARE) :])
    return {"p50_ms": 1000 * _quantile(ways_s, 0.5), "p99_ms": 1000 * _quantile(ways_s, 0.99)}


def _sent(payload: bytes) -> float:
    stamp: float = _STAMP.unpack_from(payload)[0]
    return stamp


def _sent_of_window(payload: bytes) -> float:
    return float(json.loads(payload)["sent"])


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
