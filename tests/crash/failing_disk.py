"""Files in memory whose power fails before some operation."""

from __future__ import annotations

from collections.abc import Callable

from scribengin.testing.memory.disk_states import Operation
from scribengin.testing.memory.files import MemoryFiles


class PowerFailure(BaseException):
    """Ends everything that runs."""


class FailingDisk:
    """Files in memory, as the script wants its disk, whose power fails before some operation."""

    root = "in-memory:/"

    def __init__(self, files: MemoryFiles, fails_before: int) -> None:
        self._left = fails_before
        self.hook: Callable[[Operation], object] = lambda _operation: None
        files.hook = self._happens

    def mark(self, event: object) -> None:
        """Nobody keeps a record."""

    def _happens(self, operation: Operation) -> None:
        self._left -= 1
        if self._left < 0:
            raise PowerFailure
        self.hook(operation)
