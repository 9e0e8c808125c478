"""Which containers on YARN are to be replaced, as their tokens end in a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from scribengin.launcher.contract import ContainerDescriptor
from scribengin.launcher.yarn.application_master.launcher import YarnLauncher
from scribengin.launcher.yarn.launching import Kit
from scribengin.launcher.yarn.roster import Roster
from scribengin.testing.clocks import ManualClock


@dataclass
class Running:
    """What a launcher asks of a fleet, where nothing ends."""

    containers: list[ContainerDescriptor]

    def running(self) -> list[ContainerDescriptor]:
        return self.containers

    def on_exit(self, _listener: Any) -> None: ...

    def forget(self, _listener: Any) -> None: ...


def launched(name: str, at_ms: int) -> ContainerDescriptor:
    return ContainerDescriptor(
        id=name, registry="r", dataflow="flow", name=name, memory_mb=1, cores=1, launched_ms=at_ms
    )


def ageing(clock: ManualClock, containers: list[ContainerDescriptor], age_max_ms: int | None) -> frozenset[str]:
    fleet = cast("Roster[Any]", Running(containers))
    with YarnLauncher(fleet, Kit(python="python"), clock, age_max_ms=lambda: age_max_ms) as launcher:
        return launcher.ageing()


def test_containers_of_half_a_tokens_life_are_to_be_replaced() -> None:
    clock = ManualClock()
    now_ms = clock.now_ms()
    containers = [launched("worker-1", now_ms - 1000), launched("worker-2", now_ms - 999)]
    assert ageing(clock, containers, 1000) == {"worker-1"}


def test_where_tokens_do_not_end_nobody_is_replaced() -> None:
    clock = ManualClock()
    assert ageing(clock, [launched("worker-1", clock.now_ms() - 10**12)], None) == frozenset()
