"""A follower as sources use it: every partition of a topic, each at its own reader's pace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.role import Role, new_address
from scribengin.dafka.state import DafkaPartition, FollowerState, HeldRecords, HoldLimits, Send
from scribengin.dafka.wire import Message, Subscription

_STALLED_S = 2.0
"""A record that is known to be there and does not come for so long is not waited for any more."""
_INTERVALS = 2
"""Whoever is there has said so to a tower, and has been connected to, after so many intervals of beacons."""
_T = TypeVar("_T")


class DafkaFollower(Role):
    """Follows a topic from when it is made until `close`. Thread-safe; each partition has one reader at a time.

    Every method raises DafkaClosed, with what has ended the role's thread.
    """

    def __init__(
        self,
        topic: str,
        config: DafkaConfig | None = None,
        *,
        skip_gone: bool = False,
        limits: HoldLimits | None = None,
    ) -> None:
        config = config or DafkaConfig()
        address = new_address()
        interval_s, silent_s = config.beacon.interval / 1000, config.beacon.timeout / 1000
        self._settles_within_s = max(silent_s, (_INTERVALS + 1) * interval_s)
        self._state = FollowerState(
            address,
            topic,
            skip_gone=skip_gone,
            limits=limits,
            batches=config.batches,
            told_within_s=self._settles_within_s,
        )
        self._to_send: deque[Send] = deque()
        self._made_s = SYSTEM_CLOCK.monotonic_s()
        super().__init__("follower", address, config, self._state.prefixes(), hears=True, by_peer=False)
        self.start()

    def settle(self) -> bool:
        """Wait until it knows of everybody who is there, and of all that stores have. Whether a tower has greeted it:
        without one it knows of nobody. It does not wait for longer than a silent peer is thought to be there."""
        interval_s = self._config.beacon.interval / 1000

        def settled() -> bool:
            if self.welcomed_s is None or not self._state.is_told:
                return False
            return SYSTEM_CLOCK.monotonic_s() - self.welcomed_s >= _INTERVALS * interval_s

        with self.lock:
            left_s = self._made_s + self._settles_within_s - SYSTEM_CLOCK.monotonic_s()
            self._wait(settled, max(left_s, 0.0))
        return self.welcomed_s is not None

    def ends(self) -> dict[DafkaPartition, int]:
        """Every partition that is known, and the sequence behind its last record that is."""
        with self.lock:
            self.check_open()
            return dict(self._state.ends)

    def end_of(self, partition: DafkaPartition) -> int:
        """As `ends` says of one partition; 0 where nothing is known of it."""
        with self.lock:
            self.check_open()
            return self._state.ends.get(partition, 0)

    def is_silent(self, partition: DafkaPartition, for_s: float, since_s: float = 0.0) -> bool:
        """Whether it has listened for so long, from `since_s` of the monotonic clock on, and that producer has said
        nothing in all that time."""
        with self.lock:
            self.check_open()
            heard_s = max(self._state.heard_s(partition) or self._made_s, since_s)
            return SYSTEM_CLOCK.monotonic_s() - heard_s >= for_s

    def has_heard(self, partition: DafkaPartition, within_s: float) -> bool:
        """Whether that producer has said anything of late."""
        with self.lock:
            self.check_open()
            heard_s = self._state.heard_s(partition)
            return heard_s is not None and SYSTEM_CLOCK.monotonic_s() - heard_s < within_s

    def follow(self, partition: DafkaPartition, sequence: int) -> None:
        """Hold what comes from that sequence on, and let go of what was before it."""
        with self.lock:
            self.check_open()
            self._publish(self._state.follow(partition, sequence, SYSTEM_CLOCK.monotonic_s()))

    def leave(self, partition: DafkaPartition) -> None:
        """Hold nothing of the partition any more. Idempotent, also after `close`."""
        with self.lock:
            self._state.leave(partition)

    def held(self, partition: DafkaPartition, records_max: int, bytes_max: int) -> HeldRecords:
        """What comes next of a partition that is followed, within limits. What is known to be there already is waited
        for, as long as it comes. Raises RecordsGone where nobody keeps it."""
        with self.lock:
            held = self._state.held(partition, 1, bytes_max)
            end = min(self._state.ends.get(partition, 0), held.first + records_max)
            self._wait_as_long_as_it_comes(partition, lambda: self._state.holds_all(partition, end, bytes_max))
            return self._state.held(partition, records_max, bytes_max)

    def wait(self, partition: DafkaPartition, sequence: int, timeout_s: float) -> bool:
        """Wait until something of a partition that is followed from there on is held, or until it goes on behind what
        nobody keeps: whether that is so."""

        def news() -> bool:
            held = self._state.held(partition, 1, 1)
            return bool(held.contents) or held.first > sequence

        with self.lock:
            return self._wait(news, timeout_s)

    def on_messages(self, messages: list[Message], peer: str, now_s: float) -> None:
        """Records, heads and hellos."""
        self._do(lambda: self._state.messages(messages, now_s))

    def on_subscription(self, heard: Subscription) -> None:
        """A store or a producer that is connected now."""
        self._do(lambda: self._state.subscription(heard))

    def on_peer_gone(self, peer: str) -> None:
        """It is not waited for."""
        with self.lock:
            self._state.peer_gone(peer)

    def on_tick(self, now_s: float) -> None:
        """Fetch again what did not come."""
        self._do(lambda: self._state.tick(now_s))

    def on_wake(self) -> None:
        """Send what another thread has asked for."""
        with self.lock:
            sent = [*self._to_send]
            self._to_send.clear()
        self.send(sent)

    def _do(self, step: Callable[[], Iterable[Send]]) -> None:
        with self.lock:
            sent = list(step())
            self.lock.notify_all()
        self.send(sent)

    def _publish(self, sent: Iterable[Send]) -> None:
        self._to_send.extend(sent)
        if self._to_send:
            self.wake()

    def _wait(self, done: Callable[[], _T], timeout_s: float) -> _T:
        """Whether it is done after so long. The caller holds `lock`."""
        self.lock.wait_for(lambda: done() or self._closing or self.failure, timeout_s)
        self.check_open()
        return done()

    def _wait_as_long_as_it_comes(self, partition: DafkaPartition, done: Callable[[], bool]) -> None:
        before = -1
        while not done() and (now := self._state.next_of(partition)) != before:
            before = now
            self._wait(lambda at=now: done() or self._state.next_of(partition) != at, _STALLED_S)  # type: ignore[misc]
