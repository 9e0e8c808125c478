"""The ends of a latency benchmark: what is sent at a rate, and what comes out of windows."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin_tools.logs.pacing import receive, send_paced


def test_each_record_has_a_window_of_its_own_and_says_when_it_was_sent() -> None:
    sent: list[bytes] = []
    before_s = SYSTEM_CLOCK.monotonic_s()
    send_paced(sent.append, 20, 1000, 512, windowed=True)
    records = [json.loads(one) for one in sent]
    times = [datetime.fromisoformat(one["at"]) for one in records]
    assert {after - before for before, after in pairwise(times)} == {timedelta(milliseconds=1)}
    stamps = [one["sent"] for one in records]
    assert stamps == sorted(stamps)
    assert stamps[0] >= before_s
    assert all(abs(len(one) - 512) < 8 for one in sent)


def test_what_was_sent_before_the_reader_came_is_not_counted_and_the_last_window_stays_open() -> None:
    earlier = json.dumps({"sent": SYSTEM_CLOCK.monotonic_s() - 60}).encode()
    polled: list[int] = []

    def poll() -> list[bytes]:
        polled.append(1)
        return [earlier, json.dumps({"sent": SYSTEM_CLOCK.monotonic_s()}).encode()]

    ways = receive(poll, 6, windowed=True)
    assert len(polled) == 5
    assert 0 <= ways["p50_ms"] <= ways["p99_ms"]
