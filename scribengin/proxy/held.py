"""What a proxy has open of a store for its clients."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from scribengin.errors import ScribenginError, StoreUnreachable
from scribengin.log.store.contract import SegmentName

_log = logging.getLogger(__name__)


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
