"""Kafka in a simulation: our own source and sink of topics, over brokers in memory whose marks come late.

Each input stream is a partition. Most of its records are sent as they come, others in transactions, which stay open for
a while; some of these are aborted, and nobody may ever see what was in them. What is committed is given up now and
then, as retention does. All brokers may be away, or one of three: others lead then what it led.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from scribengin.base.model import Position, node_name
from scribengin.connectors import AnySourceConfig, Environment
from scribengin.connectors.contract import Sink, SinkStreamDescriptor, Source
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.sink.sink import KafkaSink
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.kafka.source.reading import close_idle, never_at_rest
from scribengin.connectors.kafka.source.source import KafkaSource
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.streams.connectors import InputStream
from scribengin.testing.simulation.streams.contract import RECORDS_FOR_S
from scribengin.testing.simulation.streams.sinks import SinkStreams, SinkSystem

if TYPE_CHECKING:
    from scribengin.testing.simulation.registry import SimulatedSession
    from scribengin.testing.simulation.world import World

TOPIC = "in"
_IN_A_TRANSACTION = 0.3
_ABORTED = 0.4
_GIVEN_UP = 0.2
"""How often retention comes, at a record that is written."""
_BROKERS = 3
_PATIENCE_S = 1.0
"""How long clients wait where a broker may be away for longer, in place of half a minute."""
_LAST_PATIENCE_S = 30.0
_ELECTED_S = (0.02, 0.3, 1.0)
_SETTLED_S = (0.0, 0.3, 1.5)
_FORGOTTEN_MAX = 4
_LEADER_S = 0.05


class KafkaInMemory(SinkSystem):
    """Our own sink of Kafka, whose transactions decide about rounds, on brokers whose marks come late."""

    def __init__(self) -> None:
        self.kafka = MemoryKafka("in-memory:9", brokers=_BROKERS)
        delays_s = itertools.cycle((0.0, 0.02, 0.5))
        self.kafka.mark_after_s = lambda _id, _place: next(delays_s)
        self._opened = ExitStack()
        self._opened.callback(close_idle)
        self._opened.enter_context(never_at_rest())
        self._opened.enter_context(self.kafka.serving())
        topic = {"topic": "out", "partition_by": "stream", "create": {"partitions": 6}}
        value = {"kind": "kafka", "bootstrap": self.kafka.bootstrap, **topic}
        self._config = KafkaSinkConfig.parse(value, source="the simulation")

    def open_sink(self, name: str, environment: Environment) -> Sink:
        registry, dataflow, nodes = environment.registry, environment.dataflow, environment.nodes
        return KafkaSink(name, self._config, registry, dataflow=dataflow, nodes=nodes, clock=environment.clock)

    def read(self, sink: Sink, stream: SinkStreamDescriptor) -> list[bytes]:
        with self.kafka.changed:
            self.kafka.tick()
        return [value or b"" for value in self.kafka.visible("out", int(stream.name))]

    def close(self) -> None:
        self._opened.close()


class KafkaStreams(SinkStreams):
    """From one topic to another one."""

    def __init__(self, world: World, system: KafkaInMemory) -> None:
        super().__init__(world, system)
        self._kafka = system.kafka
        self._kafka.decided = self._was_decided
        self._numbers = {name: number for number, name in enumerate(self.inputs)}
        self._deciding: dict[str, tuple[str, range]] = {}
        """By the id of each transaction of who writes: the records of it, which count once the brokers commit it."""
        self._known: dict[tuple[str, int], int] = {}
        """The numbers at offsets, as they were before retention took what was there."""
        if world.plan.fails_brokers:
            chance = random.Random(f"leaders of {world.plan.seed}")
            brokers = self._kafka.brokers
            brokers.elects_s = lambda _role: chance.choice(_ELECTED_S)
            brokers.settles_s = lambda _role: chance.choice(_SETTLED_S)
            self._kafka.forgets = lambda _place: chance.randrange(_FORGOTTEN_MAX)
            self._kafka.tells_short_ends = chance.random() < 0.5
            self._kafka.patience_s = _PATIENCE_S

    def begin(self, session: SimulatedSession) -> None:
        self._kafka.create(TOPIC, partitions=self.world.plan.streams)
        super().begin(session)

    def source_config(self) -> dict[str, Any]:
        return {"kind": "kafka", "bootstrap": self._kafka.bootstrap, "topics": [TOPIC]}

    def open_source(self, name: str, config: AnySourceConfig, environment: Environment) -> Source:
        assert isinstance(config, KafkaSourceConfig), "it is this one's own"
        return KafkaSource(name, config, environment.dataflow, environment.clock, environment.has_tasks)

    def numbers_at(self, path: str, position: Position | None) -> dict[str, int]:
        names = [name for name, number in self._numbers.items() if f"/{node_name(f'{TOPIC}/{number}')}/" in path]
        return {name: 0 if position is None else self._number_at(name, int(position["offset"])) for name in names}

    def _number_at(self, name: str, offset: int) -> int:
        number = self._number_there(name, offset)
        if number is None:
            return self._known.get((name, offset), self._written(name))
        self._known[name, offset] = number
        return number

    def _number_there(self, name: str, offset: int) -> int | None:
        """None: what is there says nothing of it."""
        place = TOPIC, self._numbers[name]
        with self._kafka.changed:
            self._kafka.tick()
            log = self._kafka.topics[TOPIC].partitions[place[1]]
            entries = list(log.records(place, 0, committed=True))
        if offset < log.begin:
            return None
        found = [(each.offset, each.record.value or b"") for each in entries if each.record is not None]
        after = [payload for at, payload in found if at >= offset]
        if after:
            return oracle.source_of(after[0])[1]
        return oracle.source_of(found[-1][1])[1] + 1 if found else None

    def _written(self, name: str) -> int:
        return len(self.inputs[name].payloads)

    def judge(self) -> None:
        """Brokers that have only just come back may not lead yet: they are waited for as long as clients wait."""
        self._kafka.patience_s = _LAST_PATIENCE_S
        super().judge()

    def give_up(self) -> None:
        positions = self.world.safe_positions()
        for name in self.inputs:
            self._give_up(name, positions)

    def has_gone(self, path: str, position: Position) -> bool:
        partitions = self._kafka.topics[TOPIC].partitions
        return any(position["offset"] < partitions[self._numbers[name]].begin for name in self.numbers_at(path, None))

    def go_away(self, seconds: float) -> None:
        self._kafka.away = True
        self.world.later(seconds, "brokers", partial(setattr, self._kafka, "away", False))

    def fail_one(self, seconds: float, *, unheard: bool) -> None:
        running = sorted(self._kafka.brokers.running)
        if len(running) < _BROKERS:
            return  # with another one less, no topic takes anything that is safe
        broker = self.world.scheduler.random.choice(running)
        self.world.tell(f"broker {broker} fails{' once it has done what it is asked next' if unheard else ''}")
        self._kafka.fail(broker, after_next=unheard)
        self.world.later(seconds, "brokers", partial(self._come_back, broker))

    def _come_back(self, broker: int) -> None:
        self._kafka.come_back(broker)
        self.world.tell(f"broker {broker} is back")

    # -- who writes

    def _write(self, name: str, stream: InputStream) -> None:
        plan, chance = self.world.plan, self.world.scheduler.random
        while (first := self._written(name)) < plan.records:
            if chance.random() < _IN_A_TRANSACTION:
                self._write_at_once(name, first, min(first + chance.randint(1, 4), plan.records))
            else:
                while not self._kafka.leads((TOPIC, self._numbers[name])):
                    self.world.scheduler.pass_time(_LEADER_S)
                self._kafka.send(TOPIC, [oracle.payload_of(name, first)], partition=self._numbers[name])
                self._acknowledge(name, first)
            if not plan.rewinds and chance.random() < _GIVEN_UP:
                self._give_up(name, self.world.safe_positions())
            self.world.scheduler.pass_time(chance.expovariate(plan.records / RECORDS_FOR_S))

    def _write_at_once(self, name: str, first: int, end: int) -> None:
        """Some records in one transaction. Its client waits as long as it takes."""
        world, partition = self.world, self._numbers[name]
        transactional_id = f"writer-{name}"
        producer = self._kafka.client(Producer, {"transactional.id": transactional_id})
        producer.init_transactions()
        producer.begin_transaction()
        self._deciding[transactional_id] = name, range(first, end)
        for number in range(first, end):
            producer.produce(TOPIC, oracle.payload_of(name, number), partition=partition)
            world.scheduler.pass_time(world.scheduler.random.expovariate(10.0))
        producer.flush()
        if world.scheduler.random.random() < _ABORTED:
            producer.abort_transaction()
            return
        producer.commit_transaction()

    def _was_decided(self, transactional_id: str, outcome: str) -> None:
        """Here, and not where its client hears of it: readers may see it before. Sinks have transactions, too."""
        name, numbers = self._deciding.pop(transactional_id, ("", range(0)))
        if outcome == "commit":
            for number in numbers:
                self._acknowledge(name, number)

    def _acknowledge(self, name: str, number: int) -> None:
        payload = oracle.payload_of(name, number)
        self.inputs[name].append(payload, self.world.now_ms())
        self.acknowledged.append(payload)

    def _give_up(self, name: str, positions: Mapping[str, Position]) -> None:
        """What is committed there, and needed by nobody any more."""
        for path, position in positions.items():
            if name in self.numbers_at(path, position):
                self._kafka.delete_records(TOPIC, int(position["offset"]), self._numbers[name])
