"""The monitor while its registry is away, and afterwards: it says so, and looks again as soon as there is something to
see."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from textual.css.query import NoMatches
from textual.pilot import Pilot
from textual.timer import Timer
from textual.widgets import Static

from scribengin.monitoring.overview import DataflowOverview
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin_registry.contract import SessionState
from scribengin_registry.errors import RegistryUnreachable
from scribengin_tools.monitor.actions import MonitorActions
from scribengin_tools.monitor.app import PERIOD_S, MonitorApp
from tests.piloted import only_the_screen_is_waited_for, until

__all__ = ["only_the_screen_is_waited_for"]
OUTAGE_S = 20.0


@dataclass
class SetClock:
    """A clock that goes on when it is told to."""

    now_s: float = 0.0

    def now_ms(self) -> int:
        return round(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s


@dataclass(frozen=True, slots=True)
class SlowActions(MonitorActions):
    """Each look does what the next of `acts` does; there is none at the end."""

    acts: list[Callable[[], object]] = field(default_factory=list)

    def look(self) -> tuple[DataflowOverview, ...]:
        if self.acts:
            self.acts.pop(0)()
        return ()


class TimedApp(MonitorApp):
    """The monitor, which keeps how long it waits before it looks again, and waits for next to nothing."""

    def __init__(self, operator: MonitorActions) -> None:
        super().__init__(operator)
        self.pauses: list[float] = []

    def set_timer(self, delay: float, *arguments: Any, **options: Any) -> Timer:
        self.pauses.append(delay)
        return super().set_timer(0.01, *arguments, **options)


@pytest.fixture
def registry(memory_registry: MemoryRegistry) -> MemoryRegistry:
    return memory_registry


def played(app: MonitorApp, play: Callable[[Pilot[None]], Awaitable[None]]) -> None:
    async def run() -> None:
        async with app.run_test() as pilot:
            await play(pilot)

    asyncio.run(run())


def trouble(app: MonitorApp) -> str:
    return str(app.query_one("#trouble", Static).render())


def test_a_look_that_failed_is_followed_by_the_next_one_as_soon_as_any(registry: MemoryRegistry) -> None:
    clock = SetClock()

    def fails() -> None:
        clock.now_s += OUTAGE_S
        raise RegistryUnreachable("no server answers")

    app = TimedApp(SlowActions(registry, clock=clock, acts=[fails]))

    async def play(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(app.pauses) >= 2)

    played(app, play)
    assert app.pauses[:2] == [PERIOD_S, PERIOD_S]


def test_so_is_one_that_an_outage_has_held_up_and_a_slow_one_has_its_pause(
    ensemble: MemoryEnsemble, registry: MemoryRegistry
) -> None:
    clock, told = SetClock(), threading.Event()

    def is_held_up() -> None:
        registry.on_session(lambda state: told.set() if state is SessionState.CONNECTED else None)
        ensemble.suspend(registry)
        ensemble.resume(registry)
        clock.now_s += OUTAGE_S
        told.wait()  # the monitor has listened for longer, and hears of it before

    def is_slow() -> None:
        clock.now_s += OUTAGE_S

    app = TimedApp(SlowActions(registry, clock=clock, acts=[is_held_up, is_slow]))

    async def play(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(app.pauses) >= 2)

    played(app, play)
    assert app.pauses[:2] == [PERIOD_S, 5 * OUTAGE_S]


def test_that_the_registry_does_not_answer_is_said_at_once(ensemble: MemoryEnsemble, registry: MemoryRegistry) -> None:
    answers = threading.Event()
    app = TimedApp(SlowActions(registry, acts=[lambda: None, answers.wait]))
    words: list[str] = []

    async def play(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.pauses))
        ensemble.suspend(registry)
        try:
            await until(pilot, lambda: bool(trouble(app)))
            words.append(trouble(app))
        finally:
            ensemble.resume(registry)
            answers.set()
        await until(pilot, lambda: not trouble(app))

    played(app, play)
    assert words == [f"the registry {registry.hosts} does not answer; what is shown is from before"]


def test_what_a_look_has_found_when_the_screen_is_gone_is_not_shown(registry: MemoryRegistry) -> None:
    told_of: Future[Any] = Future()

    class EndingApp(TimedApp):
        """It ends when a look is about to tell what it has found."""

        def call_from_thread(self, callback: Callable[..., Any], *told: Any, **options: Any) -> Any:
            async def end() -> None:
                with self._context():
                    await self._shutdown()

            assert self._loop is not None
            asyncio.run_coroutine_threadsafe(end(), self._loop).result()
            try:
                told_of.set_result(super().call_from_thread(callback, *told, **options))
            except NoMatches as error:
                told_of.set_exception(error)

    app = EndingApp(SlowActions(registry))

    async def play(_pilot: Pilot[None]) -> None:
        await asyncio.wrap_future(told_of)

    played(app, play)
    assert not app.pauses
