"""How many records may be unacknowledged, and when what waits is sent."""

from __future__ import annotations

import pytest

from scribengin.errors import OverCapacity
from scribengin.log import LogConfig
from scribengin.log.write.group_commit import TransmitPolicy
from scribengin.log.write.limits import WriteLimiter, WriteLimits


def test_what_is_over_the_limit_is_refused_and_not_counted() -> None:
    """DistributedLog's TestWriteLimiter: permits are taken, given back, and not taken when refused."""
    limiter = WriteLimiter(3, what="the test")
    assert limiter.acquire(2)
    with pytest.raises(OverCapacity, match="the test: 2 more records over 2"):
        limiter.acquire(2)
    assert (limiter.outstanding, limiter.over_capacity) == (2, 2)
    limiter.acquire(1)
    limiter.release(3)
    assert limiter.outstanding == 0


def test_a_limit_of_zero_takes_nothing() -> None:
    with pytest.raises(OverCapacity):
        WriteLimiter(0, what="the test").acquire(1)


def test_dark_mode_only_counts() -> None:
    limiter = WriteLimiter(1, dark_mode=True, what="the test")
    assert limiter.acquire(1)
    assert not limiter.acquire(5)
    assert (limiter.outstanding, limiter.over_capacity) == (6, 5)


def test_without_a_limit_everything_is_within_it() -> None:
    limiter = WriteLimiter(None, what="the test")
    assert limiter.acquire(10**9)
    assert limiter.outstanding == 10**9


def test_what_one_limit_refuses_the_others_do_not_count() -> None:
    shared, own = WriteLimiter(10, what="the namespace"), WriteLimiter(1, what="the writer")
    limits = WriteLimits(shared, own)
    with pytest.raises(OverCapacity, match="the writer"):
        limits.acquire(2)
    assert (shared.outstanding, own.outstanding) == (0, 0)
    limits.acquire(1)
    assert (shared.outstanding, own.outstanding) == (1, 1)
    limits.release(1)
    assert (shared.outstanding, own.outstanding) == (0, 0)


def test_shared_limits_are_reached_by_all_writers_together() -> None:
    shared = WriteLimiter(2, what="the namespace")
    WriteLimits(shared).acquire(1)
    WriteLimits(shared).acquire(1)
    with pytest.raises(OverCapacity, match="the namespace"):
        WriteLimits(shared).acquire(1)


@pytest.mark.parametrize(
    ("bytes_min", "interval_ms", "waiting", "waited_s", "wait_s"),
    [
        (0, 0, 1, 0, 0),  # immediately
        (100, 0, 99, 1000, None),  # at n bytes: time changes nothing
        (100, 0, 100, 0, 0),
        (0, 50, 1, 0.03, 0.02),  # every t
        (0, 50, 1, 0.06, 0),
        (100, 50, 99, 0.03, 0.02),  # whichever comes first
        (100, 50, 100, 0.03, 0),
        (100, 50, 99, 0.05, 0),
    ],
)
def test_what_waits_is_sent_at_once_or_by_size_or_by_age(
    bytes_min: int, interval_ms: int, waiting: int, waited_s: float, wait_s: float | None
) -> None:
    policy = TransmitPolicy.of(LogConfig(transmit_bytes=bytes_min, transmit_interval_ms=interval_ms))
    left_s = policy.wait_s(waiting_bytes=waiting, held_bytes=0, waited_s=waited_s)
    assert left_s == (wait_s if wait_s is None else pytest.approx(wait_s))


def test_what_makes_callers_wait_is_sent_whatever_the_policy() -> None:
    policy = TransmitPolicy.of(LogConfig(transmit_bytes=10**9, pending_bytes_max=1024))
    assert policy.wait_s(waiting_bytes=1, held_bytes=1023, waited_s=0) is None
    assert policy.wait_s(waiting_bytes=1, held_bytes=1024, waited_s=0) == 0
