"""Many readers of one log at once: of the mapped files, through a read proxy, and as consumers of Kafka."""

from __future__ import annotations

from scribengin_dev.bench.beside import PeerBench
from scribengin_dev.bench.clients.jobs import Job, run_job, started
from scribengin_dev.bench.peers.kafka import KafkaPeer
from scribengin_dev.bench.remote.proxies import serving
from scribengin_dev.bench.rows import Row, medians
from scribengin_tools.logs.benchmark import fill

FAN_OUTS = {f"fan-out-{readers}": readers for readers in (1, 10, 50)}
PEER_OF_READERS = "kafka"
_RECORD_BYTES = 1024


def fan_out(bench: PeerBench, name: str) -> list[Row]:
    """Records a second of so many readers together, each of which reads all of the log, in one process a side."""
    readers = FAN_OUTS[name]
    records = bench.log.scale.peer_bytes // _RECORD_BYTES
    kafka = bench.peers.get(PEER_OF_READERS) if PEER_OF_READERS in bench.wanted else None
    topic = kafka.fill(_RECORD_BYTES, records) if isinstance(kafka, KafkaPeer) else ""
    with bench.log.new_log() as log, started(serving(bench.log)) as proxy:
        proxy.await_ready()
        fill(bench.log.namespace, log, _RECORD_BYTES, records)
        how: Job = {"job": "fan-out", "readers": readers, "records": records}
        ours: Job = {**how, "system": "log", "namespace": bench.namespace, "log": log}

        def measure() -> dict[str, float]:
            found = {
                "mapped": run_job({**ours, "proxied": False})["records_per_s"],
                "proxied": run_job({**ours, "proxied": True})["records_per_s"],
            }
            if isinstance(kafka, KafkaPeer):
                found["kafka"] = run_job({**kafka.job("fan-out", topic), **how})["records_per_s"]
            return found

        found = medians([measure() for _ in range(bench.log.scale.peer_runs)])
    peer = "none was asked for" if PEER_OF_READERS not in bench.wanted else bench.title(PEER_OF_READERS, kafka)
    what = (
        f"{readers} at once, a thread each, in one process; 1 KiB records, all of them to every reader, in order; all "
        "is in memory before"
    )
    checked = "as Arrow, with both checksums of each entry verified"
    ways = (
        ("", "mapped", "the log's files, mapped"),
        ("-proxy", "proxied", "one read proxy, which keeps what it read"),
    )
    return [
        Row(f"{name}{end}", "records/s", found[key], found.get("kafka"), peer, f"{what}; {how_read}; {checked}")
        for end, key, how_read in ways
    ]
