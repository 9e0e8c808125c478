"""Whether a request is within the rates that a proxy allows. Pure: told the time.

A rate is a bucket that a second's worth fills, and that empties at the rate. While it is not full, a request of any
size is within it: so one that is larger than the rate itself passes, too, and the next ones wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scribengin.proxy.config import RateConfig


class _Bucket:
    def __init__(self, rate_s: int) -> None:
        self._rate_s = rate_s
        self._held = 0.0
        self._seen_s = 0.0

    def is_full(self, now_s: float) -> bool:
        self._held = max(0.0, self._held - (now_s - self._seen_s) * self._rate_s)
        self._seen_s = now_s
        return self._held >= self._rate_s

    def add(self, amount: int) -> None:
        self._held = max(0.0, self._held + amount)


@dataclass(frozen=True, slots=True)
class Admitted:
    """It is taken. `over`: the soft rates that it is above since this request, by what they are of."""

    over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TooMuch:
    """It is refused: by the hard rate of that."""

    of: str


@dataclass(slots=True)
class RateCounts:
    """What came of requests, by the meters that share it."""

    requests_over_soft: int = 0
    """How many were taken above a soft rate, by each meter that says so."""
    requests_refused: int = 0


class RateMeter:
    """What came of one log, or of all. Not thread-safe. `of` is its name in messages."""

    def __init__(self, config: RateConfig, of: str, counts: RateCounts | None = None) -> None:
        self._soft = _buckets(of, config.records_s_soft, config.bytes_s_soft)
        self._hard = _buckets(of, config.records_s_hard, config.bytes_s_hard)
        self._warned: set[str] = set()
        self.counts = RateCounts() if counts is None else counts

    def full(self, now_s: float) -> str | None:
        """The hard rate that is used up, if one is."""
        return next((of for of, (bucket, _column) in self._hard.items() if bucket.is_full(now_s)), None)

    def add(self, amounts: tuple[int, int], now_s: float) -> tuple[str, ...]:
        """Count so many records and bytes. The soft rates that are used up since now."""
        over = {of for of, (bucket, _column) in self._soft.items() if bucket.is_full(now_s)}
        for bucket, column in (*self._soft.values(), *self._hard.values()):
            bucket.add(amounts[column])
        self.counts.requests_over_soft += bool(over)
        new = over - self._warned
        self._warned = over
        return tuple(sorted(new))

    def give_back(self, amounts: tuple[int, int]) -> None:
        """Count so many records and bytes no longer."""
        for bucket, column in (*self._soft.values(), *self._hard.values()):
            bucket.add(-amounts[column])


def admit(meters: Sequence[RateMeter], records: int, size_bytes: int, now_s: float) -> Admitted | TooMuch:
    """Whether a request is within all of them. What is refused counts for none."""
    for meter in meters:
        of = meter.full(now_s)
        if of is not None:
            meter.counts.requests_refused += 1
            return TooMuch(of)
    return Admitted(tuple(of for meter in meters for of in meter.add((records, size_bytes), now_s)))


def give_back(meters: Sequence[RateMeter], records: int, size_bytes: int) -> None:
    """What was admitted was not written after all."""
    for meter in meters:
        meter.give_back((records, size_bytes))


def _buckets(of: str, records_s: int | None, bytes_s: int | None) -> dict[str, tuple[_Bucket, int]]:
    rates = ((records_s, "records", 0), (bytes_s, "bytes", 1))
    return {
        f"{of}: {rate:,} {what} a second": (_Bucket(rate), column) for rate, what, column in rates if rate is not None
    }
