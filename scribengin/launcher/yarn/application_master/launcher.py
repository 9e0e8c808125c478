"""The launcher contract on YARN, inside the process that asks for an application's containers."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.model import node_name
from scribengin.base.threads import background
from scribengin.errors import LauncherError
from scribengin.launcher.contract import (
    ContainerDescriptor,
    ContainerExit,
    ContainerLauncher,
    ContainerRequest,
    ExitListener,
    LogName,
    last_lines,
)
from scribengin.launcher.yarn.application_master import container as inside
from scribengin.launcher.yarn.launching import KIT_VARIABLE, Kit, Program
from scribengin.launcher.yarn.roster import Roster
from scribengin_registry.errors import NodeMissing, OutcomeUnknown, RegistryUnreachable

_LOG_BYTES_MAX = 8192


class YarnLauncher(ContainerLauncher):
    """Containers of this process's application; any number of launchers may look at one fleet."""

    def __init__(
        self,
        fleet: Roster[Any],
        kit: Kit,
        clock: Clock = SYSTEM_CLOCK,
        tokens: Callable[[], Any] = lambda: None,
        age_max_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`tokens` gives those for a container that is started now, as in `Program`; `age_max_ms`, at which age it is
        to be replaced because they end."""
        self._fleet = fleet
        self._kit = kit
        self._tokens = tokens
        self._age_max_ms = age_max_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: set[str] = set()
        self._told: set[str] = set()
        self._listeners: list[ExitListener] = []
        fleet.on_exit(self._ended)

    def launch(self, request: ContainerRequest) -> ContainerDescriptor:
        container = ContainerDescriptor(
            id=f"{node_name(request.name)}-{uuid.uuid4().hex[:12]}",
            registry=request.registry,
            dataflow=request.dataflow,
            name=request.name,
            memory_mb=request.memory_mb,
            cores=request.cores,
            launched_ms=self._clock.now_ms(),
        )
        argv = [sys.executable, "-m", inside.__name__, str(request.memory_mb), *self._program(request)]
        with self._lock:
            self._watched.add(container.id)
        try:
            self._fleet.launch(container, Program(argv, request.env, self._kit, self._tokens()))
        except (RegistryUnreachable, OutcomeUnknown, NodeMissing) as error:
            raise LauncherError(f"container '{request.name}' of {request.dataflow} left no record: {error}") from error
        return container

    def attach(self, container: ContainerDescriptor) -> None:
        with self._lock:
            if container.id in self._watched:
                return
            self._watched.add(container.id)
        if self._fleet.exit(container) is not None:
            background("container-ended", partial(self._tell_again, container)).start()

    def poll(self, container: ContainerDescriptor) -> ContainerExit | None:
        return self._fleet.exit(container)

    def kill(self, container: ContainerDescriptor) -> None:
        self._fleet.kill(container)

    def containers(self, registry: str, dataflow: str) -> list[ContainerDescriptor]:
        return [c for c in self._fleet.running() if (c.registry, c.dataflow) == (registry, dataflow)]

    def waiting(self) -> frozenset[str]:
        return frozenset(self._fleet.waiting())

    def ageing(self) -> frozenset[str]:
        age_max_ms = self._age_max_ms()
        if age_max_ms is None:
            return frozenset()
        since_ms = self._clock.now_ms() - age_max_ms
        return frozenset(c.name for c in self._fleet.running() if c.launched_ms <= since_ms)

    def log_tail(self, container: ContainerDescriptor, name: LogName, lines_max: int = 12) -> str:
        return last_lines(self._fleet.log_end(container, name, _LOG_BYTES_MAX), lines_max)

    def on_exit(self, listener: ExitListener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def close(self) -> None:
        self._fleet.forget(self._ended)

    def _program(self, request: ContainerRequest) -> list[str]:
        """The interpreter of this process is not that of the container."""
        return [self._kit.python if word == sys.executable else word for word in request.argv]

    def _ended(self, container: ContainerDescriptor, how: ContainerExit) -> None:
        with self._lock:
            if container.id not in self._watched or container.id in self._told:
                return
            self._told.add(container.id)
            listeners = list(self._listeners)
        for listener in listeners:
            listener(container, how)

    def _tell_again(self, container: ContainerDescriptor) -> None:
        how = self._fleet.exit(container)
        if how is not None:
            self._ended(container, how)


def kit_from_environment() -> Kit:
    """The kit that whoever submitted the application has given to its master. Raises LauncherError."""
    text = os.environ.get(KIT_VARIABLE)
    if not text:
        raise LauncherError("this process is no application master: YARN has not started it (submit the dataflow)")
    return Kit.decoded(text)
