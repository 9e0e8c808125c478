"""What memory a worker holds while its state grows to ten times its container's: does it pass that?

The keeper of the container ends a worker that does, as in a container of YARN: then the benchmark fails. State is made
of keys that lie anywhere among those before, so RocksDB has to merge its files all the time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scribengin.base.clock import Clock
from scribengin.base.process.variables import CONTAINER_VARIABLE
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowError
from scribengin.launcher.local.processes import Group
from scribengin.launcher.local.supervisor import EXIT
from scribengin.log import DLSN
from scribengin.spark.session.memory import memory_mb_min
from scribengin.spark.transform.spec import StateReport
from scribengin_dev.bench.dataflows.flow import FlowBench, config_of
from scribengin_dev.bench.dataflows.state_restore import EACH_ONCE, STOP_S, append_keys, size_bytes
from scribengin_dev.bench.rows import Row
from scribengin_dev.harness.casualties import working_workers
from scribengin_dev.harness.installation import Installation
from scribengin_dev.harness.progress import FlowProgress

STATE_MEMORY = "state-memory"
_STATE_MB = 64
CONTAINER_MB = memory_mb_min(_STATE_MB, cores=1, with_jvms=False)
"""The smallest that `explain` does not warn of."""
TIMES = 10
"""State of a full run, at least so many times the container's memory."""
_KEY_BYTES = 4096
_AHEAD_MAX = 64 * 1024
"""So many records wait in the log at most. What was read is given up at once, or the disk would hold it all thrice."""
_BATCHES_KEPT = 10
"""A checkpoint keeps what 100 batches have read and merged: that of a full run would not fit most disks."""
_AT_ONCE = 16 * 1024
_START_S = 300.0
_YOUNG_S = 1.0
_ALL_S = 4 * 3600.0
_KIB, _MIB = 1024, 1024 * 1024
_GIB_MB = 1024
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class Held:
    """What all processes of a container hold, in bytes. `resident`: with the files that they have mapped, and what
    several share counts once for each; `shared_once` (PSS): once for all; `own`: without mapped files, which is what
    the keeper of a container goes by."""

    resident: int = 0
    shared_once: int = 0
    own: int = 0

    def most(self, other: Held) -> Held:
        """The larger of each."""
        return Held(
            max(self.resident, other.resident),
            max(self.shared_once, other.shared_once),
            max(self.own, other.own),
        )


class HeldByAll:
    """What the processes that `pids` names hold together, looked at again and again.

    A process counts once it has been there for a second. What Java starts has all of Java's memory, until it is another
    program: counted then, a container would hold twice what it does. The keeper looks twice a second, and counts a
    process from its second look on.
    """

    def __init__(self, pids: Callable[[], Iterable[int]], clock: Clock) -> None:
        self._pids = pids
        self._clock = clock
        self._since_s: dict[int, float] = {}
        self.most = Held()

    def look(self) -> Held:
        """What they hold now."""
        now_s = self._clock.monotonic_s()
        self._since_s = {pid: self._since_s.get(pid, now_s) for pid in self._pids()}
        held = [_held(pid) for pid, since_s in self._since_s.items() if now_s - since_s >= _YOUNG_S]
        now = Held(sum(h.resident for h in held), sum(h.shared_once for h in held), sum(h.own for h in held))
        self.most = self.most.most(now)
        return now


class ContainerOf:
    """The container of a dataflow's only worker, looked at from outside."""

    def __init__(self, place: Installation, dataflow: str) -> None:
        """The worker that has tasks now. Raises DataflowError: it has ended."""
        self._view = DataflowView(place.registry, dataflow)
        (self._worker,) = working_workers(place, dataflow)
        process = Path(f"/proc/{self._view.worker(self._worker).pid}")
        try:
            keeper = int(_fields(process / "status")["PPid"])
            environment = dict(one.partition(b"=")[::2] for one in (process / "environ").read_bytes().split(b"\0"))
            self._directory = Path(os.fsdecode(environment[CONTAINER_VARIABLE.encode()]))
            self.held = HeldByAll(Group(keeper, str(self._directory)).pids, place.clock)
        except (FileNotFoundError, ProcessLookupError):
            raise DataflowError(f"{self._worker} of '{dataflow}' ended before it was looked at") from None

    def look(self) -> None:
        """See what it holds now. Raises DataflowError: it has ended, and why."""
        ended = self._directory / EXIT
        if ended.exists():
            raise DataflowError(f"{self._worker} has ended: {json.loads(ended.read_text())['reason']}")
        self.held.look()

    def state(self) -> StateReport:
        """Its state, as it has last reported."""
        report = self._view.report(self._worker)
        kept = [task.kept for task in report.tasks if task.kept is not None] if report is not None else []
        return kept[0] if kept else StateReport()


def _held(pid: int) -> Held:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        found = _fields(Path(f"/proc/{pid}/smaps_rollup"))
        return Held(*(int(found[name].split()[0]) * _KIB for name in ("Rss", "Pss", "Anonymous")))
    return Held()


