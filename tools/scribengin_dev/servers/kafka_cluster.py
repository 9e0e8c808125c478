"""A Kafka cluster: brokers that hold everything three times, and can be killed. (One alone: `kafka`.)"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.threads import pause
from scribengin.errors import ServerDown
from scribengin.testing.standstill import standing_still
from scribengin_dev.servers.java_server import ports_of
from scribengin_dev.servers.kafka import KafkaServer, new_cluster_id
from scribengin_registry.java.process import LOOPBACK

COUNT = 3
TRANSACTIONS = "__transaction_state"
"""The topic whose leader is the coordinator of all transactions."""
_HEAP_MB = 192
_LOOK_S = 0.1
_LIMIT_S = 120.0
_REQUEST_S = 5.0
_SETTINGS: Mapping[str, object] = {
    "default.replication.factor": COUNT,
    "min.insync.replicas": COUNT - 1,
    "offsets.topic.replication.factor": COUNT,
    "transaction.state.log.replication.factor": COUNT,
    "transaction.state.log.min.isr": COUNT - 1,
    # Who leads is what tests choose by: it changes when a leader goes, and not because it was another's turn.
    "auto.leader.rebalance.enable": "false",
    # A broker that is gone is missed after 4 s instead of 9, and one that does not follow after 0.5 s instead of 30.
    "broker.session.timeout.ms": 4000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 500,
    "replica.fetch.wait.max.ms": 100,
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,  # 128 MiB of the heap as it comes
}


class KafkaBrokers:
    """A cluster of three brokers with its data in `folder`; each is a controller, too. `settings` override those of
    every server.properties.

    It answers as long as two of them run. Brokers have numbers, from 1 on; each takes some 200 MB of memory. Not
    thread-safe.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        settings: Mapping[str, object] | None = None,
        image: str = "",
        heap_mb: int = _HEAP_MB,
    ) -> None:
        self.folder = Path(folder).absolute()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._image = image
        self._heap_mb = heap_mb
        self._brokers: dict[int, KafkaServer] = {}
        self._client: AdminClient | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port` of every broker, as clients want it. Known once they were started."""
        assert self._brokers, "the brokers were not started yet"
        return ",".join(broker.bootstrap for broker in self._brokers.values())

    @property
    def pids(self) -> dict[int, int]:
        """The processes that run, by the broker's number."""
        return {number: broker.pid for number, broker in self._brokers.items() if broker.pid is not None}

    def start(self) -> KafkaBrokers:
        """Start those that do not run, and wait until all of them hold everything. Raises as `KafkaServer.start`."""
        if not self._brokers:
            self._brokers = self._made()
        with ExitStack() as failed:
            failed.callback(self.stop)
            with ThreadPoolExecutor(COUNT, thread_name_prefix="kafka-start") as threads:
                list(threads.map(KafkaServer.launch, self._brokers.values()))
            for broker in self._brokers.values():
                broker.await_answer()
            self.await_replicas()
            failed.pop_all()
        return self

    def stop(self) -> None:
        """Stop them; their data stays. Idempotent. They are killed: the last ones could not hand over what they lead,
        and would try for seconds."""
        self._client = None
        for broker in self._brokers.values():
            broker.kill()

    def broker(self, number: int) -> KafkaServer:
        """One of them, to be asked as if it were alone. Known once they were started."""
        return self._brokers[number]

    def kill(self, number: int) -> None:
        """Kill a broker with SIGKILL. `start` starts it again."""
        self._brokers[number].kill()

    @contextmanager
    def standing_still(self, number: int) -> Iterator[None]:
        """Let a broker stand still while the block lasts: whoever asks it waits."""
        with standing_still(self.pids[number]):
            yield

    def leader(self, topic: str, partition: int = 0) -> int:
        """The number of the broker that leads a partition. Raises ServerDown when none does."""
        leader = int(self._topics()[topic].partitions[partition].leader)
        if leader not in self._brokers:
            raise ServerDown(f"nobody leads {topic}/{partition} just now: ask again in a moment")
        return leader

    def create_topic(self, name: str, *, led_by: int) -> None:
        """Create a topic of one partition, which that broker leads until it goes, and wait until every broker knows it:
        each hears of it by itself, and clients ask any of them. Raises KafkaException, ServerDown."""
        replicas = [led_by, *(number for number in self._brokers if number != led_by)]
        (created,) = self._admin().create_topics([NewTopic(name, 1, replica_assignment=[replicas])]).values()
        created.result()
        for broker in self._brokers.values():
            self._await(partial(_is_known, name, _client_of(broker.bootstrap)))
        self.await_replicas()

    def await_replicas(self) -> None:
        """Wait until every broker holds all that there is of every partition. Raises ServerDown."""
        self._await(self._is_whole)

    def _await(self, holds: Callable[[], bool]) -> None:
        deadline_s = SYSTEM_CLOCK.monotonic_s() + _LIMIT_S
        while not holds():
            if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                raise ServerDown(f"the brokers of {self.bootstrap} did not follow each other in {_LIMIT_S:g} s")
            pause(_LOOK_S)

    def __enter__(self) -> KafkaBrokers:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _made(self) -> dict[int, KafkaServer]:
        cluster_id, numbers = new_cluster_id(), range(1, COUNT + 1)
        folders = {number: self.folder / f"broker-{number}" for number in numbers}
        # Each broker finds these ports again when it is started.
        voters = ",".join(f"{number}@{LOOPBACK}:{ports_of(folders[number], 2)[1]}" for number in numbers)
        return {
            number: KafkaServer(
                folders[number],
                settings={**self._settings, "node.id": number, "controller.quorum.voters": voters},
                image=self._image,
                heap_mb=self._heap_mb,
                cluster_id=cluster_id,
            )
            for number in numbers
        }

    def _is_whole(self) -> bool:
        try:
            found = self._admin().list_topics(timeout=_REQUEST_S)
        except KafkaException:  # nobody leads the controllers yet
            return False
        partitions = [each for topic in found.topics.values() for each in topic.partitions.values()]
        return len(found.brokers) == COUNT and all(len(each.isrs) == COUNT for each in partitions)

    def _topics(self) -> Any:
        return self._admin().list_topics(timeout=_REQUEST_S).topics

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = _client_of(self.bootstrap)
        return self._client


def _client_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _is_known(topic: str, client: AdminClient) -> bool:
    return topic in client.list_topics(timeout=_REQUEST_S).topics
