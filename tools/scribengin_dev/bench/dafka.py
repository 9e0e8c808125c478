"""Dafka's live and stored path beside Kafka: publishing until a store has all, reading from the store, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from scribengin_dev.bench.beside import DAFKA, PeerBench
from scribengin_dev.bench.clients.jobs import Job, run_job, run_pair, started
from scribengin_dev.bench.peers.peers import Peer
from scribengin_dev.bench.rows import Row, medians
from scribengin_tools.cli.dafka.speed import tower_of_its_own

_SIZES = (16, 100, 1_000)
_LIVE_PER_S, _LIVE_BYTES = 1_000, 100
_LIVE_SECONDS_A_RUN = 6
_GUARANTEES = {
    "publish": "one producer, until a store has all: acknowledged after an fsync",
    "stored": "one consumer reads from the store; the producer has gone",
    "live": f"{_LIVE_PER_S}/s of {_LIVE_BYTES} B from a producer to a consumer, while a store takes them, too",
}
_PROGRAMS: Mapping[str, Sequence[int]] = {
    "publish": (217_000, 136_000, 44_000),
    "stored": (376_000, 358_000, 140_000),
}
"""By size, what Dafka's C programs did on a machine of this size: there they were built, and here they are not."""
_PROGRAMS_SAY = "Dafka's C programs, on another machine and day"
_PLAIN = "a frame for each record, as C programs take them"
Rates = Mapping[str, float]


@dataclass
class DafkaBench:
    """What is measured, and beside whom."""

    bench: PeerBench

    def rows(self) -> list[Row]:
        """A row for each way, size and peer; then how long a record takes, p50 and p99."""
        runs = range(self.bench.log.scale.peer_runs)
        peers = {name: peer for name, peer in self.bench.of(DAFKA).items() if peer is not None}
        rows: list[Row] = []
        with self._network() as job:
            topics = (f"bench-{n}" for n in count())
            for place, size in enumerate(_SIZES):
                ours = medians([self._ours(job, next(topics), size) for _ in runs])
                plain = medians([self._ours({**job, "batches": False}, next(topics), size) for _ in runs])
                theirs = {name: medians([self._theirs(peer, size) for _ in runs]) for name, peer in peers.items()}
                for way, programs in _PROGRAMS.items():
                    rows += self._rows(way, f"{size}B", "records/s", ours, theirs)
                    name, said = f"dafka-{way}-{size}B", _GUARANTEES[way]
                    rows.append(Row(f"{name}/programs", "records/s", ours[way], programs[place], _PROGRAMS_SAY, said))
                    said = f"{said}; {_PLAIN}"
                    rows.append(Row(f"{name}-plain", "records/s", plain[way], programs[place], _PROGRAMS_SAY, said))
            live = medians([self._live(_of(job, next(topics))) for _ in runs])
            beside = {name: medians([self._live(peer.tail_jobs()) for _ in runs]) for name, peer in peers.items()}
            for way in ("p50_ms", "p99_ms"):
                rows += self._rows(way, "", "ms", live, beside)
        return rows

    @contextmanager
    def _network(self) -> Iterator[Job]:
        """A tower here, and a store in a process of its own."""
        with tower_of_its_own() as addresses:
            network = {"beacon": {**addresses, "interval": 100}}
            job: Job = {"system": "dafka", "network": network, "namespace": self.bench.namespace}
            with started({**job, "job": "store"}) as store:
                store.await_ready()
                yield job

    def _ours(self, job: Job, topic: str, size: int) -> Rates:
        how: Job = {**job, "topic": topic, "record_bytes": size, "records": self.bench.log.scale.single_records}
        return {
            "publish": run_job({**how, "job": "publish"})["records_per_s"],
            "stored": run_job({**how, "job": "read"})["records_per_s"],
        }

    def _theirs(self, peer: Peer, size: int) -> Rates:
        records = self.bench.log.scale.single_records
        return {
            "publish": peer.append_rate(size, records),
            "stored": peer.read_rate(peer.fill(size, records), records),
        }

    def _live(self, ends: tuple[Job, Job]) -> Rates:
        writer, reader = ends
        records = min(self.bench.log.scale.tail_records, _LIVE_PER_S) * _LIVE_SECONDS_A_RUN
        how: Job = {"records": records, "per_s": _LIVE_PER_S, "record_bytes": _LIVE_BYTES}
        return run_pair({**reader, **how}, {**writer, **how})

    def _rows(self, way: str, size: str, unit: str, ours: Rates, theirs: Mapping[str, Rates]) -> list[Row]:
        """One for each peer that is wanted; without any, one alone."""
        live = unit == "ms"
        name = f"dafka-live-{way.removesuffix('_ms')}" if live else f"dafka-{way}-{size}"
        said = _GUARANTEES["live" if live else way]
        wanted = self.bench.of(DAFKA)
        if not wanted:
            return [Row(name, unit, ours[way], None, "not measured: Kafka (--peers)", said)]
        return [
            Row(f"{name}/{peer}", unit, ours[way], theirs.get(peer, {}).get(way), self.bench.title(peer, found), said)
            for peer, found in wanted.items()
        ]


def _of(job: Job, topic: str) -> tuple[Job, Job]:
    """The two ends of a topic."""
    return {**job, "topic": topic, "job": "tail-write"}, {**job, "topic": topic, "job": "tail-read"}
