"""How tests of asyncio look again and again, without letting time pass."""

from __future__ import annotations

import asyncio


async def one_turn() -> None:
    """Let the loop do once what it has to do."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned
