"""Appending, reading and tailing where a log has three copies: on bookies beside DistributedLog on the same ones, on
HDFS beside HDFS itself. All sides take turns in every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from scribengin_dev.bench.beside import TAIL_PER_S, TAIL_RECORD_BYTES, PeerBench
from scribengin_dev.bench.clients.jobs import run_job, run_pair
from scribengin_dev.bench.peers.peers import Peer
from scribengin_dev.bench.remote.places import STORES, StorePlace, StorePlaces
from scribengin_dev.bench.rows import Row, medians
from scribengin_tools.logs.benchmark import settle_disk

_RECORD_BYTES = {"100B": 100, "1KiB": 1024}
_KINDS = ("append-100B", "append-1KiB", "read-100B", "tail")
ON_STORES: Mapping[str, tuple[str, str]] = {f"{kind}-{store}": (kind, store) for store in STORES for kind in _KINDS}
"""Benchmark -> what it does, and where."""
PEERS_OF_BOOKIES = ("distributedlog", "kafka-brokers")
"""The first one is on the same bookies."""
_NUMBERS = count()
_HDFS = "HDFS's own client"
_HDFS_DOES = {
    "append": f"{_HDFS}: the same bytes in the same writes, each with its hsync",
    "read": f"{_HDFS}: the same files, and their CRC-32C",
    "tail": f"{_HDFS}: one record written and its hsync, at the same rate, and no reader",
}


@dataclass(frozen=True, slots=True)
class _Sides:
    """One benchmark on one store, and the peers that are wanted and run: none on HDFS."""

    bench: PeerBench
    name: str
    place: StorePlace
    peers: Mapping[str, Peer]

    def new_log(self) -> str:
        return f"bench/{next(_NUMBERS)}"

    def rows(self, unit: str, found: Mapping[str, float], key: str, guarantee: str, end: str = "") -> list[Row]:
        """Ours beside HDFS, or beside what shares its bookies; then beside each other peer."""
        name, ours, promised = f"{self.name}{end}", found[f"ours {key}"], f"{self.place.guarantee}; {guarantee}"
        if self.place.hdfs is not None:
            does = _HDFS_DOES[self.name.partition("-")[0]]
            return [Row(name, unit, ours, found[f"{_HDFS} {key}"], does, promised)]
        first, *others = PEERS_OF_BOOKIES
        beside = {name: first, **{f"{name}/{other}": other for other in others if other in self.peers}}
        return [
            Row(row, unit, ours, found.get(f"{peer} {key}"), self.title(peer), promised) for row, peer in beside.items()
        ]

    def title(self, peer: str) -> str:
        return self.peers[peer].title if peer in self.peers else "none was asked for"

    def runs(self, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Medians of several runs, each with the disk at rest before it."""
        found = []
        for _ in range(self.bench.log.scale.peer_runs):
            settle_disk()
            found.append(measure())
        return medians(found)


def on_store(bench: PeerBench, places: StorePlaces, name: str) -> list[Row]:
    """The rows of a benchmark on a store; one that says why, where there is no such store. Raises ServerError."""
    kind, store = ON_STORES[name]
    place = places.get(store)
    if place is None:
        why = places.missing[store]
        return [Row(name, "-", 0.0, None, f"not measured, as there is no such store here: {why}", "none")]
    wanted = [peer for peer in PEERS_OF_BOOKIES if store == "bk" and peer in bench.wanted]
    running = {peer: found for peer in wanted if (found := bench.peers.get(peer)) is not None}
    sides = _Sides(bench, name, place, running)
    what, _, record = kind.partition("-")
    if what == "tail":
        return _tail(sides)
    return _append(sides, _RECORD_BYTES[record]) if what == "append" else _read(sides, _RECORD_BYTES[record])


def _append(sides: _Sides, record_bytes: int) -> list[Row]:
    records = sides.bench.log.scale.peer_bytes // record_bytes
    how = {"record_bytes": record_bytes, "records": records}

    def measure() -> dict[str, float]:
        log = sides.new_log()
        found = {"ours rate": run_job(sides.place.job("append", log, **how))["records_per_s"]}
        if sides.place.hdfs is not None:
            found[f"{_HDFS} rate"] = records / run_job(sides.place.of_hdfs("append"))["seconds"]
        for name, peer in sides.peers.items():
            settle_disk()
            found[f"{name} rate"] = peer.append_rate(record_bytes, records)
        run_job(sides.place.job("delete", log))
        return found

    guarantee = "two checksums an entry; one writer, batches of 1 MiB"
    return sides.rows("records/s", sides.runs(measure), "rate", guarantee)


def _read(sides: _Sides, record_bytes: int) -> list[Row]:
    records = sides.bench.log.scale.peer_bytes // record_bytes
    log = sides.new_log()
    run_job(sides.place.job("append", log, record_bytes=record_bytes, records=records))
    theirs = {name: peer.fill(record_bytes, records) for name, peer in sides.peers.items()}

    def measure() -> dict[str, float]:
        found = {"ours rate": run_job(sides.place.job("read", log, records=records))["records_per_s"]}
        if sides.place.hdfs is not None:
            found[f"{_HDFS} rate"] = records / run_job(sides.place.of_hdfs("read"))["seconds"]
        for name, peer in sides.peers.items():
            found[f"{name} rate"] = peer.read_rate(theirs[name], records)
        return found

    found = sides.runs(measure)
    run_job(sides.place.job("delete", log))
    guarantee = "every record in order, as Arrow; both checksums of each entry hold; the second time that it is read"
    return sides.rows("records/s", found, "rate", guarantee)


def _tail(sides: _Sides) -> list[Row]:
    how = {
        "records": sides.bench.log.scale.tail_records,
        "per_s": TAIL_PER_S,
        "record_bytes": TAIL_RECORD_BYTES,
    }

    def measure() -> dict[str, float]:
        log = sides.new_log()
        # The peers' readers have connected before the records come. So has ours, with what it reads a segment with that
        # is still written: on HDFS that is a JVM, and a completed one is read without.
        run_job(sides.place.job("create", log, unfinished=sides.place.hdfs is not None))
        reader = sides.place.job("tail-read", log, before=1, **how)
        found = _named("ours", run_pair(reader, sides.place.job("tail-write", log, **how)))
        run_job(sides.place.job("delete", log))
        if sides.place.hdfs is not None:
            settle_disk()
            found |= _named(_HDFS, run_job(sides.place.of_hdfs("sync", **how)))
        for name, peer in sides.peers.items():
            settle_disk()
            writes, reads = peer.tail_jobs()
            found |= _named(name, run_pair({**reads, **how}, {**writes, **how}))
        return found

    found = sides.runs(measure)
    guarantee = f"{TAIL_PER_S}/s of 1 KiB; nothing is shown to a reader before it is durable; two processes"
    ends = {"": "p50_ms", "-p99": "p99_ms"}
    return [row for end, key in ends.items() for row in sides.rows("ms", found, key, guarantee, end)]


def _named(side: str, found: Mapping[str, float]) -> dict[str, float]:
    return {f"{side} {key}": value for key, value in found.items()}
