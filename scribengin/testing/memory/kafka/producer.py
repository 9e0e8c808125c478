"""A producer of a `MemoryKafka`: the methods of confluent_kafka's that the engine calls, with their ways."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from scribengin.testing.memory.kafka.state import Place, ProducedRecord, failed

if TYPE_CHECKING:
    from scribengin.testing.memory.kafka.cluster import MemoryKafka

_QUEUE_MAX = 100_000
_STATE = "Local: Erroneous state"


class MemoryProducer:
    """Used by one thread at a time. What is dropped without a word leaves its transaction open, as the real one."""

    def __init__(self, cluster: MemoryKafka, conf: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._id: str | None = conf.get("transactional.id")
        self._timeout_s = float(conf.get("transaction.timeout.ms", 60_000)) / 1000
        self._told = conf.get("on_delivery")
        self._queue_max = int(conf.get("queue.buffering.max.messages", _QUEUE_MAX))
        self._queue: deque[tuple[Place, int, ProducedRecord]] = deque()
        """Where each goes, and which of this producer's records it is."""
        self._epoch = 0
        idempotent = self._id is not None or bool(conf.get("enable.idempotence", False))
        self._number = cluster.next_producer() if idempotent else None
        self._taken = 0
        self._state = "new" if self._id is not None else "plain"
        self._fatal: KafkaException | None = None
        self._untold: KafkaException | None = None
        """What `poll` and `flush` raise, once: the real client calls back, and so ends the call that serves it."""
        self._failed: KafkaException | None = None
        """Why the transaction can only be aborted."""
        self._wrote = False
        """Whether the brokers were asked for anything of the transaction, and so may have it open."""
        self._began = 0

    def __len__(self) -> int:
        return len(self._queue)

    def init_transactions(self, timeout: float = -1) -> None:
        """Fence older producers of the id."""
        self._expect("new", "ready")
        self._epoch = self._ask("init_transactions", timeout, lambda: self._cluster.init(self._name, self._timeout_s))
        self._state = "ready"

    def begin_transaction(self) -> None:
        """Asks nobody."""
        self._expect("ready")
        self._state = "open"
        self._began += 1
        self._wrote = False
        self._failed = None

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = -1,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Take a record. Raises BufferError, KafkaException."""
        self._expect("open", "plain")
        if len(self._queue) >= self._queue_max:
            raise BufferError("Local: Queue full")
        pairs = list(headers.items() if isinstance(headers, dict) else headers or ())
        record = ProducedRecord(_bytes(key), _bytes(value), pairs, timestamp)
        place = (topic, self._partition(topic, record.key) if partition < 0 else partition)
        self._queue.append((place, self._taken, record))
        self._taken += 1
        if not self._cluster.holds(topic):
            self._send(0.0)

    def poll(self, timeout: float = -1) -> int:
        """Send what waits. How many are left does not matter to anybody. Raises KafkaException, what ends it."""
        sent = self._send(0.0 if timeout < 0 else timeout)
        self._tell()
        return sent

    def flush(self, timeout: float = -1) -> int:
        """Send what waits: how many records are left after the timeout. Raises KafkaException, what ends it."""
        self._send(timeout)
        self._tell()
        return len(self._queue)

    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Let the transaction move a group's offsets."""
        self._expect("open")
        self._refuse_failed()
        offsets = {(p.topic, p.partition): (p.offset, p.metadata or "") for p in positions}
        group = group_metadata.group
        self._wrote = True
        self._ask("send_offsets", timeout, lambda: self._cluster.add_offsets(self._name, self._epoch, group, offsets))

    def commit_transaction(self, timeout: float = -1) -> None:
        """Flush, and decide."""
        self._expect("open")
        self._refuse_failed()
        if self.flush(timeout):
            raise failed(KafkaError._TIMED_OUT, "Local: Timed out")
        self._refuse_failed()
        if self._wrote:
            self._decide("commit", timeout)
        self._state = "ready"

    def abort_transaction(self, timeout: float = -1) -> None:
        """Drop what waits, and decide."""
        self._expect("open")
        self._queue.clear()
        if self._wrote:
            self._decide("abort", timeout)
        self._state = "ready"

    @property
    def _name(self) -> str:
        assert self._id is not None
        return self._id

    def _send(self, timeout_s: float) -> int:
        sent = 0
        while self._queue and self._fatal is None:
            first = self._first()
            place, number, record = self._queue[first]
            written_as = (self._number, number)
            self._wrote = True
            try:
                self._cluster.asked(
                    lambda: self._cluster.write(place, record, written_as, self._id, self._epoch),  # noqa: B023
                    timeout_s,
                    act="produce",
                    name=self._id or place[0],
                )
            except KafkaException as error:
                if error.args[0].code() == KafkaError._TIMED_OUT:
                    return sent
                self._note_fatal(error)
                self._failed = self._failed or error
                self._deliver(error.args[0], *place)
            del self._queue[first]
            sent += 1
        return sent

    def _first(self) -> int:
        """Which of what waits is sent next: the first whose partition has a leader. Each has its own order."""
        led = (number for number, (place, _, _) in enumerate(self._queue) if self._cluster.leads(place))
        return next(led, 0)

    def _decide(self, outcome: Literal["commit", "abort"], timeout_s: float) -> None:
        self._ask(outcome, timeout_s, lambda: self._cluster.decide(self._name, self._epoch, self._began, outcome))

    def _note_fatal(self, error: KafkaException) -> None:
        if error.args[0].fatal() and self._fatal is None:
            self._fatal = self._untold = error

    def _tell(self) -> None:
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    def _deliver(self, error: KafkaError, topic: str, partition: int) -> None:
        if self._told is not None:
            self._told(error, Message(topic=topic, partition=partition, error=error))

    def _partition(self, topic: str, key: bytes | None) -> int:
        found = self._cluster.topics.get(topic)
        count = len(found.partitions) if found is not None else 1
        return random.randrange(count) if key is None else (_murmur2(key) & 0x7FFFFFFF) % count

    def _ask(self, act: str, timeout_s: float, ask: Any) -> Any:
        try:
            return self._cluster.asked(ask, timeout_s, act=act, name=self._name)
        except KafkaException as error:
            self._note_fatal(error)
            raise

    def _expect(self, *states: str) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._state not in states:
            raise failed(KafkaError._STATE, _STATE)

    def _refuse_failed(self) -> None:
        if self._failed is not None:
            raise self._failed


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else None if value is None else bytes(value)


def _murmur2(data: bytes) -> int:
    """As Java's client hashes keys."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
