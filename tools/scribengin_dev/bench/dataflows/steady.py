"""A dataflow under a steady load, for benchmarks that disturb it: how it is started, settled and watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scribengin.dataflow.config import DataflowConfig
from scribengin_dev.harness.casualties import working_workers
from scribengin_dev.harness.installation import Installation
from scribengin_dev.harness.producer import Producer
from scribengin_dev.harness.progress import FlowProgress
from scribengin_dev.harness.standstill import SeenCommit, of_stream
from scribengin_tools.logs.benchmark import records_batch

STREAMS = 4
RECORDS_PER_S = 200
"""Into each stream."""
_RECORD_BYTES = 100
_FEED_S = 3600.0
_TIMEOUT_S = 300.0
_SETTLED_ROUNDS = 8


@contextmanager
def fed_dataflow(place: Installation, name: str, launcher: str, workers: int) -> Iterator[FlowProgress]:
    """A dataflow `name` whose tasks all work, over STREAMS logs that are appended to all the time."""
    logs = [f"{name}-in/{k}" for k in range(STREAMS)]
    for log in logs:
        place.namespace.create(log)
    batch = records_batch(_RECORD_BYTES, int(RECORDS_PER_S * _FEED_S))
    feed = Producer(
        place.namespace, logs, [batch] * STREAMS, first=RECORDS_PER_S, duration_s=_FEED_S, clock=place.clock
    )
    config = _config(name, launcher, workers)
    place.submit(config)
    with FlowProgress(place, config, "src") as flow:
        feed.start()
        feed.go_on()
        try:
            await_workers(place, flow, workers)
            yield flow
            feed.check()
        finally:
            feed.stop()


def _config(name: str, launcher: str, workers: int) -> DataflowConfig:
    value = {
        "name": name,
        "sources": {"src": {"kind": "log", "logs": f"{name}-in/*"}},
        "sinks": {"out": {"kind": "log", "log": f"{name}-out"}},
        "sql": "SELECT upper(cast(payload AS string)) AS payload FROM src",
        "workers": workers,
        "launcher": launcher,
    }
    return DataflowConfig.parse(value, source="the benchmark's dataflow")


def await_workers(place: Installation, flow: FlowProgress, count: int) -> None:
    """Until so many workers have tasks, and each stream some rounds by whoever has it now: the first ones of a new
    worker are slow, and what is measured next shall not be blamed for them."""
    since_ms = place.clock.now_ms()

    def settled() -> bool:
        last = [commits[-_SETTLED_ROUNDS:] for commits in rounds_of(flow).values()]
        steady = all(
            len(rounds) == _SETTLED_ROUNDS and rounds[0].at_ms > since_ms and len({c.owner for c in rounds}) == 1
            for rounds in last
        )
        owners = {rounds[-1].owner.partition("/")[0] for rounds in last if rounds}
        return steady and len(owners) == count and owners == set(working_workers(place, flow.dataflow))

    wait_for(place, flow, settled, f"{count} workers to work")


def rounds_of(flow: FlowProgress) -> dict[str, list[SeenCommit]]:
    """What was committed so far, by stream."""
    seen = flow.commits.seen()
    return {stream: of_stream(seen, stream) for stream in flow.streams}


def wait_for(place: Installation, flow: FlowProgress, condition: Callable[[], bool], what: str) -> None:
    """Return once it holds. Raises DataflowError when the dataflow fails, or it does not for long."""

    def look() -> bool:
        place.check(flow.dataflow)
        flow.commits.check()
        return condition()

    place.wait_until(look, _TIMEOUT_S, what)
