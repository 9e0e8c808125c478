"""A log as the proxy sees it that writes it, or did, or may."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from scribengin.log import LogWriter
from scribengin.proxy.state.balance import LoadMeter
from scribengin.proxy.state.rates import RateMeter


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
