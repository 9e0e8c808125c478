"""How long a master takes to plan a dataflow of many tasks, and to have all of them placed; and what it asks of the
registry once they are.

The master is a real one. Its workers do no work: they take tasks, report them, and wait.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event

from scribengin.base.clock import Clock
from scribengin.errors import ServerDown
from scribengin_dev.bench.rows import Row
from scribengin_dev.harness.idle_workers import Led, are_placed, led_by_masters, submit_all
from scribengin_dev.soak.measuring import server_figures
from scribengin_registry.contract import Registry
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.opening import connect

PLANS = {f"plan-{count}": count for count in (100, 1_000, 10_000)}
"""Benchmark -> tasks."""
_TASKS_A_WORKER = 250
_WITHIN_S = 60.0
"""In which 10,000 tasks are to be placed."""
_LOOK_S = 0.1
_TIMEOUT_S = 600.0
_REST_S = 10.0


def plan(base: Path, name: str, clock: Clock) -> list[Row]:
    """Tasks a second from when the master begins to when all are with workers; then registry requests a second, while
    nothing happens. Raises ServerDown when they are not placed in time."""
    tasks = PLANS[name]
    workers = -(-tasks // _TASKS_A_WORKER)
    folder = base / name
    with EmbeddedZooKeeper(folder / "registry") as server, connect(server.hosts) as registry:
        submit_all(registry, [name], folder, tasks, workers=workers)
        begun_s = clock.monotonic_s()
        with led_by_masters(server.hosts, [name], folder / "home", clock=clock) as led:
            _await_placed(led, registry, name, tasks, clock)
            took_s = clock.monotonic_s() - begun_s
            asked = _requests_at_rest(server, clock)
    what = f"{tasks:,} logs, a task each, for {workers} workers that do no work; one master, an embedded ZooKeeper"
    return [
        Row(name, "tasks/s", tasks / took_s, 10_000 / _WITHIN_S, f"10,000 within {_WITHIN_S:g} s", what),
        Row(f"{name}-requests", "requests/s", asked, None, "no limit: what all of them ask at rest", what),
    ]


def _await_placed(led: Led, registry: Registry, name: str, tasks: int, clock: Clock) -> None:
    until_s = clock.monotonic_s() + _TIMEOUT_S
    while not are_placed(registry, name, tasks):
        led.check()
        if clock.monotonic_s() > until_s:
            raise ServerDown(f"{name}: the tasks were not placed within {_TIMEOUT_S:g} s")
        Event().wait(_LOOK_S)


def _requests_at_rest(server: EmbeddedZooKeeper, clock: Clock) -> float:
    begun_s, before = clock.monotonic_s(), server_figures(server.hosts)["packets_received"]
    Event().wait(_REST_S)
    return (server_figures(server.hosts)["packets_received"] - before) / (clock.monotonic_s() - begun_s)
