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

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.text.counting import many
from scribengin.errors import ServerDown

_STAMP = struct.Struct("<d")
STAMP_BYTES = _STAMP.size
"""A record takes so much at least."""
_WARM_UP_SHARE = 0.2
_SILENCE_MAX_S = 30.0
_MS_PER_S = 1000
_LIKE_WINDOWED = '{"at": "2013-01-01T00:00:00.000+00:00", "sent": 1234567.123456789, "rest": ""}'


def send_paced(
    send: Callable[[bytes], object], records: int, per_s: float, record_bytes: int, *, windowed: bool = False
) -> None:
    """Call `send` with each record when its time has come. `windowed`: as JSON; its time is a whole number of
    intervals, so that each is in a window of its own."""
    rest = "." * max(0, record_bytes - len(_LIKE_WINDOWED)) if windowed else bytes(record_bytes - _STAMP.size)
    interval_ms = round(_MS_PER_S / per_s)
    due_ms = SYSTEM_CLOCK.now_ms() // interval_ms * interval_ms
    begun_s = SYSTEM_CLOCK.monotonic_s()
    for number in range(records):
        early_s = begun_s + number / per_s - SYSTEM_CLOCK.monotonic_s()
        if early_s > 0:
            Event().wait(early_s)
        sent_s = SYSTEM_CLOCK.monotonic_s()
        if isinstance(rest, bytes):
            send(_STAMP.pack(sent_s) + rest)
        else:
            at = datetime.fromtimestamp((due_ms + number * interval_ms) / _MS_PER_S, UTC)
            send(json.dumps({"at": at.isoformat(timespec="milliseconds"), "sent": sent_s, "rest": rest}).encode())


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
        elif now_s - heard_s > _SILENCE_MAX_S:
            missing = f"{records - len(ways_s)} of {many(records, 'record')}"
            raise ServerDown(f"{missing} did not come within {_SILENCE_MAX_S:g} s")
    ways_s = sorted(ways_s[int(records * _WARM_UP_SHARE) :])
    return {"p50_ms": 1000 * _quantile(ways_s, 0.5), "p99_ms": 1000 * _quantile(ways_s, 0.99)}


def _sent(payload: bytes) -> float:
    stamp: float = _STAMP.unpack_from(payload)[0]
    return stamp


def _sent_of_window(payload: bytes) -> float:
    return float(json.loads(payload)["sent"])


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
