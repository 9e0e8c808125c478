"""Peers: other systems that are measured beside ours, started when a benchmark first wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol

from scribengin.errors import ServerError
from scribengin_dev.bench.clients.jobs import Job
from scribengin_dev.bench.peers.distributedlog import DistributedLogPeer
from scribengin_dev.bench.peers.kafka import KafkaBrokersPeer, KafkaPeer


class Peer(Protocol):
    """A system with a log, as a benchmark sees it. Every method may raise ServerError."""

    @property
    def title(self) -> str:
        """What it is, and what it guarantees."""
        ...

    def append_rate(self, record_bytes: int, records: int) -> float:
        """Write that many records with its own writer; records per second."""
        ...

    def fill(self, record_bytes: int, records: int) -> str:
        """A new log with that many records; its name."""
        ...

    def read_rate(self, log: str, records: int) -> float:
        """Read that log from its first record to its last with its own reader; records per second."""
        ...

    def tail_jobs(self) -> tuple[Job, Job]:
        """(writer, reader) of a new log; the caller adds how many records, of what size, how often."""
        ...


@dataclass
class Peers:
    """All peers, below one directory. `missing` says why one cannot be had."""

    folder: Path
    zookeeper: str
    missing: dict[str, str] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _found: dict[str, Peer] = field(default_factory=dict)

    def get(self, name: str) -> Peer | None:
        """The peer, running, or None when it cannot be had."""
        if name in self._found or name in self.missing:
            return self._found.get(name)
        try:
            self._found[name] = self._stack.enter_context(PEERS[name](self.folder / name, self.zookeeper))
        except ServerError as error:
            self.missing[name] = f"cannot be had: {str(error).splitlines()[0]}"
            return None
        return self._found[name]

    def __enter__(self) -> Peers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()


PEERS: Mapping[str, Callable[[Path, str], AbstractContextManager[Peer]]] = {
    "kafka": lambda folder, _zookeeper: KafkaPeer(folder, flush_each=False),
    "kafka-flush": lambda folder, _zookeeper: KafkaPeer(folder, flush_each=True),
    "kafka-brokers": lambda folder, _zookeeper: KafkaBrokersPeer(folder),
    "distributedlog": DistributedLogPeer,
}
"""Name -> how it is made, of a directory and ZooKeeper's hosts."""
