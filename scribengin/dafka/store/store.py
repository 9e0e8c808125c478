"""A store as programs use it."""

from __future__ import annotations

from scribengin.base.closing import ClosedAtExit
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.state import DafkaPartition, HaltPartition, StoredRange
from scribengin.dafka.store.failures import LogFailure
from scribengin.dafka.store.logs import StoredPartitions
from scribengin.dafka.store.reader import StoreReader
from scribengin.dafka.store.writer import StoreWriter
from scribengin.log import LogConfig, LogNamespace


class DafkaStore(ClosedAtExit):
    """Stores all topics from when it is made until `close`. The namespace stays open: it is the caller's.

    Two stores have namespaces of their own, or prefixes. Logs that it makes are as `log_config` says. A store that was
    killed holds its logs until its session with the registry ends, and another tries until then; with `take_over` it
    does not, and fences whoever has them. Raises what the log store raises, if it is of no single log.
    """

    def __init__(
        self,
        namespace: LogNamespace,
        config: DafkaConfig | None = None,
        *,
        prefix: str = "dafka",
        log_config: LogConfig | None = None,
        take_over: bool = False,
    ) -> None:
        config = config or DafkaConfig()
        self._logs = StoredPartitions(namespace, prefix, log_config, take_over=take_over, batches=config.batches)
        self._writer = StoreWriter(self._logs, config)
        try:
            self._reader = StoreReader(self._logs, config)
        except BaseException:
            self._writer.close()
            raise

    @property
    def address(self) -> str:
        """The address that it acknowledges from."""
        return self._writer.address

    @property
    def stored(self) -> dict[DafkaPartition, StoredRange]:
        """What is durable of each partition."""
        with self._logs.lock:
            return dict(self._logs.state.stored)

    @property
    def halted(self) -> list[HaltPartition]:
        """Partitions that it cannot go on with: what comes next, nobody keeps any more."""
        return list(self._writer.halted)

    @property
    def stuck(self) -> dict[DafkaPartition, int]:
        """Partitions of which nobody sends the record that comes next, each with its sequence. Nothing behind it is
        stored until then: the stores that have it may be away, or lost."""
        with self._logs.lock:
            return self._logs.state.stuck()

    @property
    def failing(self) -> dict[DafkaPartition, LogFailure]:
        """Partitions whose logs cannot be written or read, and why. What is published of them is not acknowledged, and
        tried again; all others go on."""
        parts = (self._logs.unreadable, self._reader.failures, self._writer.failures)
        return {partition: error for part in parts for partition, error in part.failing.items()}

    @property
    def log_failures(self) -> int:
        """How often a log has failed."""
        return self._logs.unreadable.count + self._reader.failures.count + self._writer.failures.count

    def check(self) -> None:
        """Raises DafkaClosed if the store has ended, with why."""
        self._writer.check_open()
        self._reader.check_open()

    def close(self) -> None:
        """Leave the network, and end the logs' writers. Idempotent."""
        self._reader.close()
        self._writer.close()
