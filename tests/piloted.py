"""How tests wait for the monitor's screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.pilot import Pilot

PATIENCE_S = 60.0


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Wait on the screen's own loop, which goes on meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await pilot.pause()
