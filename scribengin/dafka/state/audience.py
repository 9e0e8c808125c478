"""Who hears a role, as far as it matters for what it sends: whether all of them take many records in one frame.

Nobody says so: it shows in what they subscribe to. A role of ours subscribes to records and, behind that, to batches of
the same; a C program subscribes to records alone, and knows nothing else. So batches are published as long as nobody
listens to records who does not listen to batches, too. Else each record has its frame, which everybody takes. One form
is sent at a time, on one socket: nothing comes twice, and nothing overtakes.

Who joins or leaves is heard of a little later than frames are filtered for it. Who misses some by that fetches them, as
everybody who comes late.
"""

from __future__ import annotations

from collections import Counter

from scribengin.dafka.wire import DirectBatch, DirectRecord, LiveBatch, LiveRecord, Subscription, topic_prefix

_REQUESTERS_MAX = 100_000
_LEFT_MAX = 10_000


class Audience:
    """Told every subscription to a role's socket and every end of one, also those that end with their connection."""

    def __init__(self, subject: str = "") -> None:
        self._records = topic_prefix(LiveRecord, subject)
        self._batches = topic_prefix(LiveBatch, subject)
        self._of_records = self._of_batches = 0
        self._requesters: Counter[str] = Counter()

    @property
    def takes_batches(self) -> bool:
        """Whether whoever listens to records of the topic takes batches."""
        return self._of_records <= self._of_batches

    def takes_direct_batches(self, requester: str) -> bool:
        """Whether what that one fetches may come in batches."""
        return requester in self._requesters

    def heard(self, heard: Subscription) -> None:
        """Somebody has subscribed, or has ended that."""
        step = 1 if heard.begins else -1
        if self._records.startswith(heard.prefix):  # also who subscribes to everything
            self._of_records = max(0, self._of_records + step)
        elif self._batches.startswith(heard.prefix):
            self._of_batches = max(0, self._of_batches + step)
        elif (requester := heard.address_of(DirectBatch)) is not None:
            self._counted(requester, step)

    def _counted(self, requester: str, step: int) -> None:
        count = self._requesters[requester] + step
        if count > 0 and (requester in self._requesters or len(self._requesters) < _REQUESTERS_MAX):
            self._requesters[requester] = count
        else:
            self._requesters.pop(requester, None)


class Attendance:
    """Whose connections to a role have ended, by what they have subscribed to for themselves: what they fetch. Stores
    do so, those of C, too, and a connection that ends, ends its subscriptions. Of who was never heard, nothing is
    known."""

    def __init__(self) -> None:
        self._here: Counter[str] = Counter()
        self._left: dict[str, None] = {}
        """Those that were here before. So many are remembered: the oldest are forgotten."""

    def has_left(self, peer: str) -> bool:
        """Whether it was here before, and is not any more."""
        return peer in self._left

    def heard(self, heard: Subscription) -> bool:
        """Told every subscription, and every end of one. Whether somebody is back who had left."""
        peer = heard.address_of(DirectRecord)
        if peer is None:
            return False
        here = self._here[peer] + (1 if heard.begins else -1)
        if here > 0:
            if peer in self._here or len(self._here) < _REQUESTERS_MAX:
                self._here[peer] = here
            was_away = peer in self._left
            self._left.pop(peer, None)
            return was_away
        self._here.pop(peer, None)
        self._left[peer] = None
        if len(self._left) > _LEFT_MAX:
            del self._left[next(iter(self._left))]
        return False