def _fields(file: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in file.read_text().splitlines())
    return {name: value.strip() for name, _, value in lines if value}


def state_memory(bench: FlowBench) -> Row:
    """One run: the most that the worker held, beside its container's memory. Raises DataflowError: it was ended."""
    place = bench.place
    folder = bench.folder / STATE_MEMORY
    folder.mkdir()
    (folder / "once.py").write_text(EACH_ONCE)
    place.namespace.create(f"{STATE_MEMORY}-in")
    keys = max(bench.scale.state_bytes * TIMES * CONTAINER_MB // _GIB_MB // _KEY_BYTES, 10)
    config = state_memory_config(folder)
    with FlowProgress(place, config, "src") as flow:
        container, passed = _run(place, config, flow, keys)
        place.wait_until(lambda: sum(container.state().rows.values()) == keys, STOP_S, f"{keys:,} keys to be kept")
        kept, most = container.state().bytes, container.held.most
    place.desire(config.name, "stopped")
    place.await_state(config.name, "stopped", timeout_s=STOP_S)
    first, last = (_KEY_BYTES * rate / _MIB for rate in tenths(passed, keys))
    said = (
        f"exactly once; {keys:,} keys of {_KEY_BYTES} bytes, {kept / _MIB:,.0f} MiB of state on the worker's disk and "
        f"{size_bytes(folder / 'state') / _MIB:,.0f} in the checkpoint; one worker of one core. At most "
        f"{most.own / _MIB:,.0f} MiB were its processes' own, by which whoever holds too much is ended, and "
        f"{most.resident / _MIB:,.0f} with what they share counted for each; "
        f"{first:.1f} MiB/s in the first tenth, {last:.1f} in the last"
    )
    peer = f"the container's memory; the state is {kept / _MIB / CONTAINER_MB:.1f} times as much"
    return Row(STATE_MEMORY, "MB", most.shared_once / _MIB, CONTAINER_MB, peer, said)


def state_memory_config(folder: Path, **container: Any) -> DataflowConfig:
    """One worker of one core, as small as can be."""
    return config_of(
        STATE_MEMORY,
        {"kind": "log", "logs": f"{STATE_MEMORY}-in"},
        {"kind": "log", "log": f"{STATE_MEMORY}-out"},
        sql=None,
        executors=1,
        transformation="once:transform",
        package=str(folder),
        container={"memory_mb": CONTAINER_MB, "cores": 1, **container},
        spark={"conf": {"spark.sql.streaming.minBatchesToRetain": str(_BATCHES_KEPT)}},
        state={"checkpoints": str(folder / "state"), "unbounded": ["duplicates"], "memory_mb": _STATE_MB},
    )


def _run(
    place: Installation, config: DataflowConfig, flow: FlowProgress, keys: int
) -> tuple[ContainerOf, list[tuple[int, int]]]:
    """Feed keys until all are committed: the container as it was seen, and how many were, when."""
    log, appended, passed = f"{STATE_MEMORY}-in", 0, [(place.clock.now_ms(), 0)]
    containers: list[ContainerOf] = []
    with place.namespace.open_writer(log) as writer:
        append_keys(writer, 0, 1, _KEY_BYTES, scattered=True)
        appended = 1
        place.submit(config)
        place.wait_until(lambda: bool(working_workers(place, config.name)), _START_S, "a worker to have the task")
        containers.append(ContainerOf(place, config.name))

        def through() -> bool:
            nonlocal appended
            place.check(config.name)
            containers[0].look()
            lag = flow.lag()
            passed.append((place.clock.now_ms(), appended - lag))
            if appended < keys and lag < _AHEAD_MAX:
                count = min(_AT_ONCE, keys - appended)
                append_keys(writer, appended, count, _KEY_BYTES, scattered=True)
                appended += count
                _give_up(place, log, flow)
            return appended == keys and lag == 0

        place.wait_until(through, _ALL_S, f"{config.name} to read everything")
    return containers[0], passed


def _give_up(place: Installation, log: str, flow: FlowProgress) -> None:
    """What the dataflow has committed."""
    position = flow.commits.position(log)
    if position is not None:
        before = DLSN(int(position["segment"]), int(position["entry"]), int(position["slot"]))
        if place.namespace.truncate(log, before):
            place.namespace.purge(log)


def tenths(passed: Sequence[tuple[int, int]], keys: int) -> tuple[float, float]:
    """Keys a second in the first tenth of all, from the first commit on, and in the last; `passed` is at what time, in
    ms, how many were committed."""

    def since(count: int) -> tuple[int, int]:
        return next(one for one in passed if one[1] >= count)

    begin, early, late, end = (since(count) for count in (1, max(keys // 10, 2), keys - keys // 10, keys))
    return _rate(begin, early), _rate(late, end)


def _rate(one: tuple[int, int], other: tuple[int, int]) -> float:
    return _MS_PER_S * (other[1] - one[1]) / max(1, other[0] - one[0])
