"""What a proxy has of logs: writers of those that it owns, and segments that are open."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from scribengin.errors import ScribenginError, StoreUnreachable
from scribengin.log import LogWriter
from scribengin.log.metadata.names import check_log_name
from scribengin.log.store.contract import SegmentName
from scribengin.log.write.results import SlotRange
from scribengin.proxy.config import RateConfig
from scribengin.proxy.state.balance import LoadMeter
from scribengin.proxy.state.rates import RateCounts, RateMeter

_log = logging.getLogger(__name__)


@dataclass
class OwnedLog:
    """A log, and its writer while the proxy has one."""

    name: str
    rates: RateMeter
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while it is taken or given up, never while records are written."""
    writer: LogWriter | None = None
    session: int = 0
    """The registry session in which it was claimed."""
    load: LoadMeter = field(default_factory=LoadMeter)
    taken_s: float = 0.0
    """When it was claimed."""
    handed_to: str | None = None
    """The address of the proxy for which it was given up, and until when that one is to have taken it."""
    handed_until_s: float = 0.0

    @property
    def is_lost(self) -> bool:
        """Whether its writer has failed, and is still there."""
        return self.writer is not None and self.writer.failed


class OwnedLogs:
    """The logs that a proxy was asked for. A name has one of these for all who use it just now, and only the ones that
    are kept stay. Not thread-safe."""

    def __init__(self, rates: RateConfig, counts: RateCounts) -> None:
        """`rates` are those of each log, and `counts` those of all."""
        self._rates = rates
        self._counts = counts
        self._used: WeakValueDictionary[str, OwnedLog] = WeakValueDictionary()
        """Clients ask for any name: what is neither kept nor in use goes by itself."""
        self._kept: dict[str, OwnedLog] = {}

    def __iter__(self) -> Iterator[OwnedLog]:
        return iter(list(self._used.values()))

    def find(self, name: str) -> OwnedLog:
        """The log of that name, which has one owner whatever it is called. Raises InvalidLogName."""
        log = self._used.get(name)
        if log is None:
            bare = check_log_name(name)
            fresh = OwnedLog(bare, RateMeter(self._rates, f"log '{bare}'", self._counts))
            log = self._used.setdefault(bare, fresh)
        return log

    def written(self) -> list[OwnedLog]:
        """Those that have a writer which is well, as far as it is known."""
        return [log for log in self._kept.values() if log.writer is not None and not log.writer.failed]

    def keep(self, log: OwnedLog) -> None:
        """It has a writer, or was handed over: it stays as long as that says something."""
        self._kept[log.name] = log

    def forget_idle(self, now_s: float) -> None:
        """Keep none that has no writer, and was handed over to nobody just now."""
        self._kept = {
            name: log for name, log in self._kept.items() if log.writer is not None or now_s < log.handed_until_s
        }


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Records that a writer has, and that are on their way to the disk."""

    log: OwnedLog
    writer: LogWriter
    future: Future[tuple[SlotRange, ...]]


@dataclass
class HeldSegment(ABC):
    """A segment that is open, and used by one at a time. Who ends it waits for no user: a store may be stalled."""

    name: SegmentName
    lock: threading.Lock = field(default_factory=threading.Lock, kw_only=True)
    closed: bool = field(default=False, kw_only=True)

    @contextmanager
    def using(self, wait_s: float = -1) -> Iterator[None]:
        """Hold it alone, which may take so long (-1: for ever). Whoever ends it meanwhile leaves the closing to us.

        Raises StoreUnreachable.
        """
        if not self.lock.acquire(timeout=wait_s):
            raise StoreUnreachable(
                f"segment {self.name}: its store has not answered for {wait_s:g} s who asked before; see whether the "
                "store is well"
            )
        try:
            try:
                yield
            finally:
                self.lock.release()
        finally:
            if self.closed:
                self._shut()

    def end(self) -> None:
        """Let nothing more be done to it, and close it, at the latest when what is under way is done. Idempotent."""
        self.closed = True
        self._shut()

    @abstractmethod
    def close_file(self) -> None:
        """Release what is open of it. Idempotent."""

    def _shut(self) -> None:
        if self.lock.acquire(blocking=False):  # else whoever holds it looks after that
            try:
                self.close_file()
            except (OSError, ScribenginError) as error:  # nobody waits for it
                _log.warning("segment %s was not closed in order: %s", self.name, error)
            finally:
                self.lock.release()
