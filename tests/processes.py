"""Programs that tests start: none of them holds up a run."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import AnyStr

END_MAX_S = 240.0


class Process(subprocess.Popen[AnyStr]):
    """As `subprocess.Popen`, whose block and `wait` wait for the program's end, however long that takes.

    Here it is killed where the block fails, and where its end does not come: which raises TimeoutExpired.
    """

    def wait(self, timeout: float | None = None) -> int:
        try:
            return super().wait(END_MAX_S if timeout is None else timeout)
        except subprocess.TimeoutExpired:
            if timeout is None:
                self.kill()
                super().wait()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, traceback)
