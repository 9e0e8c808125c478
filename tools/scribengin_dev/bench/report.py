"""What the benchmarks print: the conditions first, then the table."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from scribengin_dev.bench.rows import Row, Scale

_GIB = 1024**3


def conditions(store: Path, fsync_p50_ms: float, scale: Scale) -> str:
    """One paragraph: the machine, the disk, the versions. Figures without it mean nothing."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    free = os.statvfs(store)
    return (
        f"{os.cpu_count()} cores, {memory_gib:.0f} GiB of memory, load {os.getloadavg()[0]:.1f}; {platform.machine()}, "
        f"Linux {platform.release()}\n"
        f"disk of {store.parent.parent}: 4 KiB durable in {fsync_p50_ms:.2f} ms (p50), "
        f"{free.f_bavail * free.f_frsize / _GIB:.0f} GiB free\n"
        f"Python {platform.python_version()}, pyarrow {version('pyarrow')}, PySpark {version('pyspark')}; "
        f"medians of {scale.runs} runs"
    )


def print_results(console: Console, rows: Sequence[Row]) -> None:
    """A table, and under it what the figures mean."""
    table = Table(title="ours / peer, more is better", title_justify="left", box=SIMPLE)
    table.add_column("benchmark")
    for heading in ("ours", "peer", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("unit")
    for row in rows:
        peer = "-" if row.peer is None else _figure(row.peer)
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(row.name, _figure(row.ours), peer, ratio, row.unit)
    console.print(table)
    told: set[str] = set()
    for row in rows:
        texts = [text for text in (row.guarantee, f"peer: {row.peer_name}") if text not in told]
        told.update(texts)
        if texts:
            console.print(f"[bold]{row.name}[/]: {'; '.join(texts)}.", highlight=False)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
