"""Dataflows as their masters and workers write them down, without any process: what monitors are tested with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import (
    DataflowState,
    EdgeRates,
    PhaseTimes,
    RoundTimes,
    StreamLag,
    TaskReport,
    WorkerDescriptor,
    WorkerReport,
)
from scribengin.dataflow.registry.view import DataflowView
from scribengin.operations.chain.registry import ChainDescriptor, ChainMember, create_chain
from scribengin_registry.contract import Registry

NOW_MS = 1_780_000_000_000
_PHASES = {"plan": 3.1, "run": 41.0, "prepare": 7.4, "commit": 5.2, "complete": 1.6}


@dataclass(frozen=True, slots=True)
class StillClock:
    """Always NOW_MS; durations are none."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_s(self) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class StandingWallClock:
    """Its wall time is always that of its making, so no report grows old, however slow the machine is; durations are
    true."""

    at_ms: int = field(default_factory=SYSTEM_CLOCK.now_ms)

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s()


def task(
    number: int, *, per_s: float = 4_000.0, lag: int = 0, behind_s: float = 0.0, failures: int = 0, now_ms: int = NOW_MS
) -> TaskReport:
    """A task that has run for a while."""
    times = PhaseTimes(**_PHASES)
    return TaskReport(
        task=f"task-{number}",
        generation=number + 1,
        state="running" if lag else "idle",
        rounds=812,
        records_in=9_120_000,
        records_out=9_101_344,
        lag_records=lag,
        lag_age_s=0.4,
        last_commit_ms=now_ms - int(max(behind_s, 1.0) * 1000),
        round_ms=58.3,
        failures=failures,
        error="kafka-1:9092 does not answer within 30 s" if failures else None,
        in_per_s=per_s,
        out_per_s=per_s * 0.98,
        behind_s=behind_s,
        lag=(StreamLag(source="flights", stream=f"flights/{number}", records=lag),),
        times=RoundTimes(last=times, mean=times),
    )


def config(name: str, reads: str = "flights/*", writes: str = "late", workers: int = 2, **more: Any) -> DataflowConfig:
    """A dataflow's config."""
    value = {
        "name": name,
        "sources": {"flights": {"kind": "log", "logs": reads}},
        "sinks": {"late": {"kind": "log", "log": writes}},
        "sql": "SELECT payload FROM flights",
        "workers": workers,
        **more,
    }
    return DataflowConfig.parse(value, source="the test")


def rates(tasks: Iterable[TaskReport]) -> EdgeRates:
    """What goes over the edges of a dataflow with one source and one sink."""
    each = [EdgeRates(sources={"flights": task.in_per_s}, sinks={"late": task.out_per_s}) for task in tasks]
    return EdgeRates.total(each)


def put(
    registry: Registry,
    name: str,
    tasks: list[TaskReport],
    *,
    workers: int = 2,
    state: DataflowState = "running",
    now_ms: int = NOW_MS,
    reads: str = "flights/*",
    writes: str | None = None,
    **more: Any,
) -> DataflowView:
    """A dataflow with these tasks, spread over its workers, between the logs `reads` and `writes`; `more` is for its
    config."""
    view = DataflowView(registry, name)
    written = writes or f"late-{name}"
    parsed = config(name, reads, written, workers, **more)
    view.submit(parsed, [f"log:/logs/{written}"], now_ms - 3_600_000)
    for number in (1, 2):
        registry.create(f"{view.paths.master}/candidate-{number}")
    names = tuple(f"worker-{n + 1}" for n in range(workers))
    for number, worker in enumerate(names):
        view.register_worker(
            WorkerDescriptor(
                name=worker, container=worker, host="one", pid=1, executors=("executor-1",), started_ms=now_ms
            )
        )
        own = tuple(tasks[number::workers])
        view.set_report(
            WorkerReport(worker=worker, written_ms=now_ms - 400, tasks=own, rates=rates(own), spark_ready=True)
        )
    view.set_status(
        view.status().model_copy(
            update={"state": state, "master": "master-1", "workers": names, "tasks_total": len(tasks)}
        )
    )
    return view


def put_three(registry: Registry, now_ms: int = NOW_MS) -> None:
    """One that runs, one that has stalled, one that is paused."""
    running = [task(n, lag=1_200 * (n + 1), now_ms=now_ms) for n in range(4)]
    stuck = task(0, per_s=0.0, lag=84_210, behind_s=312.0, failures=4, now_ms=now_ms)
    idle = [task(n, per_s=0.0, now_ms=now_ms) for n in range(2)]
    put(registry, "flight_delays", running, now_ms=now_ms)
    put(registry, "flight_names", [stuck, task(1, lag=90, now_ms=now_ms)], now_ms=now_ms)
    put(registry, "heat_alarm", idle, workers=1, state="paused", now_ms=now_ms)


def put_chain(registry: Registry, name: str, *members: tuple[str, str]) -> None:
    """A chain of dataflows that are there: of each its name in the chain, and its own."""
    put_together = tuple(ChainMember(key=key, dataflow=dataflow) for key, dataflow in members)
    create_chain(registry, ChainDescriptor(name=name, members=put_together, config={}, submitted_ms=1))
