"""The dataflow under the monitor's cursor is deleted: nothing happens to the one that stands there then, unasked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from textual.widgets import DataTable, Static

from scribengin.monitoring.overview import DataflowOverview, overviews
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_tools.monitor.actions import MonitorActions
from scribengin_tools.monitor.app import MonitorApp
from tests.integration import watched
from tests.piloted import only_the_screen_is_waited_for, until

__all__ = ["only_the_screen_is_waited_for"]


@dataclass(frozen=True, slots=True)
class ShownActions(MonitorActions):
    """Shows the dataflows that `shown` says, and keeps whom it paused."""

    shown: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)

    def look(self) -> tuple[DataflowOverview, ...]:
        return tuple(overviews(self.registry, self.clock.now_ms(), self.shown))

    def pause_or_resume(self, name: str) -> str:
        self.paused.append(name)
        return f"{name} pauses"


def test_a_key_for_a_dataflow_that_has_gone_does_nothing_to_the_one_in_its_place() -> None:
    with MemoryEnsemble().connect() as registry:
        for name in ("a", "b", "c"):
            watched.put(registry, name, [watched.task(0)])
        operator = ShownActions(registry, shown=["a", "b", "c"])
        app = MonitorApp(operator)

        def flows() -> DataTable[object]:
            return app.query_one("#flows", DataTable)

        async def play() -> None:
            async with app.run_test() as pilot:
                await until(pilot, lambda: flows().row_count == 3)
                await pilot.press("down")
                operator.shown.remove("b")
                await until(pilot, lambda: flows().row_count == 2)
                assert flows().cursor_row == 1
                await pilot.press("p")
                told = str(app.query_one("#trouble", Static).render())
                assert told == "b is there no more: once more, and it is done to c"
                assert operator.paused == []
                await pilot.press("p")
                await until(pilot, lambda: operator.paused == ["c"])
                operator.shown.remove("c")
                await until(pilot, lambda: flows().row_count == 1)
                operator.shown.append("c")
                await until(pilot, lambda: flows().row_count == 2)
                await pilot.press("down", "p")
                await until(pilot, lambda: operator.paused == ["c", "c"])

        asyncio.run(play())
