"""Where the partitions begin of who reads from a time on: whoever can tell is asked which record was the first then.

Stores and producers of ours can tell. They say so by what they subscribe to: questions to themselves. Programs of C
subscribe to none, and are asked nothing.

Who tells of a time goes by when he has got a record himself, by his own clock: a store later than its producer, and one
that has copied another store much later. So he says a record too early rather than too late, unless his clock is
behind. Of several who know, the earliest record counts: whose clock is behind leaves out nothing while another's is
right. One whose records have gone in part can only say that it begins there or before: where nobody knows better, that
counts, and not before others had time to be found.

Where nobody can tell, nothing is guessed: after a while the partition is given up, and its reader is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from scribengin.dafka.state.instructions import DafkaPartition, GiveUpPartition, Send
from scribengin.dafka.state.intake import SEQUENCES_END
from scribengin.dafka.wire import ConsumerHello, FindTime, KnownOfTime, Subscription, TimeFound

_PEERS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class SinceLimits:
    """How long who reads from a time on waits for those who can tell of it."""

    retry_s: float = 1.0
    """Who has not answered, or knew nothing yet, is asked again after so long."""
    patience_s: float = 10.0
    """A partition of which nobody has told anything for so long is given up. Only while the reader listens."""


class Begun(NamedTuple):
    """A partition is read from the sequence `first` on. It was published up to `end`, as far as is known."""

    partition: DafkaPartition
    first: int
    end: int


Found = Send | Begun | GiveUpPartition


@dataclass
class _Search:
    """One partition that waits for its beginning, met at `met_s`. `asked`: when each peer was asked last."""

    met_s: float
    end: int
    asked_s: dict[str, float] = field(default_factory=dict)
    told: dict[str, TimeFound] = field(default_factory=dict)


class SinceState:
    """Told of every partition that is met and has no position, and of every subscription to the reader's socket."""

    def __init__(self, address: str, since_ms: int, limits: SinceLimits | None = None) -> None:
        self.since_ms = since_ms
        self._address = address
        self._limits = limits or SinceLimits()
        self._searches: dict[DafkaPartition, _Search] = {}
        self._given_up: set[DafkaPartition] = set()
        self._can_tell: Counter[str] = Counter()
        self._stores: Counter[str] = Counter()
        self._answered_s: dict[str, float] = {}
        """When each peer has told last of a partition of which it had not told before. It is waited for so much longer:
        one that has much to look up tells of one after the other."""
        self._left: set[str] = set()
        """Peers that discovery has left: they are asked, as they may come again, and not waited for."""
        self._rests_since_s: float | None = None

    def __len__(self) -> int:
        return len(self._searches) + len(self._given_up)

    def heard(self, heard: Subscription) -> None:
        """Somebody has subscribed to the reader, or has ended that: who can tell, and who is a store."""
        for kind, peers in ((FindTime, self._can_tell), (ConsumerHello, self._stores)):
            if (peer := heard.address_of(kind)) is not None:
                count = peers[peer] + (1 if heard.begins else -1)
                self._left.discard(peer)
                if count > 0 and (peer in peers or len(peers) < _PEERS_MAX):
                    peers[peer] = count
                else:
                    peers.pop(peer, None)
                    self._answered_s.pop(peer, None)

    def peer_gone(self, peer: str) -> None:
        """Nobody has heard of the peer for a while."""
        if peer in self._can_tell:
            self._left.add(peer)

    def rest(self, now_s: float) -> None:
        """The reader does not listen now: until it is called otherwise again, no time passes for those that it has
        asked."""
        if self._rests_since_s is None:
            self._rests_since_s = now_s

    def knows(self, partition: DafkaPartition) -> bool:
        """Whether the partition is looked for, or was given up."""
        return partition in self._searches or partition in self._given_up

    def met(self, partition: DafkaPartition, end: int, now_s: float, *, from_the_first: bool = False) -> list[Found]:
        """The partition was published up to `end`. `from_the_first`: its first record was published just now."""
        self._wake(now_s)
        if partition in self._given_up:
            return []
        if from_the_first:
            self._searches.pop(partition, None)
            return [Begun(partition, 0, end)]
        search = self._searches.get(partition)
        if search is not None:
            search.end = max(search.end, end)
            return []
        search = self._searches[partition] = _Search(now_s, end)
        return [*self._questions(partition, search, now_s)]

    def told(self, found: TimeFound, now_s: float) -> list[Found]:
        """Somebody has answered."""
        self._wake(now_s)
        partition = DafkaPartition(found.subject, found.producer)
        search = self._searches.get(partition)
        if search is None or found.at_ms != self.since_ms or found.sequence > SEQUENCES_END:
            return []
        if found.address not in search.asked_s:
            return []
        if found.address not in search.told:
            self._answered_s[found.address] = now_s
        self._left.discard(found.address)
        search.told[found.address] = found
        return self._concluded(partition, search, now_s)

    def tick(self, now_s: float) -> list[Found]:
        """Time has passed."""
        self._wake(now_s)
        done: list[Found] = []
        for partition, search in list(self._searches.items()):
            done += self._questions(partition, search, now_s)
            done += self._concluded(partition, search, now_s)
        return done

    def _wake(self, now_s: float) -> None:
        if self._rests_since_s is None:
            return
        rested_s, self._rests_since_s = now_s - self._rests_since_s, None
        for search in self._searches.values():
            search.met_s += rested_s
        self._answered_s = {peer: answered_s + rested_s for peer, answered_s in self._answered_s.items()}

    def _peers(self, partition: DafkaPartition) -> set[str]:
        """Who may know of the partition: all stores, and its producer."""
        peers = {store for store in self._stores if store in self._can_tell}
        return peers | ({partition.address} & self._can_tell.keys())

    def _questions(self, partition: DafkaPartition, search: _Search, now_s: float) -> Iterable[Send]:
        for peer in sorted(self._peers(partition)):
            told, asked_s = search.told.get(peer), search.asked_s.get(peer)
            is_due = asked_s is None or now_s >= asked_s + self._limits.retry_s
            if is_due and (told is None or told.known is KnownOfTime.NOTHING):
                search.asked_s[peer] = now_s
                yield Send(FindTime(peer, self._address, partition.address, partition.subject, self.since_ms))

    def _concluded(self, partition: DafkaPartition, search: _Search, now_s: float) -> list[Found]:
        silent = self._peers(partition) - search.told.keys() - self._left
        since_s = max([search.met_s, *(self._answered_s[peer] for peer in silent & self._answered_s.keys())])
        is_late = now_s >= since_s + self._limits.patience_s
        where = [one.sequence for one in search.told.values() if one.known is KnownOfTime.WHERE]
        begins = [one.sequence for one in search.told.values() if one.known is KnownOfTime.BEGINS]
        if where and (is_late or not silent):
            first = min(where + begins)
        elif begins and (is_late or (not silent and now_s >= search.met_s + self._limits.retry_s)):
            first = min(begins)
        elif is_late:
            del self._searches[partition]
            self._given_up.add(partition)
            knew = {peer for peer, told in search.told.items() if told.known is KnownOfTime.NOTHING}
            asked = search.asked_s.keys()
            return [GiveUpPartition(partition, self.since_ms, tuple(sorted(asked - knew)), tuple(sorted(knew)))]
        else:
            return []
        del self._searches[partition]
        return [Begun(partition, first, max(search.end, first))]
