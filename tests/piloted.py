"""How tests wait for the monitor's screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import textual._wait
from textual.pilot import Pilot

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def only_the_screen_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind each key textual waits for a process that computes no more, for a second at the most. Threads that other
    tests have left to ours compute a little, always: then each key takes that second."""
    monkeypatch.setattr(textual._wait, "process_time", time.thread_time)


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Wait on the screen's own loop, which goes on meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await pilot.pause()
