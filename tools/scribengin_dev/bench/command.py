"""`python -m scribengin_dev.bench [NAME ...] [--json FILE]`: measure, and print a table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.errors import ArtifactUnavailable, ConfigInvalid
from scribengin_dev.bench.beside import APPENDS, DAFKA, PEERS_OF, READS, PeerBench, appends, reads, tail
from scribengin_dev.bench.costs import SEGMENTS, many_logs, memory, segments
from scribengin_dev.bench.dafka import DafkaBench
from scribengin_dev.bench.dataflows.bad_records import BAD_RECORDS
from scribengin_dev.bench.dataflows.flow import FLOW_BENCHMARKS, FlowBench
from scribengin_dev.bench.dataflows.latency import LATENCIES, latency
from scribengin_dev.bench.dataflows.nexmark import NEXMARK, NexmarkBench
from scribengin_dev.bench.dataflows.planning import PLANS, plan
from scribengin_dev.bench.dataflows.recovery import RECOVERIES, recovery
from scribengin_dev.bench.dataflows.scaling import SCALING, scaling
from scribengin_dev.bench.dataflows.state_memory import STATE_MEMORY, state_memory
from scribengin_dev.bench.dataflows.state_restore import STATE_RESTORE, state_restore
from scribengin_dev.bench.dataflows.state_tasks import STATE_TASKS, state_tasks
from scribengin_dev.bench.logs import LOG_BENCHMARKS, LogBench
from scribengin_dev.bench.peers.peers import Peers
from scribengin_dev.bench.remote.fan_out import FAN_OUTS, PEER_OF_READERS, fan_out
from scribengin_dev.bench.remote.places import StorePlaces
from scribengin_dev.bench.remote.proxies import PROXIES, through_a_proxy
from scribengin_dev.bench.remote.stores import ON_STORES, PEERS_OF_BOOKIES, on_store
from scribengin_dev.bench.report import conditions, print_results
from scribengin_dev.bench.rows import SCALES, Row, Scale, missed_targets, write_json
from scribengin_dev.harness.ending import ending_cleanly
from scribengin_dev.harness.installation import NAMESPACE, embedded_place
from scribengin_tools.logs.benchmark import fsync_p50_ms

_MANY = {f"logs-{count}": count for count in (1, 100, 1_000, 10_000)}
_WITH_PEERS: dict[str, Callable[[PeerBench, str], list[Row]]] = {
    **dict.fromkeys(APPENDS, appends),
    **dict.fromkeys(READS, reads),
    "tail": tail,
}
_PEERS_OF: Mapping[str, Sequence[str]] = {
    **PEERS_OF,
    **dict.fromkeys(FAN_OUTS, (PEER_OF_READERS,)),
    **{name: PEERS_OF_BOOKIES for name, (_kind, store) in ON_STORES.items() if store == "bk"},
}
NAMES = tuple(
    dict.fromkeys(
        (
            *LOG_BENCHMARKS,
            *_WITH_PEERS,
            "memory",
            SEGMENTS,
            DAFKA,
            *_MANY,
            *PROXIES,
            *FAN_OUTS,
            *ON_STORES,
            *FLOW_BENCHMARKS,
            *LATENCIES,
            *NEXMARK,
            STATE_TASKS,
            *BAD_RECORDS,
            *PLANS,
            SCALING,
            *RECOVERIES,
            STATE_RESTORE,
            STATE_MEMORY,
        )
    )
)


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"Which: {', '.join(NAMES)}; one peer of it: append-100B/kafka. Default: all."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows there, as a JSON list.")] = None,
    scale: Annotated[
        str, typer.Option(help="full, quick: less of it, or small: only to see that the benchmarks run.")
    ] = "full",
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of each; the median counts.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where to write; its disk is what is measured. Default: here.")
    ] = None,
    with_peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Start and measure other systems, too.")
    ] = True,
    quick: Annotated[bool, typer.Option("--quick", help="The same as --scale quick.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 when a row missed its target.")] = False,
) -> None:
    """Measure the log store and a dataflow on this machine, each beside a peer or a limit measured in the same run."""
    console = Console()
    with ending_cleanly("bench"):
        chosen = _chosen(names or list(NAMES), with_peers)
        stores = {store for name, (_kind, store) in ON_STORES.items() if names and name in chosen.benchmarks}
        how = _scale("quick" if quick else scale, runs)
        with _directory(directory or Path.cwd()) as base:
            rows, missing = _measure(console, base, chosen, how)
        print_results(console, rows)
        if json_file is not None:
            write_json(rows, json_file)
        missed = missed_targets(rows)
        for line in missed:
            console.print(f"missed: {line}", highlight=False)
        for peer in sorted(missing & (chosen.by_name | stores)):
            raise ArtifactUnavailable(f"{peer} was asked for by name and could not be measured; its rows say why")
        if check and missed:
            raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What to run: benchmarks, the peers of each run, and those that were asked for by their names."""

    benchmarks: Mapping[str, frozenset[str]]
    by_name: frozenset[str]


@contextmanager
def _directory(parent: Path) -> Iterator[Path]:
    try:
        place = tempfile.TemporaryDirectory(prefix="scribengin-bench-", dir=parent)
    except OSError as error:
        raise ConfigInvalid(f"cannot make a directory for the benchmarks: {error}; name a place with --dir") from None
    with place as name:
        yield Path(name).absolute()


def _chosen(names: list[str], with_peers: bool) -> Chosen:
    chosen: dict[str, frozenset[str]] = {}
    by_name: set[str] = set()
    for name in names:
        benchmark, slash, peer = name.partition("/")
        there_are = frozenset(_PEERS_OF.get(benchmark, ()))
        if benchmark not in NAMES:
            raise ConfigInvalid(f"there is no benchmark '{name}': choose from {', '.join(NAMES)}")
        if slash and peer not in there_are:
            raise ConfigInvalid(
                f"{benchmark} has no peer '{peer}': choose from {', '.join(sorted(there_are)) or 'none'}"
            )
        if slash:
            by_name.add(peer)
        wanted = frozenset({peer}) if slash else there_are if with_peers else frozenset()
        chosen[benchmark] = chosen.get(benchmark, frozenset()) | wanted
    return Chosen(chosen, frozenset(by_name))


def _scale(name: str, runs: int | None) -> Scale:
    if name not in SCALES:
        raise ConfigInvalid(f"there is no scale '{name}': choose from {', '.join(SCALES)}")
    return SCALES[name].with_runs(runs)


def _measure(console: Console, base: Path, chosen: Chosen, scale: Scale) -> tuple[list[Row], frozenset[str]]:
    """The rows, and the peers and stores that could not be had."""
    rows: list[Row] = []
    with ExitStack() as stack:
        place = stack.enter_context(embedded_place(base))
        peers = stack.enter_context(Peers(base, place.registry.hosts))
        places = stack.enter_context(StorePlaces(base, place.registry.hosts, peers))
        what = conditions(Path(place.store), fsync_p50_ms(Path(place.store), SYSTEM_CLOCK), scale)
        console.print(what, highlight=False)
        log = LogBench(place.namespace, place.registry, Path(place.store), scale, SYSTEM_CLOCK)
        flows = FlowBench(place, scale, SYSTEM_CLOCK, peers, base)
        nexmark = NexmarkBench(flows)
        uri = f"distributedlog-file://{place.registry.hosts}{NAMESPACE}"
        for name, wanted in chosen.benchmarks.items():
            console.print(f"{name} ...", style="dim")
            if name in FLOW_BENCHMARKS:
                rows.append(FLOW_BENCHMARKS[name](flows.with_peers(wanted)))
            elif name in LATENCIES:
                rows += latency(flows.with_peers(wanted), name)
            elif name in NEXMARK:
                flows.with_peers(wanted)
                rows += nexmark.rows(NEXMARK[name])
            elif name == STATE_TASKS:
                rows.append(state_tasks(flows))
            elif name in BAD_RECORDS:
                rows.append(BAD_RECORDS[name](flows))
            elif name in PLANS:
                rows += plan(base, name, SYSTEM_CLOCK)
            elif name == SCALING:
                rows.append(scaling(base, scale, SYSTEM_CLOCK))
            elif name in RECOVERIES:
                rows += recovery(base, name, scale, SYSTEM_CLOCK)
            elif name == STATE_RESTORE:
                rows.append(state_restore(flows))
            elif name == STATE_MEMORY:
                rows.append(state_memory(flows))
            elif name in ON_STORES:
                rows += on_store(PeerBench(log, uri, peers, wanted), places, name)
            else:
                rows += _of_the_log(name, PeerBench(log, uri, peers, wanted))
        return rows, frozenset(peers.missing) | frozenset(places.missing)


def _of_the_log(name: str, bench: PeerBench) -> list[Row]:
    if name in _WITH_PEERS:
        return _WITH_PEERS[name](bench, name)
    if name == DAFKA:
        return DafkaBench(bench).rows()
    if name == "memory":
        return memory(bench.log, bench.namespace)
    if name == SEGMENTS:
        return [segments(bench.log)]
    if name in PROXIES:
        return through_a_proxy(bench.log, bench.namespace, name)
    if name in FAN_OUTS:
        return fan_out(bench, name)
    if name in _MANY:
        return many_logs(bench.log, bench.namespace, _MANY[name])
    return [LOG_BENCHMARKS[name](bench.log)]


def main() -> None:
    """The program."""
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(bench)
    app()
