"""`python -m scribengin_tools.bench [NAME ...] [--json FILE]`: measure, and print a table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scribengin.clock import SYSTEM_CLOCK
from scribengin.errors import ConfigInvalid
from scribengin_tools.bench.flow import FLOW_BENCHMARKS, FlowBench
from scribengin_tools.bench.limits import fsync_p50_ms
from scribengin_tools.bench.logs import LOG_BENCHMARKS, LogBench
from scribengin_tools.bench.report import conditions, print_results
from scribengin_tools.bench.rows import SCALES, Row, Scale, write_json
from scribengin_tools.demo.ending import ending_cleanly
from scribengin_tools.demo.place import Place, embedded_place

NAMES = (*LOG_BENCHMARKS, *FLOW_BENCHMARKS)


def bench(
    names: Annotated[list[str] | None, typer.Argument(help=f"Which: {', '.join(NAMES)}. Default: all.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows there, as a JSON list.")] = None,
    scale: Annotated[str, typer.Option(help="full, or small: only to see that the benchmarks run.")] = "full",
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of each; the median counts.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where to write; its disk is what is measured. Default: here.")
    ] = None,
) -> None:
    """Measure the log store and a dataflow on this machine, each beside a peer or a limit measured in the same run."""
    console = Console()
    with ending_cleanly("bench"):
        chosen = _chosen(names or list(NAMES), scale, runs)
        with _directory(directory or Path.cwd()) as base:
            rows = _measure(console, base, *chosen)
        print_results(console, rows)
        if json_file is not None:
            write_json(rows, json_file)


@contextmanager
def _directory(parent: Path) -> Iterator[Path]:
    try:
        place = tempfile.TemporaryDirectory(prefix="scribengin-bench-", dir=parent)
    except OSError as error:
        raise ConfigInvalid(f"cannot make a directory for the benchmarks: {error}; name a place with --dir") from None
    with place as name:
        yield Path(name).absolute()


def _chosen(names: list[str], scale: str, runs: int | None) -> tuple[list[str], Scale]:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ConfigInvalid(f"there is no benchmark '{unknown[0]}': choose from {', '.join(NAMES)}")
    if scale not in SCALES:
        raise ConfigInvalid(f"there is no scale '{scale}': choose from {', '.join(SCALES)}")
    return names, SCALES[scale].with_runs(runs)


def _measure(console: Console, base: Path, names: list[str], scale: Scale) -> list[Row]:
    rows = []
    with embedded_place(base) as place:
        what = conditions(place.store, fsync_p50_ms(place.store, SYSTEM_CLOCK), scale)
        console.print(what, highlight=False)
        for name in names:
            console.print(f"{name} ...", style="dim")
            rows.append(_run(name, place, scale))
    return rows


def _run(name: str, place: Place, scale: Scale) -> Row:
    if name in LOG_BENCHMARKS:
        return LOG_BENCHMARKS[name](LogBench(place.namespace, place.store, scale, SYSTEM_CLOCK))
    return FLOW_BENCHMARKS[name](FlowBench(place, scale, SYSTEM_CLOCK))


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(bench)
    app()
