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
PEER_OF_BOOKIES = "distributedlog"
_NUMBERS = count()
_HDFS = "HDFS's own client"


@dataclass(frozen=True, slots=True)
class _Sides:
    """One benchmark on one store. `peer` is DistributedLog; None: it is not wanted, or the store is HDFS."""

    bench: PeerBench
    name: str
    place: StorePlace
    peer: Peer | None

    def new_log(self) -> str:
        return f"bench/{next(_NUMBERS)}"

    def row(self, unit: str, ours: float, peer: float | None, peer_name: str, guarantee: str, end: str = "") -> Row:
        return Row(f"{self.name}{end}", unit, ours, peer, peer_name, f"{self.place.guarantee}; {guarantee}")

    def runs(self, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Medians of several runs, each with the disk at rest before it."""
        found = []
        for _ in range(self.bench.log.scale.peer_runs):
            settle_disk()
            found.append(measure())
        return medians(found)

    def peer_title(self) -> str:
        return "none was asked for" if self.peer is None else self.peer.title


def on_store(bench: PeerBench, places: StorePlaces, name: str) -> list[Row]:
    """The rows of a benchmark on a store; one that says why, where there is no such store. Raises ServerError."""
    kind, store = ON_STORES[name]
    place = places.get(store)
    if place is None:
        why = places.missing[store]
        return [Row(name, "-", 0.0, None, f"not measured, as there is no such store here: {why}", "none")]
    peer = bench.peers.get(PEER_OF_BOOKIES) if store == "bk" and PEER_OF_BOOKIES in bench.wanted else None
    sides = _Sides(bench, name, place, peer)
    what, _, record = kind.partition("-")
    if what == "tail":
        return _tail(sides)
    return [_append(sides, _RECORD_BYTES[record]) if what == "append" else _read(sides, _RECORD_BYTES[record])]


def _append(sides: _Sides, record_bytes: int) -> Row:
    records = sides.bench.log.scale.peer_bytes // record_bytes
    how = {"record_bytes": record_bytes, "records": records}

    def measure() -> dict[str, float]:
        log = sides.new_log()
        found = {"ours": run_job(sides.place.job("append", log, **how))["records_per_s"]}
        if sides.place.hdfs is not None:
            found["peer"] = records / run_job(sides.place.of_hdfs("append"))["seconds"]
        elif sides.peer is not None:
            settle_disk()
            found["peer"] = sides.peer.append_rate(record_bytes, records)
        run_job(sides.place.job("delete", log))
        return found

    found = sides.runs(measure)
    title = f"{_HDFS}: the same bytes in the same writes, each with its hsync" if sides.place.hdfs else None
    guarantee = "two checksums an entry; one writer, batches of 1 MiB"
    return sides.row("records/s", found["ours"], found.get("peer"), title or sides.peer_title(), guarantee)


def _read(sides: _Sides, record_bytes: int) -> Row:
    records = sides.bench.log.scale.peer_bytes // record_bytes
    log = sides.new_log()
    run_job(sides.place.job("append", log, record_bytes=record_bytes, records=records))
    theirs = None if sides.peer is None else sides.peer.fill(record_bytes, records)

    def measure() -> dict[str, float]:
        found = {"ours": run_job(sides.place.job("read", log, records=records))["records_per_s"]}
        if sides.place.hdfs is not None:
            found["peer"] = records / run_job(sides.place.of_hdfs("read"))["seconds"]
        elif sides.peer is not None and theirs is not None:
            found["peer"] = sides.peer.read_rate(theirs, records)
        return found

    found = sides.runs(measure)
    run_job(sides.place.job("delete", log))
    title = f"{_HDFS}: the same files, and their CRC-32C" if sides.place.hdfs else None
    guarantee = "every record in order, as Arrow; both checksums of each entry hold; the second time that it is read"
    return sides.row("records/s", found["ours"], found.get("peer"), title or sides.peer_title(), guarantee)


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
        settle_disk()
        if sides.place.hdfs is not None:
            found |= _named("peer", run_job(sides.place.of_hdfs("sync", **how)))
        elif sides.peer is not None:
            writes, reads = sides.peer.tail_jobs()
            found |= _named("peer", run_pair({**reads, **how}, {**writes, **how}))
        return found

    found = sides.runs(measure)
    title = f"{_HDFS}: one record written and its hsync, at the same rate, and no reader" if sides.place.hdfs else None
    guarantee = f"{TAIL_PER_S}/s of 1 KiB; nothing is shown to a reader before it is durable; two processes"
    return [
        sides.row("ms", found[f"ours {key}"], found.get(f"peer {key}"), title or sides.peer_title(), guarantee, end)
        for end, key in (("", "p50_ms"), ("-p99", "p99_ms"))
    ]


def _named(side: str, found: Mapping[str, float]) -> dict[str, float]:
    return {f"{side} {key}": value for key, value in found.items()}
