"""Producers, consumers and stores without sockets: their state machines, and a network between them that may lose,
double and reorder what it carries. Every message travels as its frames, to whoever has subscribed to their beginning.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from scribengin.dafka.state import (
    EARLIEST,
    Append,
    ConsumerState,
    DafkaPartition,
    Deliver,
    FindStored,
    FollowerState,
    GiveUpPartition,
    HaltPartition,
    HeldRecords,
    HoldLimits,
    IntakeLimits,
    ProducerState,
    ReadStored,
    Send,
    StartOf,
    StoredRange,
    StoreState,
)
from scribengin.dafka.wire import (
    ConsumerHello,
    DirectBatch,
    DirectRecord,
    Fetch,
    FindTime,
    GetHeads,
    KnownOfTime,
    LiveBatch,
    Message,
    StoreAck,
    StoreHello,
    Subscription,
    Truncated,
    decode,
    encode,
    groups,
    topic_prefix,
)
from scribengin.dafka.wire.frames import IDS
from scribengin.errors import RecordsGone

TOPIC = "flights"
LIMITS = IntakeLimits(fetch_records_max=7, early_records_max=5, early_bytes_max=200)
"""Small, so that few records go through every window and over every limit."""
HELD = HoldLimits(records_max=12, bytes_max=60)
_ASKED_MAX = 10_000
"""So many sequences of one fetch are noted: no schedule has more."""


@dataclass
class Faults:
    """What the network does to a message: so many of a hundred are lost, doubled, or late. While `waiting_max` from one
    role to another wait (0: no limit), those that come are lost, as beyond a high watermark. `refused` of a hundred
    appends fail, half of them written all the same."""

    lost: int = 0
    doubled: int = 0
    late: int = 0
    waiting_max: int = 0
    refused: int = 0


@dataclass
class Node:
    """One role on the network: what it subscribes to, and what it makes of a message from somebody."""

    name: str
    prefixes: list[bytes]
    take: Callable[[Message, str], Iterable[object]]
    tick: Callable[[], Iterable[object]]
    heard: Callable[[Subscription], Iterable[object]] = lambda _: ()
    batches: bool = True


@dataclass
class World:
    """The network, the time, and the roles on it."""

    seed: int = 0
    faults: Faults = field(default_factory=Faults)
    now_s: float = 0.0
    acks_min: int = 1
    nodes: dict[str, Node] = field(default_factory=dict)
    producers: dict[str, ProducerState] = field(default_factory=dict)
    consumers: dict[str, ConsumerState] = field(default_factory=dict)
    followers: dict[str, FollowerState] = field(default_factory=dict)
    stores: dict[str, StoreState] = field(default_factory=dict)
    disks: dict[str, dict[DafkaPartition, dict[int, bytes]]] = field(default_factory=dict)
    got: dict[str, dict[DafkaPartition, list[tuple[int, bytes]]]] = field(default_factory=dict)
    written: dict[str, dict[DafkaPartition, int]] = field(default_factory=dict)
    """How far each disk has come of each partition, whatever of it was truncated."""
    told: dict[tuple[str, DafkaPartition], set[int]] = field(default_factory=dict)
    """Where stores have said to a role that what they keep begins: there it may go on, and nowhere else."""
    latest: set[str] = field(default_factory=set)
    """Consumers that begin with what comes next, or with a time."""
    asked: dict[tuple[str, DafkaPartition], set[int]] = field(default_factory=dict)
    stands: dict[tuple[str, DafkaPartition], int] = field(default_factory=dict)
    """Where readers of followers stand."""
    refused: set[tuple[str, DafkaPartition]] = field(default_factory=set)
    """Partitions of which a store's append has failed."""
    halted: list[tuple[str, HaltPartition]] = field(default_factory=list)
    given_up: list[tuple[str, GiveUpPartition]] = field(default_factory=list)
    published_ms: dict[DafkaPartition, list[int]] = field(default_factory=dict)
    """When each record was published first."""
    came_ms: dict[tuple[str, DafkaPartition], dict[int, int]] = field(default_factory=dict)
    """When each disk got each record."""
    sent: list[tuple[str, Message]] = field(default_factory=list)
    _wire: list[tuple[str, str, list[bytes]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def add_producer(
        self, name: str, topic: str = TOPIC, *, first: int = 0, published: int | None = None
    ) -> ProducerState:
        """A producer that publishes nothing yet, and `first` next. `published`: it goes on as one that was before, and
        had published so many."""
        state = ProducerState(
            DafkaPartition(topic, name),
            acks_min=self.acks_min,
            first=first,
            resumed=published is not None,
            published=published,
        )
        self.producers[name] = state
        prefixes = [topic_prefix(kind, name, exact=False) for kind in (StoreAck, Fetch, FindTime)]
        prefixes.append(topic_prefix(GetHeads, topic))

        def take(message: Message, peer: str) -> Iterable[object]:
            return [*state.message(message, peer), *state.answers(1000)]

        self._join(Node(name, prefixes, take, lambda: state.tick(self.now_s), state.subscription))
        return state

    def add_consumer(
        self, name: str, start: StartOf = EARLIEST, topics: Sequence[str] = (TOPIC,), *, batches: bool = True
    ) -> ConsumerState:
        """A consumer that reads from now on. Without `batches` it hears what a C program hears."""
        state = ConsumerState(name, start=start, limits=LIMITS, batches=batches)
        self.consumers[name] = state
        if start.edge == "latest" or start.since_ms is not None:
            self.latest.add(name)
        self.got.setdefault(name, defaultdict(list))
        prefixes = state.own_prefixes()
        for topic in topics:
            prefixes += state.subscribe(topic)[0]  # nobody is there yet who would hear what it asks
        node = Node(
            name,
            prefixes,
            lambda message, _: state.messages([message], self.now_s),
            lambda: state.tick(self.now_s),
            state.subscription,
            batches,
        )
        self._join(node)
        return state

    def add_follower(self, name: str) -> FollowerState:
        """A follower, whose reader takes nothing before it is told to."""
        state = FollowerState(name, TOPIC, limits=HELD, intake_limits=LIMITS)
        self.followers[name] = state
        self.got[name] = defaultdict(list)
        node = Node(
            name,
            state.prefixes(),
            lambda message, _: state.messages([message], self.now_s),
            lambda: state.tick(self.now_s),
            state.subscription,
        )
        self._join(node)
        return state

    def take(self, name: str, records_max: int) -> None:
        """Have the reader of a follower take so many records of each partition: what comes next of it."""
        state = self.followers[name]
        for partition in list(state.ends):
            held = self.look(name, partition, self.stands.get((name, partition), 0))
            taken = held.contents[:records_max]
            self._deliver(name, partition, held.first, taken)
            self.stands[name, partition] = held.first + len(taken)

    def look(self, name: str, partition: DafkaPartition, sequence: int) -> HeldRecords:
        """Have the reader of a follower go to that sequence: what is held there by now. Nothing, if nobody keeps it."""
        state = self.followers[name]
        self._do(name, state.follow(partition, sequence, self.now_s))
        try:
            return state.held(partition, 10**6, 10**6)
        except RecordsGone:
            self.halted.append((name, HaltPartition(partition, sequence, sequence)))
            return HeldRecords(sequence, [])

    def truncate(self, name: str, partition: DafkaPartition, first_kept: int) -> None:
        """Retention takes what a disk holds before that record: all of it, where it has come no further."""
        kept = self.disks.get(name, {}).get(partition, {})
        for sequence in [one for one in kept if one < first_kept]:
            del kept[sequence]

    def add_store(self, name: str, *, batches: bool = True) -> StoreState:
        """A store that begins with what its disk holds: with nothing, if it never ran. Without `batches` it hears what
        a C program hears."""
        disk = self.disks.setdefault(name, {})
        ends = self.written.setdefault(name, {})
        found = {
            partition: StoredRange(min(kept, default=ends[partition]), ends[partition])
            for partition, kept in disk.items()
        }
        state = StoreState(f"{name}w", f"{name}r", found, limits=LIMITS, batches=batches)
        self.stores[name] = state
        writer, reader = f"{name}w", f"{name}r"
        self._join(
            Node(
                writer,
                state.writer_prefixes(),
                lambda message, _: state.messages([message], self.now_s),
                lambda: state.tick(self.now_s),
                batches=batches,
            )
        )
        asked = Node(
            reader, state.reader_prefixes(), lambda m, _: state.asked(m), lambda: (), state.subscription, batches
        )
        self._join(asked)
        return state

    def kill(self, name: str) -> None:
        """The role is gone, with all that it remembered."""
        self.producers.pop(name, None)
        self.consumers.pop(name, None)
        for follower in self.followers.values():
            follower.peer_gone(f"{name}r")
        gone = {f"{name}w", f"{name}r"} if self.stores.pop(name, None) is not None else {name}
        self._forget(gone)
        for node in gone:
            was = self.nodes.pop(node, None)
            for other in self.nodes.values() if was is not None else ():
                self._unheard(was, other)
            for producer in self.producers.values():
                producer.store_gone(node)

    def _forget(self, gone: Collection[str]) -> None:
        """Who comes after them under their names was told nothing."""
        self.told = {key: told for key, told in self.told.items() if key[0] not in gone}

    def resume(self, name: str, records: int) -> None:
        """The producer dies, and goes on as itself so many records before what stores have of it: it publishes again
        what it had published from there on."""
        before = self.producers[name]
        self.kill(name)
        first = max(0, before.acked - records)
        self.add_producer(name, first=first, published=before.next)
        if before.next > first:
            self.publish(name, before.next - first)

    def publish(self, name: str, count: int) -> None:
        """So many records of a producer, each of which says what it is."""
        state = self.producers[name]
        contents = [f"{name}:{sequence}".encode() for sequence in range(state.next, state.next + count)]
        first = state.publish(contents, self.now_s, self.now_ms)
        times = self.published_ms.setdefault(state.partition, [])
        times += [self.now_ms] * (first + count - len(times))
        self._do(name, map(Send, state.live(first, contents)))

    @property
    def now_ms(self) -> int:
        """The time of everybody's clock."""
        return int(self.now_s * 1000)

    def run(self, messages_max: int = 1_000_000) -> None:
        """Carry so many messages, or all."""
        for _ in range(messages_max):
            if not self._wire:
                return
            at = 0
            if self._happens(self.faults.late):
                at = self._random.randrange(min(len(self._wire), 20))
            origin, to, frames = self._wire.pop(at)
            if self._happens(self.faults.doubled):
                self._wire.append((origin, to, frames))
            node = self.nodes.get(to)
            if node is not None and not self._happens(self.faults.lost):
                message = decode(frames)
                assert node.batches or not isinstance(message, LiveBatch | DirectBatch), f"{to} gets {message}"
                self._do(to, node.take(message, origin))

    def pass_time(self, seconds: float, step_s: float = 0.5) -> None:
        """Let time pass, and carry what is sent meanwhile."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += step_s
            for name, node in list(self.nodes.items()):
                self._do(name, node.tick())
            self.run()

    def _happens(self, of_a_hundred: int) -> bool:
        return of_a_hundred > 0 and self._random.randrange(100) < of_a_hundred

    def _join(self, node: Node) -> None:
        """Both sides hear what the other one subscribes to, as XPUB sockets do. A C program is asked for no time."""
        if not node.batches:
            node.prefixes = [one for one in node.prefixes if not one.startswith(IDS[FindTime])]
        others = list(self.nodes.values())
        self.nodes[node.name] = node
        for other in others:
            for one, two in ((node, other), (other, node)):
                for prefix in one.prefixes:
                    self._do(two.name, two.heard(Subscription(True, prefix)))

    def _unheard(self, gone: Node, origin: Node) -> None:
        """The connection has ended: what the one has subscribed to at the other ends with it."""
        for prefix in sorted(gone.prefixes):
            self._do(origin.name, origin.heard(Subscription(False, prefix)))

    def _do(self, name: str, instructions: Iterable[object]) -> None:
        for one in instructions:
            match one:
                case Send(message):
                    self.sent.append((name, message))
                    self._check_said(name, message)
                    self._carry(name, encode(message))
                case Deliver(partition, sequence, contents):
                    self._deliver(name, partition, sequence, contents)
                case Append(partition, sequence, contents):
                    self._append(name, partition, sequence, contents)
                case ReadStored(to, partition, sequence, records):
                    self._read(name, to, partition, range(sequence, sequence + records))
                case FindStored():
                    self._find(name, one)
                case HaltPartition():
                    self.halted.append((name, one))
                case GiveUpPartition():
                    self.given_up.append((name, one))

    def begins(self, name: str, partition: DafkaPartition, sequence: int) -> bool:
        """Whether that is where the partition begins for that role, as far as it was told by now."""
        return sequence == 0 or sequence in self.told.get((name, partition), ())

    def _deliver(self, name: str, partition: DafkaPartition, sequence: int, contents: Sequence[bytes]) -> None:
        got = self.got[name][partition]
        if contents and not got and name not in self.latest:
            assert self.begins(name, partition, sequence), f"{name} begins at {sequence}, which nobody has told it"
        got += enumerate(contents, sequence)

    def _tell(self, reader: str, message: Truncated) -> None:
        store, partition = reader[:-1], DafkaPartition(message.subject, message.address)
        first = min(self.disks[store][partition], default=self.written[store][partition])
        assert message.sequence <= first, f"{store} keeps {first}, and says that it does not"
        self.told.setdefault((message.to, partition), set()).add(message.sequence)

    def _check_said(self, name: str, message: Message) -> None:
        """Who asks gets what was asked for, and nothing else; and is told what is so."""
        match message:
            case Truncated():
                self._tell(name, message)
            case Fetch(producer, requester, subject, sequence, count):
                asked = self.asked.setdefault((requester, DafkaPartition(subject, producer)), set())
                asked.update(range(sequence, min(sequence + count, sequence + _ASKED_MAX)))
            case DirectRecord() | DirectBatch():
                asked = self.asked.get((message.to, DafkaPartition(message.subject, message.address)), set())
                got = range(message.sequence, message.sequence + len(message.contents))
                assert asked.issuperset(got), f"{message.to} gets what it has not asked for"

    def _append(self, name: str, partition: DafkaPartition, sequence: int, contents: list[bytes]) -> None:
        """As a store's writer: what an append that failed has written all the same is passed over."""
        store, end = name[:-1], sequence + len(contents)
        fails = self._happens(self.faults.refused)
        if not fails or self._happens(50):
            known = 0
            if (store, partition) in self.refused:
                known = min(max(0, self.written[store].get(partition, sequence) - sequence), len(contents))
            if known < len(contents):
                self._write(store, partition, sequence + known, contents[known:])
        if fails:
            self.refused.add((store, partition))
            self.stores[store].refuse(partition, self.now_s + 2.0)
        else:
            self._do(name, self.stores[store].durable(partition, sequence, end))

    def _write(self, store: str, partition: DafkaPartition, sequence: int, contents: list[bytes]) -> None:
        kept, ends = self.disks[store].setdefault(partition, {}), self.written[store]
        follows = sequence == ends[partition] if partition in ends else self.begins(f"{store}w", partition, sequence)
        assert follows, f"{store} leaves a hole, or writes twice"
        expected = [f"{partition.address}:{n}".encode() for n in range(sequence, sequence + len(contents))]
        assert contents == expected, f"{store} stores other bytes"
        kept.update(enumerate(contents, sequence))
        came = self.came_ms.setdefault((store, partition), {})
        came.update(dict.fromkeys(range(sequence, sequence + len(contents)), self.now_ms))
        ends[partition] = sequence + len(contents)

    def _read(self, reader: str, to: str, partition: DafkaPartition, asked: range) -> None:
        """What is there of it, or where it goes on, if retention has taken what was asked for first."""
        state, kept = self.stores[reader[:-1]], self.disks[reader[:-1]][partition]
        if asked[0] in kept:
            self._answer(reader, to, partition, asked[0], [kept[n] for n in asked if n in kept])
            return
        first_kept = min(kept, default=state.stored[partition].next)
        state.truncated(partition, first_kept)
        self._do(reader, state.asked(Fetch(partition.address, to, partition.subject, asked[0], len(asked))))

    def _find(self, reader: str, asked: FindStored) -> None:
        """As a store's reader: what its disk got first at that time or later."""
        store, partition = reader[:-1], asked.partition
        state, kept = self.stores[store], self.disks[store][partition]
        came, end = self.came_ms[store, partition], state.stored[partition].next
        first = min((n for n in kept if n < end), default=end)
        found = min((n for n in kept if n < end and came[n] >= asked.at_ms), default=end)
        known = KnownOfTime.WHERE if first == 0 or found > first else KnownOfTime.BEGINS
        self._do(reader, [state.time_found(asked, known, found)])

    def _answer(self, name: str, to: str, partition: DafkaPartition, first: int, contents: list[bytes]) -> None:
        subject, address = partition
        if not self.stores[name[:-1]].answers_in_batches(to):
            found = (DirectRecord(to, address, subject, n, content) for n, content in enumerate(contents, first))
            self._do(name, map(Send, found))
            return
        for group in groups(contents):
            self._do(name, [Send(DirectBatch(to, address, subject, first, group))])
            first += len(group)

    def _carry(self, origin: str, frames: list[bytes]) -> None:
        for node in self.nodes.values():
            if node.name != origin and frames[0].startswith(tuple(node.prefixes)):
                self._wait(origin, node.name, frames)

    def _wait(self, origin: str, to: str, frames: list[bytes]) -> None:
        most = self.faults.waiting_max
        if not most or sum((one, other) == (origin, to) for one, other, _ in self._wire) < most:
            self._wire.append((origin, to, frames))


def hello_of(world: World, consumer: str) -> list[Message]:
    """The hellos that a consumer and the stores have exchanged."""
    return [m for name, m in world.sent if isinstance(m, ConsumerHello | StoreHello) and consumer in (name, m.to)]
