"""The brokers: one object that all clients of one cluster ask, and that a test tells what is to go wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors.kafka.client.client import made_by
from scribengin.testing.memory.kafka.brokers import Brokers, Role
from scribengin.testing.memory.kafka.state import (
    BROKER_DEFAULTS,
    GROUP,
    TOPIC_DEFAULTS,
    Concurrent,
    Header,
    Partition,
    Place,
    ProducedRecord,
    TopicLog,
    Transaction,
    TransactionalId,
    failed,
    fenced,
    role_of,
)
from scribengin.testing.memory.registry import Loss

_T = TypeVar("_T")
_EVER_S = 3e9
_TRY_S = 0.05
"""How often somebody who waits looks again, should nobody have told that something changed."""


class MemoryKafka:
    """A cluster. Thread-safe. While `serving` lasts, clients for its `bootstrap` are made of it."""

    def __init__(
        self,
        bootstrap: str = "memory:9092",
        clock: Clock = SYSTEM_CLOCK,
        *,
        patience_s: float = _EVER_S,
        brokers: int = 1,
    ) -> None:
        """`patience_s`: no client waits longer for an answer, whatever limit it was given, if any. `brokers`: how many
        there are, each of which may `fail`."""
        self.bootstrap = bootstrap
        self.clock = clock
        self.patience_s = patience_s
        self.away = False
        """Whether no broker answers. Who waits for an answer gets it when they do again, or is told when its time is
        up."""
        self.lose: Callable[[str, str], Loss | None] = lambda _act, _name: None
        """Called with every request of a producer or an offset (which, and whose): what becomes of it. The client is
        told that its time was up."""
        self.mark_after_s: Callable[[str, str], float] = lambda _transactional_id, _place: 0.0
        """How long after a decision its mark stands in a place (`topic/0`, or `group/name`)."""
        self.decided: Callable[[str, Literal["commit", "abort"]], None] = lambda _transactional_id, _outcome: None
        """Called once with every decision, under the lock: before readers see what was committed, or a client hears."""
        self.holds: Callable[[str], bool] = lambda _topic: False
        """Whether a record that was just produced waits in its client until that is flushed."""
        self.brokers = Brokers(brokers)
        self.brokers.moved = self._moved
        self.forgets: Callable[[Role], int] = lambda _place: 0
        """How many of the last offsets the new leader of a partition does not show before it has settled."""
        self.tells_short_ends = False
        """Whether such a leader says where it ends for now, as those before 2.2 do. Later ones say that they do not
        know yet (KIP-207)."""
        self.settings = dict(BROKER_DEFAULTS)
        self.changed = threading.Condition(threading.RLock())
        """Held whenever the state is read or changed."""
        self.topics: dict[str, TopicLog] = {}
        self.groups: dict[str, dict[Place, tuple[int, str]]] = {}
        self._ids: dict[str, TransactionalId] = {}
        self._producers = 0
        self._written: dict[tuple[int, Place], int] = {}
        """Of each idempotent producer, by its number, and each partition: which of its records it wrote last."""
        self._shown: dict[Role, int] = {}
        """Up to where the leader of a partition shows it that has not settled yet."""
        self._served: list[Role] = []
        """Whose leaders have to do what is asked just now."""

    @contextmanager
    def serving(self) -> Iterator[MemoryKafka]:
        """Let the engine's clients for `bootstrap` be clients of this cluster while the block lasts."""
        with made_by(self.bootstrap, self.client):
            yield self

    def client(self, kind: type, conf: Mapping[str, Any]) -> Any:
        """A client of that class of confluent_kafka's, or what does as one."""
        from scribengin.testing.memory.kafka.admin import MemoryAdmin
        from scribengin.testing.memory.kafka.consumer import MemoryConsumer
        from scribengin.testing.memory.kafka.producer import MemoryProducer

        mine = {Producer: MemoryProducer, Consumer: MemoryConsumer}
        return mine.get(kind, MemoryAdmin)(self, conf)

    # -- what a test does

    def create(self, topic: str, *, partitions: int = 1, **settings: str) -> None:
        """Create a topic. Settings by their names, `_` for `.`. Raises KafkaException."""
        told = {key.replace("_", "."): value for key, value in settings.items()}
        with self.changed:
            if topic in self.topics:
                raise failed(KafkaError.TOPIC_ALREADY_EXISTS, f"Topic '{topic}' already exists.")
            self.topics[topic] = TopicLog([Partition() for _ in range(partitions)], {**TOPIC_DEFAULTS, **told})
            self.changed.notify_all()

    def delete(self, topic: str) -> None:
        """Delete a topic, with the offsets that groups have in it."""
        with self.changed:
            del self.topics[topic]
            for offsets in self.groups.values():
                for place in [place for place in offsets if place[0] == topic]:
                    del offsets[place]
            self.changed.notify_all()

    def add_partitions(self, topic: str, total: int) -> None:
        """Let the topic have so many partitions."""
        with self.changed:
            there = self.topics[topic].partitions
            there += [Partition() for _ in range(total - len(there))]

    def send(
        self, topic: str, payloads: Iterable[bytes | None], *, partition: int = 0, key: bytes | None = None
    ) -> None:
        """Append records, outside of any transaction."""
        with self.changed:
            for value in payloads:
                self._append((topic, partition), ProducedRecord(key, value, [], 0), None)

    def send_record(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int,
        headers: Sequence[Header] = (),
    ) -> int:
        """Append one record to partition 0 and return its offset."""
        with self.changed:
            self._append((topic, 0), ProducedRecord(key, value, list(headers), timestamp_ms), None)
            return self.end(topic) - 1

    def end(self, topic: str, partition: int = 0) -> int:
        """The end of a partition, with what open transactions have written."""
        with self.changed:
            return self.topics[topic].partitions[partition].end

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Give up the first records of a partition, as retention does."""
        with self.changed:
            log = self.topics[topic].partitions[partition]
            end = log.end
            log.entries = [entry for entry in log.entries if entry.offset >= before]
            log.begin = max(log.begin, min(before, end))

    def fail(self, broker: int, *, after_next: bool = False) -> None:
        """Let one broker end: others lead what it led. `after_next`: once it has done what it is asked next, and before
        it says so."""
        with self.changed:
            if after_next:
                self.brokers.fail_after_next(broker)
            else:
                self.brokers.fail(broker, self.clock.monotonic_s())
            self.changed.notify_all()

    def come_back(self, broker: int) -> None:
        """Let one broker run again: it leads again what it led at first."""
        with self.changed:
            self.brokers.come_back(broker, self.clock.monotonic_s())
            self.changed.notify_all()

    def leads(self, place: Place) -> bool:
        """Whether a broker leads a partition just now."""
        with self.changed:
            return self.brokers.leads(role_of(place), self.clock.monotonic_s())

    def write_marks(self) -> None:
        """Write all marks of what is decided, however late they would be."""
        with self.changed:
            for transactional in self._ids.values():
                self._mark(transactional, float("inf"))

    def visible(self, topic: str, partition: int | None = None) -> list[bytes | None]:
        """The values that a reader of committed records sees now, of one partition or of all in order."""
        with self.changed:
            logs = self.topics[topic].partitions if topic in self.topics else []
            return [
                entry.record.value
                for number, log in enumerate(logs)
                if partition in (None, number)
                for entry in log.records((topic, number), 0, committed=True)
                if entry.record is not None
            ]

    # -- what clients ask

    def asked(self, ask: Callable[[], _T], timeout_s: float, *, act: str = "", name: str = "") -> _T:
        """An answer of the brokers, waited for while they are away or have marks to write. Raises KafkaException, that
        the time is up among them."""
        loss = self.lose(act, name) if act else None
        if loss == "request":
            raise _late()
        deadline_s = self.clock.monotonic_s() + (min(timeout_s, self.patience_s) if timeout_s >= 0 else _EVER_S)
        with self.changed:
            while True:
                try:
                    if self.away or not self.brokers.running:
                        raise Concurrent
                    self.tick()
                    self._served.clear()
                    answer = ask()
                    if self.brokers.answers(tuple(self._served), self.clock.monotonic_s()):
                        break
                except Concurrent:
                    left_s = deadline_s - self.clock.monotonic_s()
                    if left_s <= 0:
                        raise _late() from None
                    self.changed.wait(min(left_s, _TRY_S))
            self.changed.notify_all()
        if loss == "reply":
            raise _late()
        return answer

    def tick(self) -> None:
        """Do what time has brought: abort what was open for too long, write marks that are due."""
        now_s = self.clock.monotonic_s()
        for transactional in self._ids.values():
            held_s = now_s - transactional.since_s
            if transactional.is_undecided and held_s >= transactional.timeout_s and self._knows(transactional.role):
                transactional.epoch += 1
                self._decide(transactional, "abort", "")
            self._mark(transactional, now_s)

    def init(self, transactional_id: str, timeout_s: float) -> int:
        """Fence whoever had the id, and end what it left: the epoch of the new producer. Raises Concurrent."""
        transactional = self._ids.setdefault(transactional_id, TransactionalId(transactional_id))
        self._wait_for(transactional.role)
        if transactional.is_undecided:
            transactional.epoch += 1
            self._decide(transactional, "abort", transactional_id)
            self._mark(transactional, self.clock.monotonic_s())
        if transactional.open is not None:
            raise Concurrent
        transactional.epoch += 1
        transactional.timeout_s = timeout_s
        transactional.last = None
        return transactional.epoch

    def next_producer(self) -> int:
        """A number for a producer whose records are told apart."""
        with self.changed:
            self._producers += 1
            return self._producers

    def write(
        self,
        place: Place,
        record: ProducedRecord,
        written_as: tuple[int | None, int],
        transactional_id: str | None,
        epoch: int,
    ) -> None:
        """Append a record, in the id's transaction if there is an id; not again what an idempotent producer asks for
        again. `written_as`: its producer's number, and which of that one's it is. Raises KafkaException, Concurrent."""
        transaction = None
        if transactional_id is not None:
            self._log(place)
            transaction = self._opened(transactional_id, epoch, place)
        self._wait_for(role_of(place), only_led=True)
        producer, number = written_as
        if producer is None or self._written.get((producer, place), -1) < number:
            self._append(place, record, transaction)
        if producer is not None:
            self._written[producer, place] = number

    def add_offsets(
        self, transactional_id: str, epoch: int, group: str, offsets: Mapping[Place, tuple[int, str]]
    ) -> None:
        """Let the transaction move offsets of a group. Raises KafkaException, Concurrent."""
        self._wait_for(role_of((group, GROUP)))
        transaction = self._opened(transactional_id, epoch, (group, GROUP))
        transaction.offsets.setdefault((group, GROUP), {}).update(offsets)

    def decide(self, transactional_id: str, epoch: int, number: int, outcome: Literal["commit", "abort"]) -> None:
        """End the transaction: this is its decision, and its marks follow. `number`: which of its producer's it is; one
        that never came here ends like another. Raises KafkaException, Concurrent."""
        transactional = self._current(transactional_id, epoch)
        self._wait_for(transactional.role)
        if transactional.is_undecided:
            self._decide(transactional, outcome, transactional_id)
            transactional.last = (number, outcome)
            self._mark(transactional, self.clock.monotonic_s())
        elif transactional.last is not None and transactional.last[0] == number and transactional.last[1] != outcome:
            raise failed(KafkaError.INVALID_TXN_STATE, "Broker: Producer attempted a transactional operation")

    def committed(self, group: str, places: Sequence[Place], *, stable: bool) -> list[tuple[int, str] | None]:
        """What a group has committed. `stable`: not while a transaction may still move it. Raises Concurrent, and
        KafkaException where its coordinator has just moved: the client waits only while it knows of none."""
        self.expect_coordinator(group)
        for transactional in self._ids.values():
            moved = transactional.open.offsets.get((group, GROUP), {}) if transactional.open is not None else {}
            if stable and any(place in moved for place in places):
                raise Concurrent
        offsets = self.groups.get(group, {})
        return [offsets.get(place) for place in places]

    def commit_offsets(self, group: str, offsets: Mapping[Place, tuple[int, str]]) -> None:
        """Move a group's offsets, outside of any transaction."""
        self.groups.setdefault(group, {}).update(offsets)

    # -- what they know of leaders, under the lock

    def readable(self, place: Place, *, committed: bool) -> int:
        """Up to where a partition's leader shows it to readers."""
        limit = self._log(place).limit(place, committed=committed)
        return limit if self._knows(role_of(place)) else min(limit, self._shown.get(role_of(place), limit))

    def expect_leader(self, place: Place) -> None:
        """Raises Concurrent while nobody leads a partition, and KafkaException where another one has begun to, and the
        one before says so."""
        led = self.brokers.leadership(role_of(place))
        if led is not None and led.planned and not self.leads(place):
            raise failed(KafkaError.NOT_LEADER_FOR_PARTITION, "Broker: Not leader for partition")
        self._wait_for(role_of(place), only_led=True)

    def expect_coordinator(self, group: str) -> None:
        """Raises Concurrent while nobody coordinates a group, and KafkaException while the next one has not begun to,
        or reads what the one before knew."""
        place = (group, GROUP)
        led = self.brokers.leadership(role_of(place))
        if led is not None and led.planned and not self.leads(place):
            raise failed(KafkaError.NOT_COORDINATOR, "Broker: Not coordinator")
        self._wait_for(role_of(place), only_led=True)
        if not self._knows(role_of(place)):
            raise failed(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "Broker: Coordinator load in progress")

    def _knows(self, role: Role) -> bool:
        return self.brokers.knows(role, self.clock.monotonic_s())

    def _wait_for(self, role: Role, *, only_led: bool = False) -> None:
        """Raises Concurrent until somebody leads that, and, if not `only_led`, knows it."""
        now_s = self.clock.monotonic_s()
        if not (self.brokers.leads if only_led else self.brokers.knows)(role, now_s):
            raise Concurrent
        self._served.append(role)

    def _moved(self, role: Role) -> None:
        topic, _, number = role.rpartition("/")
        if topic in self.topics:
            log = self.topics[topic].partitions[int(number)]
            self._shown[role] = max(log.begin, log.end - self.forgets(role))

    # -- under the lock

    def _append(self, place: Place, record: ProducedRecord, transaction: Transaction | None) -> None:
        self._log(place)
        self.topics[place[0]].append(place[1], record, transaction, self.clock.now_ms())
        self.changed.notify_all()

    def _log(self, place: Place) -> Partition:
        topic = self.topics.get(place[0])
        if topic is None or not 0 <= place[1] < len(topic.partitions):
            raise failed(KafkaError.UNKNOWN_TOPIC_OR_PART, "Broker: Unknown topic or partition")
        return topic.partitions[place[1]]

    def _current(self, transactional_id: str, epoch: int) -> TransactionalId:
        transactional = self._ids[transactional_id]
        if transactional.epoch != epoch:
            raise fenced()
        return transactional

    def _opened(self, transactional_id: str, epoch: int, place: Place) -> Transaction:
        """The open transaction, of which that place is a part from now on. Raises KafkaException, Concurrent."""
        transactional = self._current(transactional_id, epoch)
        if transactional.open is None or place not in transactional.open.unmarked:
            self._wait_for(transactional.role)
        if transactional.open is None:
            transactional.open = Transaction()
            transactional.since_s = self.clock.monotonic_s()
        if transactional.open.outcome is not None:
            raise Concurrent
        transactional.open.unmarked.setdefault(place, float("inf"))
        return transactional.open

    def _decide(self, transactional: TransactionalId, outcome: Literal["commit", "abort"], name: str) -> None:
        transaction, now_s = transactional.open, self.clock.monotonic_s()
        assert transaction is not None
        transaction.outcome = outcome
        for place in transaction.unmarked:
            transaction.unmarked[place] = now_s + self.mark_after_s(name, role_of(place))
        self.decided(transactional.name, outcome)

    def _mark(self, transactional: TransactionalId, now_s: float) -> None:
        transaction = transactional.open
        if transaction is None or transaction.outcome is None:
            return
        due = [p for p, due_s in transaction.unmarked.items() if due_s <= now_s and self._knows(role_of(p))]
        if not self._knows(transactional.role):
            due = []  # who comes next finds the decision, and writes them
        if not due and transaction.unmarked:
            return  # nothing has changed: who waits is not woken to look, and to wake others
        for place in due:
            del transaction.unmarked[place]
            if place[1] == GROUP:
                moved = transaction.offsets.pop(place)
                if transaction.outcome == "commit":
                    self.commit_offsets(place[0], moved)
            elif place[0] in self.topics:  # else it was deleted meanwhile
                self._log(place).append(None, transaction, 0)
        if not transaction.unmarked:
            transactional.open = None
        self.changed.notify_all()


def _late() -> KafkaException:
    return failed(KafkaError._TIMED_OUT, "Local: Timed out")
