"""What a benchmark says: one row, and how several runs become one figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result. `peer` is None where there is nothing to compare with yet, and `peer_name` says so."""

    name: str
    unit: str
    ours: float
    peer: float | None
    peer_name: str
    guarantee: str

    @property
    def ratio(self) -> float | None:
        """Ours over the peer: more is better."""
        return None if not self.peer else self.ours / self.peer

    def to_json(self) -> dict[str, object]:
        """The row as `--json` writes it."""
        values = asdict(self)
        guarantee = values.pop("guarantee")
        return {**values, "ratio": self.ratio, "guarantee": guarantee}


@dataclass(frozen=True, slots=True)
class Scale:
    """How much a benchmark does: bytes that one run of a log benchmark moves, records of a dataflow's run, runs."""

    log_bytes: int
    single_records: int
    flow_records: int
    runs: int

    def with_runs(self, runs: int | None) -> Scale:
        """The same with another number of runs; None leaves it."""
        return self if runs is None else replace(self, runs=runs)


SCALES = {
    "full": Scale(log_bytes=512 * 1024 * 1024, single_records=200_000, flow_records=600_000, runs=5),
    "small": Scale(log_bytes=4 * 1024 * 1024, single_records=1_000, flow_records=4_000, runs=2),
}


def alternating(runs: int, measure: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Medians of (ours, peer) over `runs` runs that take turns, so that a noisy moment hits both."""
    pairs = [measure() for _ in range(runs)]
    return median(ours for ours, _ in pairs), median(peer for _, peer in pairs)


def write_json(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as a JSON list."""
    path.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n", encoding="utf-8")
