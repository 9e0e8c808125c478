"""Where a simulation takes the engine over: its names for threads, queues, time, what is unique, and processes.

Modules of the engine import `threading`, `queue`, `time`, `uuid` and call what is in them. While a simulation runs,
these names in these modules, and in those of `concurrent.futures`, mean the simulator's; those of everybody else (the
test runner's own threads among them) stay. So production code knows nothing of it. A house rule holds that only the
clock and the registry's deadline read time.

What stands in nodes is read once, and remembered by its bytes: many processes read the same, again and again.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from scribengin.base.model import Config, Descriptor
from scribengin.base.process.machine import this_process
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.config_node import config_from_bytes
from scribengin.testing.simulation import primitives
from scribengin.testing.simulation.scheduler import Scheduler

EPOCH_S = 1_700_000_000
"""When every simulation begins."""
_OURS = ("scribengin.", "scribengin_registry.")
_OTHERS = ("concurrent.futures._base", "concurrent.futures.thread")
_REMEMBERED = 4096
_FROM_BYTES = "from_bytes"
_READ: Callable[..., Descriptor] = vars(Descriptor)[_FROM_BYTES].__func__
"""With its class as an argument."""
_PARSE = "parse"
_VALIDATED: Callable[..., Config] = vars(Config)[_PARSE].__func__
"""The same."""
_REAL = {
    "threading": threading,
    "queue": queue,
    "time": time,
    "uuid": uuid,
    "this_process": this_process,
    "config_from_bytes": config_from_bytes,
}
_NOT = ("scribengin.testing.simulation.", "scribengin.testing.memory.disk")
"""A disk does one thing at a time: the real lock of one is free whenever a simulated thread is overtaken."""


class _Namespace:
    """A module with some names that mean something else."""

    def __init__(self, module: ModuleType, names: dict[str, Any]) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@contextmanager
def taken_over(scheduler: Scheduler) -> Iterator[None]:
    """While the block lasts, the engine's threads, queues, time, unique names and process are this scheduler's."""
    instead = _namespaces(scheduler)
    kept: list[tuple[object, str, Any]] = [
        (Descriptor, _FROM_BYTES, vars(Descriptor)[_FROM_BYTES]),
        (Config, _PARSE, vars(Config)[_PARSE]),
    ]
    primitives.activate(scheduler)
    try:
        setattr(Descriptor, _FROM_BYTES, classmethod(cast(Any, _descriptor)))
        setattr(Config, _PARSE, classmethod(cast(Any, _parsed)))
        for module, name in _uses(len(sys.modules)):
            real, simulated = instead[name]
            kept.append((module, name, real))
            setattr(module, name, simulated)
        yield
    finally:
        for where, name, real in kept:
            setattr(where, name, real)
        primitives.activate(None)


@lru_cache(maxsize=1)
def _uses(_imported: int) -> list[tuple[ModuleType, str]]:
    """Modules, and what they have of these names; looked for again once more are imported."""
    return [
        (module, name)
        for module_name, module in list(sys.modules.items())
        if (module_name.startswith(_OURS) and not module_name.startswith(_NOT)) or module_name in _OTHERS
        for name, real in _REAL.items()
        if vars(module).get(name) is real
    ]


def _namespaces(scheduler: Scheduler) -> dict[str, tuple[Any, Any]]:
    threads = {
        "Lock": primitives.SimulatedLock,
        "RLock": primitives.SimulatedRLock,
        "Condition": primitives.Condition,
        "Event": primitives.Event,
        "Semaphore": primitives.Semaphore,
        "Thread": primitives.Thread,
        "Timer": primitives.Timer,
        "current_thread": primitives.current_thread,
        "get_ident": primitives.get_ident,
    }
    queues = {"SimpleQueue": primitives.SimpleQueue, "Queue": primitives.SimpleQueue}
    clock = _clock(scheduler)
    unique = {"uuid4": lambda: uuid.UUID(int=scheduler.random.getrandbits(128), version=4)}
    instead = {
        "threading": _Namespace(threading, threads),
        "queue": _Namespace(queue, queues),
        "time": _Namespace(time, clock),
        "uuid": _Namespace(uuid, unique),
        "this_process": primitives.this_process,
        "config_from_bytes": _config,
    }
    return {name: (real, instead[name]) for name, real in _REAL.items()}


@lru_cache(maxsize=_REMEMBERED)
def _descriptor(kind: type[Descriptor], data: bytes, *, path: str) -> Descriptor:
    """Descriptor.from_bytes"""
    return _READ(kind, data, path=path)


def _parsed(kind: type[Config], value: Any, *, source: str) -> Config:
    """Config.parse"""
    try:
        data = to_json(value)
    except (PydanticSerializationError, ValueError):
        return _VALIDATED(kind, value, source=source)
    return _parsed_json(kind, data, source)


@lru_cache(maxsize=_REMEMBERED)
def _parsed_json(kind: type[Config], data: bytes, source: str) -> Config:
    return _VALIDATED(kind, from_json(data), source=source)


@lru_cache(maxsize=_REMEMBERED)
def _config(data: bytes, path: str) -> DataflowConfig:
    """dataflow.registry.config_node.config_from_bytes"""
    return config_from_bytes(data, path)


def _clock(scheduler: Scheduler) -> dict[str, Any]:
    """Simulated time for simulated threads; other threads of this process keep the machine's."""
    own = threading.get_ident()

    def monotonic() -> float:
        return scheduler.now_s if threading.get_ident() == own else time.monotonic()

    def time_ns() -> int:
        if threading.get_ident() != own:
            return time.time_ns()
        return (EPOCH_S * 1_000_000 + round(scheduler.now_s * 1_000_000)) * 1000

    return {"monotonic": monotonic, "time_ns": time_ns}
