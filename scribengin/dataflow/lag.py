"""How far behind something is, as far as anybody knows. Pure.

A figure is as old as its owner's last look: none is taken while a round goes on, nor while nobody owns the task. So it
goes together with its age, and what nobody has looked up is no 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from scribengin.base.model import Part

LAG_OLD_S = 10.0
"""Twice as long as a worker may leave its report unwritten. A figure that is older says *about*."""


class Lag(Protocol):
    """What has a lag."""

    @property
    def lag_records(self) -> int | None: ...

    @property
    def lag_age_s(self) -> float | None: ...

    @property
    def lag_about(self) -> bool: ...


class LagOverview(Part):
    """So many records wait to be read. None: nobody has looked yet."""

    lag_records: int | None = None
    lag_age_s: float | None = None
    """How old the oldest figure in it is, in seconds. None: nobody knows."""
    lag_about: bool = False
    """Whether it is older than LAG_OLD_S, or leaves out what nobody has looked up."""


UNKNOWN = LagOverview()


def is_old(age_s: float | None) -> bool:
    """Whether a figure of that age is only about right."""
    return age_s is None or age_s > LAG_OLD_S


def lag_of(parts: Iterable[Lag]) -> LagOverview:
    """Of several things together. Of none at all it is 0."""
    parts = list(parts)
    known = [part for part in parts if part.lag_records is not None]
    if parts and not known:
        return UNKNOWN
    return LagOverview(
        lag_records=sum(part.lag_records or 0 for part in known),
        lag_age_s=max((part.lag_age_s for part in known if part.lag_age_s is not None), default=None),
        lag_about=len(known) < len(parts) or any(part.lag_about for part in known),
    )
