"""A store of Dafka that keeps records in memory: it passes no failpoint, so no test of crashes stops it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable

from scribengin.dafka import DafkaConfig, DafkaPartition
from scribengin.dafka.role import Role, new_address
from scribengin.dafka.state import Append, ReadStored, Send, StoreState
from scribengin.dafka.wire import DirectRecord, Message, Subscription


class MemoryDafkaStore:
    """Both roles of it, and what they keep."""

    def __init__(self, config: DafkaConfig) -> None:
        self.state = StoreState(new_address(), new_address(), {})
        self.kept: defaultdict[DafkaPartition, dict[int, bytes]] = defaultdict(dict)
        self.using = threading.Lock()
        self._roles = [_Writer(self, config), _Reader(self, config)]

    def close(self) -> None:
        for role in self._roles:
            role.close()


class _Writer(Role):
    def __init__(self, store: MemoryDafkaStore, config: DafkaConfig) -> None:
        self._store = store
        state = store.state
        super().__init__("store", state.writer, config, state.writer_prefixes(), hears=False, by_peer=False)
        self.start()

    def on_messages(self, messages: list[Message], peer: str, now_s: float) -> None:
        with self._store.using:
            self._do(self._store.state.messages(messages, now_s))

    def on_tick(self, now_s: float) -> None:
        with self._store.using:
            self._do(self._store.state.tick(now_s))

    def _do(self, instructions: Iterable[object]) -> None:
        done = list(instructions)
        for one in done:
            if isinstance(one, Append):
                self._store.kept[one.partition].update(enumerate(one.contents, one.sequence))
                end = one.sequence + len(one.contents)
                self.send(self._store.state.durable(one.partition, one.sequence, end))
        self.send(done)


class _Reader(Role):
    def __init__(self, store: MemoryDafkaStore, config: DafkaConfig) -> None:
        self._store = store
        state = store.state
        super().__init__("store", state.reader, config, state.reader_prefixes(), hears=True, by_peer=False)
        self.start()

    def on_messages(self, messages: list[Message], peer: str, now_s: float) -> None:
        with self._store.using:
            for message in messages:
                self._do(self._store.state.asked(message))

    def on_subscription(self, heard: Subscription) -> None:
        with self._store.using:
            self._do(self._store.state.subscription(heard))

    def _do(self, instructions: Iterable[object]) -> None:
        for one in instructions:
            if isinstance(one, ReadStored):
                (subject, address), kept = one.partition, self._store.kept[one.partition]
                for n in range(one.sequence, one.sequence + one.records):
                    self.send([Send(DirectRecord(one.to, address, subject, n, kept[n]))])
            else:
                self.send([one])
