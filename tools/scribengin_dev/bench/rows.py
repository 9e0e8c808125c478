"""What a benchmark says: one row, and how several runs become one figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

_LESS_IS_BETTER = frozenset({"ms", "MB", "threads"})
_GIB = 1024**3


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
        """Ours over the peer, and the other way round where less is better (a latency): more is always better."""
        if not self.peer or not self.ours:
            return None
        return self.peer / self.ours if self.unit in _LESS_IS_BETTER else self.ours / self.peer

    def to_json(self) -> dict[str, object]:
        """The row as `--json` writes it."""
        values = asdict(self)
        guarantee = values.pop("guarantee")
        return {**values, "ratio": self.ratio, "guarantee": guarantee}


@dataclass(frozen=True, slots=True)
class Scale:
    """How much a benchmark does.

    log_bytes: what one run of a log benchmark moves; peer_bytes: the same for a peer. flow_records: a dataflow's run.
    tail_records: end to end, one by one. memory_bytes: the log over which memory is watched. logs_records: over many
    logs in all. segments: of a log that has many. state_bytes: what a dataflow keeps. peer_runs_max: peers take longer
    to start and to stop than we do.
    """

    log_bytes: int
    peer_bytes: int
    single_records: int
    flow_records: int
    tail_records: int
    memory_bytes: int
    logs_records: int
    segments: int
    state_bytes: int
    runs: int
    peer_runs_max: int = 3

    @property
    def peer_runs(self) -> int:
        """Runs of what has peers."""
        return min(self.runs, self.peer_runs_max)

    def with_runs(self, runs: int | None) -> Scale:
        """The same with another number of runs; None leaves it."""
        return self if runs is None else replace(self, runs=runs)


_FULL = Scale(
    log_bytes=512 * 1024 * 1024,
    peer_bytes=128 * 1024 * 1024,
    single_records=200_000,
    flow_records=600_000,
    tail_records=3_000,
    memory_bytes=10 * _GIB,
    logs_records=200_000,
    segments=10_000,
    state_bytes=_GIB,
    runs=5,
)
SCALES = {
    "full": _FULL,
    "quick": replace(_FULL, memory_bytes=_GIB, state_bytes=10 * 1024 * 1024, runs=3, peer_runs_max=1),
    "small": Scale(
        log_bytes=4 * 1024 * 1024,
        peer_bytes=1024 * 1024,
        single_records=1_000,
        flow_records=4_000,
        tail_records=400,
        memory_bytes=16 * 1024 * 1024,
        logs_records=4_000,
        segments=500,
        state_bytes=256 * 1024,
        runs=2,
        peer_runs_max=1,
    ),
}


def alternating(runs: int, measure: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Medians of (ours, peer) over `runs` runs that take turns, so that a noisy moment hits both."""
    pairs = [measure() for _ in range(runs)]
    return median(ours for ours, _ in pairs), median(peer for _, peer in pairs)


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of several runs, the median of each figure."""
    return {key: median(run[key] for run in runs) for key in runs[0]}


TARGETS = {
    "append-100B": 5.0, "append-1KiB": 0.8, "read-100B": 0.7, "read-1KiB": 0.7, "tail": 0.5, "memory": 1.0,
    **dict.fromkeys(("append-100B-bk", "append-1KiB-bk", "read-100B-bk", "tail-bk", "tail-bk-p99"), 1.0),
    **dict.fromkeys(("append-100B-hdfs", "append-1KiB-hdfs", "read-100B-hdfs", "tail-hdfs"), 0.8),
    "logs-10000": 1.0, "logs-10000-memory": 1.0, "proxy-single-100-core": 1.0, "proxy-single-100-p50-one-log": 1.0,
    **{f"fan-out-{readers}{way}": 1.0 for readers in (1, 10, 50) for way in ("", "-proxy")},
    "log-sql-log": 5.0, "kafka-sql-kafka": 1.2, "scaling": 1.0,
    "latency-100": 3.0, "latency-1000": 3.0, "latency-window-100": 3.0, "latency-window-1000": 3.0, "plan-10000": 1.0,
    **{f"nexmark-q{n}": 1.0 for n in (0, 1, 2, 3, 5, 7, 8, 11, 12)},
    **{f"nexmark-q{n}/memory": 0.8 for n in (0, 1, 2, 3, 5, 7, 8, 11, 12)},
    **{f"dafka-{way}-{size}B/programs": 3.0 for way in ("publish", "stored") for size in (16, 100, 1000)},
    **{f"dafka-{way}-{size}B-plain": 0.7 for way in ("publish", "stored") for size in (16, 100, 1000)},
    "bad-records": 0.33, "bad-records-function": 0.33, "state-memory": 1.0,
}  # fmt: skip
"""Benchmark -> the ratio that it is to reach, on a quiet machine."""


def missed_targets(rows: Sequence[Row]) -> list[str]:
    """A line for each row that did not reach its target."""
    return [
        f"{row.name}: {row.ratio:.2f}, the target is {TARGETS[row.name]:g}"
        for row in rows
        if row.name in TARGETS and row.ratio is not None and row.ratio < TARGETS[row.name]
    ]


def write_json(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as a JSON list."""
    path.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n", encoding="utf-8")
