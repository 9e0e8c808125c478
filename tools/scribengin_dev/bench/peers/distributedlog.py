"""DistributedLog as a peer: its own writer and reader on three bookies, an fsync by all three before every ack."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import TracebackType

from scribengin_dev.bench.clients.jobs import Job, run_job
from scribengin_dev.servers.bookkeeper import BookKeeperServers


class DistributedLogPeer:
    """Three bookies that run while the block is entered, and a namespace on them."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.servers = BookKeeperServers(folder, zookeeper)
        """Where logs of ours can be, too."""
        self._uri = ""
        self._logs = count()

    @property
    def title(self) -> str:
        """What it is, and what it guarantees."""
        version = next(
            jar.stem.removeprefix("distributedlog-core-")
            for jar in self.servers.jars
            if jar.name.startswith("distributedlog-core-")
        )
        return (
            f"DistributedLog {version} on three bookies of this machine, three copies, all with an fsync before the ack"
        )

    def append_rate(self, record_bytes: int, records: int) -> float:
        """By its asynchronous writer, in bulks. Raises ServerError."""
        return self._append(self._new_log(), record_bytes, records)

    def fill(self, record_bytes: int, records: int) -> str:
        """A new log with that many records; its name. Raises ServerError."""
        log = self._new_log()
        self._append(log, record_bytes, records)
        return log

    def read_rate(self, log: str, records: int) -> float:
        """By its reader, in bulks, the second time that one process reads the log. Raises ServerError."""
        return run_job({**self._job("read", log), "records": records})["records_per_s"]

    def tail_jobs(self) -> tuple[Job, Job]:
        """Its writer, which sends and shows what there is every 2 ms, and its reader."""
        log = self._new_log()
        return self._job("tail-write", log), self._job("tail-read", log)

    def __enter__(self) -> DistributedLogPeer:
        self.servers.start()
        self._uri = self.servers.distributedlog_uri("bench")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.servers.stop()

    def _append(self, log: str, record_bytes: int, records: int) -> float:
        job = {**self._job("append", log), "record_bytes": record_bytes, "records": records}
        return run_job(job)["records_per_s"]

    def _new_log(self) -> str:
        return f"bench-{next(self._logs)}"

    def _job(self, job: str, log: str) -> Job:
        return {
            "system": "distributedlog",
            "job": job,
            "uri": self._uri,
            "log": log,
            "jars": [str(jar) for jar in self.servers.jars],
            "log4j": str(self.servers.folder / "log4j2-warn.properties"),
        }
