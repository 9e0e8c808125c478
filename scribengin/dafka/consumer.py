"""A consumer as programs use it: records of its topics, each partition in order, whole and once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from itertools import count, repeat
from typing import NamedTuple

from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.role import Role, new_address
from scribengin.dafka.state import (
    ConsumerState,
    DafkaPartition,
    Deliver,
    GiveUpPartition,
    HaltPartition,
    Positions,
    StartOf,
)
from scribengin.dafka.wire import Message, Subscription
from scribengin.errors import ConfigInvalid, RecordsGone, TimeUnknown

_SINCE_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_NAMED_MAX = 3
"""So many peers are named in a message."""


class DafkaRecord(NamedTuple):
    """One record as it was read."""

    partition: DafkaPartition
    sequence: int
    content: bytes


_record: Callable[[tuple[DafkaPartition, int, bytes]], DafkaRecord] = partial(tuple.__new__, DafkaRecord)
"""What `DafkaRecord._make` does, without a call of Python's for each."""


class DafkaConsumer(Role):
    """Reads topics from when it is made until `close`. Thread-safe; what one `read` has returned, no other returns.

    `positions` says where to go on in partitions that were read before: the sequence of the record wanted next. Store
    those of `positions` with what was made of the records, and hand them in after a restart: nothing is lost, and
    nothing comes twice.

    `since_ms`, milliseconds since the epoch: begin all others with the first record that was published then or later,
    as stores and producers can tell; with what comes next, if that time is still to come. Raises ConfigInvalid for one
    before 1970, or behind 9999, or that is no whole number, and for topics that are no list of names.
    """

    def __init__(
        self,
        topics: Iterable[str],
        config: DafkaConfig | None = None,
        *,
        positions: Positions | None = None,
        since_ms: int | None = None,
    ) -> None:
        config = config or DafkaConfig()
        topics = _checked(topics)
        if since_ms is not None:
            _check_time(since_ms)
        said = config.consumer
        self._records_max = said.high_watermark
        address = new_address()
        self._state = ConsumerState(
            address,
            start=StartOf(said.offset_reset, positions or {}, since_ms),
            exact=said.exact,
            skip_gone=said.skip_gone,
            batches=config.batches,
        )
        self._ready: deque[Deliver] = deque()
        self._taken_of_first = 0
        self._unread = 0
        self._gone: deque[RecordsGone | TimeUnknown] = deque()
        self._positions = dict(positions or {})
        prefixes = self._state.own_prefixes()
        for topic in topics:
            prefixes += self._state.subscribe(topic)[0]  # nobody is connected yet who would hear what it asks
        super().__init__("consumer", address, config, prefixes, hears=True, by_peer=False)
        self.start()

    @property
    def positions(self) -> dict[DafkaPartition, int]:
        """What `read` has returned of each partition: the sequence that comes next."""
        with self.lock:
            return dict(self._positions)

    def read(self, records_max: int = 1000, timeout_s: float | None = None) -> list[DafkaRecord]:
        """Up to so many records, as soon as there are any. Empty after `timeout_s`. Raises RecordsGone and
        TimeUnknown, once for each partition that cannot go on or begin, and DafkaClosed."""
        with self.lock:
            self.wait(timeout_s)
            if self._gone:
                raise self._gone.popleft()
            if not self._ready:
                self.check_open()
            return self._taken(records_max)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether `read` has anything to return, or to raise, after so long at most. Takes none of it."""
        with self.lock:
            return bool(
                self.lock.wait_for(lambda: self._ready or self._gone or self._closing or self.failure, timeout_s)
            )

    def is_listening(self) -> bool:
        """It takes no more while too much is unread: what is not taken, it fetches later."""
        return self._unread < self._records_max

    def on_messages(self, messages: list[Message], peer: str, now_s: float) -> None:
        """Records, heads and hellos."""
        self._do(self._state.messages(messages, now_s))

    def on_subscription(self, heard: Subscription) -> None:
        """A store or a producer that is connected now."""
        self._do(self._state.subscription(heard))

    def on_tick(self, now_s: float) -> None:
        """Fetch again what did not come."""
        if self.is_listening():
            self._do(self._state.tick(now_s))
        else:
            self._state.rest(now_s)

    def on_peer_gone(self, peer: str) -> None:
        """It is not waited for."""
        self._state.peer_gone(peer)

    def _do(self, instructions: Iterable[object]) -> None:
        done = list(instructions)
        self.send(done)
        delivered = [one for one in done if isinstance(one, Deliver)]
        gone = [_as_error(one) for one in done if isinstance(one, HaltPartition | GiveUpPartition)]
        if delivered or gone:
            with self.lock:
                self._ready += delivered
                self._gone += gone
                self._unread += sum(len(one.contents) for one in delivered)
                self.lock.notify_all()

    def _taken(self, records_max: int) -> list[DafkaRecord]:
        records: list[DafkaRecord] = []
        while self._ready and len(records) < records_max:
            partition, sequence, contents = self._ready[0]
            at = self._taken_of_first
            taken = contents[at : at + records_max - len(records)]
            sequence += at
            records += map(_record, zip(repeat(partition), count(sequence), taken))
            self._positions[partition] = sequence + len(taken)
            self._taken_of_first += len(taken)
            if self._taken_of_first == len(contents):
                self._ready.popleft()
                self._taken_of_first = 0
        self._unread -= len(records)
        return records


def _checked(topics: Iterable[str]) -> list[str]:
    """A string is a list of letters, to Python: whoever read those would wait for ever, and hear of nothing."""
    names = [] if isinstance(topics, str) else list(topics)
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigInvalid(f"the topics of a consumer are a list of names, as in ['flights'], and not {topics!r:.100}")
    return names


def _check_time(since_ms: object) -> None:
    if type(since_ms) is not int:
        raise ConfigInvalid(f"since_ms: expected a whole number of ms since the epoch, not {since_ms!r:.100}")
    if not 0 <= since_ms <= _SINCE_MS_MAX:
        raise ConfigInvalid(f"since_ms: {since_ms} ms since the epoch are no time of the years 1970 to 9999")


def _as_error(halted: HaltPartition | GiveUpPartition) -> RecordsGone | TimeUnknown:
    subject, address = halted.partition
    if isinstance(halted, GiveUpPartition):
        since = datetime.fromtimestamp(halted.since_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return TimeUnknown(
            f"topic '{subject}', producer {address}: nobody who is there can tell which record was the first since "
            f"{since}; stores and producers of Scribengin can, programs of C cannot: start such a store before what "
            f"publishes, or begin with the earliest, or at a sequence{_who_was_asked(halted)}"
        )
    return RecordsGone(
        f"topic '{subject}', producer {address}: nobody keeps the records from {halted.sequence} to "
        f"{halted.first_kept - 1} any more; set consumer.skip_gone to go on with {halted.first_kept}"
    )


def _who_was_asked(given_up: GiveUpPartition) -> str:
    """A store that cannot read its log knows nothing of it."""
    said = ""
    if given_up.silent:
        said += f"; asked and not answered: {_some(given_up.silent)}"
    if given_up.knew_nothing:
        said += f"; asked and knew nothing: {_some(given_up.knew_nothing)} (a store that cannot read its log says so)"
    return said


def _some(peers: tuple[str, ...]) -> str:
    return ", ".join(peers[:_NAMED_MAX]) + (f" and {len(peers) - _NAMED_MAX} more" if len(peers) > _NAMED_MAX else "")
