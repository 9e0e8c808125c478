"""What a browser is sent: server-sent events with what has changed since the last one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

from scribengin_tools.web.model.values import Json, changed_since
from scribengin_tools.web.model.watcher import Snapshot, Watcher

SPARK_ROWS = 40
"""So many of the last rows of each dataflow are sent first, for its small time line in the overview."""
_HEARTBEAT_S = 15.0
_RETRY_MS = 2_000


def event(snapshot: Snapshot, since: int, now_ms: int) -> Json:
    """What is new to somebody who has seen all up to `since` (0: nothing). Pure."""
    told: Json = {
        "seq": snapshot.seq,
        "now_ms": now_ms,
        "at_ms": snapshot.at_ms,
        "trouble": snapshot.trouble,
        "trouble_since_ms": snapshot.trouble_since_ms,
        "flows": changed_since(snapshot.flows, since),
    }
    if snapshot.names_seq > since:
        told["names"] = list(snapshot.flows)
    if snapshot.graph_seq > since:
        told["graph"] = snapshot.graph
    if snapshot.rows_seq > since:
        told["rows"] = snapshot.rows
    return told


async def events(watcher: Watcher, now_ms: Callable[[], int], welcome: Callable[[], bool]) -> AsyncIterator[str]:
    """The stream of one browser, until it leaves, is no longer `welcome`, or the server ends. A browser that is slow
    misses values, and never waits for old ones."""
    loop, changed, since = asyncio.get_running_loop(), asyncio.Event(), 0

    def tell() -> None:
        loop.call_soon_threadsafe(changed.set)

    with watcher.listening(tell):
        yield f"retry: {_RETRY_MS}\n\n"
        while not watcher.closed and welcome():
            changed.clear()
            snapshot = watcher.snapshot
            if snapshot.seq > since:
                told = event(snapshot, since, now_ms())
                if since == 0:
                    told["sparks"] = {name: watcher.rows(name, SPARK_ROWS) for name in snapshot.rows}
                since = snapshot.seq
                yield f"event: state\nid: {since}\ndata: {json.dumps(told, ensure_ascii=False)}\n\n"
            try:
                await asyncio.wait_for(changed.wait(), _HEARTBEAT_S)
            except TimeoutError:
                yield ": still here\n\n"
