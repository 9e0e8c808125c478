"""The log store beside its peers: appending, reading, tailing. All sides take turns in every run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from scribengin_dev.bench.clients.jobs import Job, run_pair
from scribengin_dev.bench.dataflows.flow import FLINK, FLOW_BENCHMARKS, PEER
from scribengin_dev.bench.dataflows.latency import LATENCIES
from scribengin_dev.bench.dataflows.nexmark import NEXMARK
from scribengin_dev.bench.logs import LOG_BENCHMARKS, LogBench
from scribengin_dev.bench.peers.peers import Peer, Peers
from scribengin_dev.bench.rows import Row
from scribengin_tools.logs.benchmark import fsync_p50_ms, settle_disk

TAIL_PER_S = 500
TAIL_RECORD_BYTES = 1024

APPENDS: Mapping[str, int] = {"append-100B": 100, "append-1KiB": 1024}
"""Benchmark -> bytes of a record."""
READS: Mapping[str, int] = {"read-100B": 100, "read-1KiB": 1024}
DAFKA = "dafka"
PEERS_OF: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(APPENDS, ("kafka", "kafka-flush", "distributedlog")),
    **dict.fromkeys(READS, ("kafka", "distributedlog")),
    "tail": ("kafka", "kafka-flush"),
    DAFKA: ("kafka", "kafka-flush"),
    **dict.fromkeys((*FLOW_BENCHMARKS, *LATENCIES), (PEER,)),
    **dict.fromkeys(NEXMARK, (PEER, FLINK)),
}
"""Benchmark -> the peers that it has, in the order of its rows."""


@dataclass(frozen=True, slots=True)
class PeerBench:
    """Where benchmarks with peers run, and which are wanted. `namespace` is the URI for processes of their own."""

    log: LogBench
    namespace: str
    peers: Peers
    wanted: frozenset[str]

    def of(self, name: str) -> dict[str, Peer | None]:
        """The peers of a benchmark that are wanted, running; None for one that cannot be had."""
        return {peer: self.peers.get(peer) for peer in PEERS_OF[name] if peer in self.wanted}

    def title(self, name: str, peer: Peer | None) -> str:
        """What a peer is, or why there is none."""
        return f"{name}: {self.peers.missing[name]}" if peer is None else peer.title


def appends(bench: PeerBench, name: str) -> list[Row]:
    """Ours and its limit as `logs` has them, then a row for each peer."""
    record_bytes = APPENDS[name]
    records = bench.log.scale.peer_bytes // record_bytes
    peers = bench.of(name)
    ours: list[Row] = []
    rates: dict[str, list[float]] = defaultdict(list)
    for _ in range(bench.log.scale.peer_runs):
        settle_disk()
        ours.append(_ours_once(bench, name))
        for title, peer in _running(peers):
            settle_disk()
            rates[title].append(peer.append_rate(record_bytes, records))
    return _rows(bench, name, ours, peers, rates)


def reads(bench: PeerBench, name: str) -> list[Row]:
    """The same for reading what was written before; every reader finds it in the page cache."""
    record_bytes = READS[name]
    records = bench.log.scale.peer_bytes // record_bytes
    peers = bench.of(name)
    logs = {title: peer.fill(record_bytes, records) for title, peer in _running(peers)}
    ours: list[Row] = []
    rates: dict[str, list[float]] = defaultdict(list)
    for _ in range(bench.log.scale.peer_runs):
        ours.append(_ours_once(bench, name))
        for title, peer in _running(peers):
            rates[title].append(peer.read_rate(logs[title], records))
    return _rows(bench, name, ours, peers, rates)


def tail(bench: PeerBench, name: str) -> list[Row]:
    """1 KiB records at 500/s from a writer in one process to a reader in another; the limit is one fsync."""
    peers = bench.of(name)
    ours: list[dict[str, float]] = []
    ways: dict[str, list[dict[str, float]]] = defaultdict(list)
    syncs_ms: list[float] = []
    for _ in range(bench.log.scale.peer_runs):
        settle_disk()
        syncs_ms.append(fsync_p50_ms(bench.log.directory, bench.log.clock))
        with bench.log.new_log() as log:
            job: Job = {"system": "log", "namespace": bench.namespace, "log": log}
            ours.append(_way(bench, {**job, "job": "tail-write"}, {**job, "job": "tail-read"}))
        for title, peer in _running(peers):
            settle_disk()
            ways[title].append(_way(bench, *peer.tail_jobs()))
    guarantee = f"{TAIL_PER_S}/s of 1 KiB; one copy, fsync before every ack and before a reader sees it; two processes"
    rows = []
    for row, key in ((name, "p50_ms"), (f"{name}-p99", "p99_ms")):
        value = median(way[key] for way in ours)
        rows.append(Row(row, "ms", value, median(syncs_ms), "the disk: one fsync of 4 KiB, p50", guarantee))
        theirs = {title: median(way[key] for way in ways[title]) for title in ways}
        rows += _beside(bench, rows[-1], peers, theirs)
    return rows


def _way(bench: PeerBench, writer: Job, reader: Job) -> dict[str, float]:
    how: Job = {"records": bench.log.scale.tail_records, "per_s": TAIL_PER_S, "record_bytes": TAIL_RECORD_BYTES}
    return run_pair({**reader, **how}, {**writer, **how})


def _ours_once(bench: PeerBench, name: str) -> Row:
    return LOG_BENCHMARKS[name](replace(bench.log, scale=bench.log.scale.with_runs(1)))


def _rows(
    bench: PeerBench,
    name: str,
    ours: Sequence[Row],
    peers: Mapping[str, Peer | None],
    rates: Mapping[str, Sequence[float]],
) -> list[Row]:
    """Ours beside its limit, or beside the better peer where there is no limit; then beside each peer."""
    medians = {title: median(rates[title]) for title in rates}
    limits = [row.peer for row in ours if row.peer is not None]
    first = replace(ours[0], ours=median(row.ours for row in ours), peer=median(limits) if limits else None)
    if not limits and medians:
        best = max(medians, key=lambda title: medians[title])
        first = replace(first, peer=medians[best], peer_name=f"the fastest: {bench.title(best, peers[best])}")
    return [first, *_beside(bench, first, peers, medians)]


def _beside(bench: PeerBench, first: Row, peers: Mapping[str, Peer | None], theirs: Mapping[str, float]) -> list[Row]:
    return [
        replace(first, name=f"{first.name}/{title}", peer=theirs.get(title), peer_name=bench.title(title, peer))
        for title, peer in peers.items()
    ]


def _running(peers: Mapping[str, Peer | None]) -> list[tuple[str, Peer]]:
    return [(title, peer) for title, peer in peers.items() if peer is not None]
