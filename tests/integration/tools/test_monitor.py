"""The monitor's screen, driven by textual's own pilot, on a real registry."""

from __future__ import annotations

import asyncio
import html
import re
import sys
import unicodedata
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from rich.text import Text
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from scribengin.dataflow.registry.deletion import delete_nodes
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigInvalid
from scribengin.launcher.contract import ContainerRequest
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_tools.monitor.actions import MonitorActions
from scribengin_tools.monitor.app import LogScreen, MonitorApp
from tests.house.tree import ROOT
from tests.integration import watched
from tests.piloted import PATIENCE_S, only_the_screen_is_waited_for, until

__all__ = ["only_the_screen_is_waited_for"]
SIZE = (100, 30)
PICTURE = ROOT / "docs" / "pictures" / "monitor.svg"
EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m"
Screenplay = Callable[[MonitorApp, Pilot[None]], Awaitable[None]]


def played(
    registry: Registry,
    play: Screenplay,
    *names: str,
    size: tuple[int, int] = SIZE,
    actions: type[MonitorActions] = MonitorActions,
) -> None:
    """Run the screen, and let `play` do what a person would."""

    async def run() -> None:
        app = MonitorApp(actions(registry, names, watched.StillClock()))
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: shown(app, "#head") != "")
            await play(app, pilot)

    asyncio.run(run())


def shown(app: MonitorApp, name: str) -> str:
    return str(app.screen_stack[0].query_one(name, Static).render())


async def log_shown(app: MonitorApp, pilot: Pilot[None]) -> str:
    """What the screen of a log says: it is on top before there is anything on it."""
    await until(pilot, lambda: isinstance(app.screen, LogScreen) and bool(app.screen.query("#log")))
    return str(app.screen.query_one("#log", Static).render())


def commands_in(text: str) -> list[str]:
    """The control characters of a text, but for its lines."""
    return [char for char in text if unicodedata.category(char) == "Cc" and char != "\n"]


def rows(app: MonitorApp, name: str) -> list[list[str]]:
    table: DataTable[Text] = app.screen_stack[0].query_one(name, DataTable)
    return [[str(cell) for cell in table.get_row(key)] for key in table.rows]


def workers_of(registry: Registry, name: str) -> int:
    return DataflowView(registry, name).config().value.workers


def test_it_shows_every_dataflow_and_the_tasks_of_the_one_under_the_cursor(registry: Registry) -> None:
    watched.put_three(registry)

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        assert rows(app, "#flows") == [
            ["flight_names", "stalled", "2/2", "2", "4.0k", "3.9k", "84.3k", "1s", "58ms", "4"],
            ["flight_delays", "running", "2/2", "4", "16.0k", "15.7k", "12.0k", "1s", "58ms", "0"],
            ["heat_alarm", "paused", "1/1", "2", "0", "0", "0", "1s", "58ms", "0"],
        ]
        assert shown(app, "#head").startswith("3 dataflows  stalled 1  paused 1  running 1")
        assert "round   plan 3 ms · run 41 ms · prepare 7 ms · commit 5 ms · complete 2 ms" in shown(app, "#detail")
        assert "stalled task-0 for 312 s" in shown(app, "#detail")
        assert "error   task-0: kafka-1:9092 does not answer within 30 s" in shown(app, "#detail")
        assert "lag     flights 84.3k (flights/0 84.2k, flights/1 90)" in shown(app, "#detail")
        assert [row[1:3] for row in rows(app, "#tasks")] == [["stalled", "worker-1"], ["running", "worker-2"]]
        await pilot.press("down")
        await until(pilot, lambda: "flight_delays" in shown(app, "#detail"))
        assert len(rows(app, "#tasks")) == 4

    played(registry, play)


def test_only_those_that_are_named_are_shown(registry: Registry) -> None:
    watched.put_three(registry)

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        assert [row[0] for row in rows(app, "#flows")] == ["heat_alarm"]

    played(registry, play, "heat_alarm")


def test_plus_and_minus_scale_the_one_under_the_cursor(registry: Registry) -> None:
    watched.put_three(registry)

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "plus")
        await until(pilot, lambda: workers_of(registry, "flight_delays") == 3)
        await until(pilot, lambda: rows(app, "#flows")[1][2] == "2/3")
        await pilot.press("minus")
        await until(pilot, lambda: workers_of(registry, "flight_delays") == 2)
        await pilot.press("minus")
        await until(pilot, lambda: workers_of(registry, "flight_delays") == 1)
        assert workers_of(registry, "flight_names") == 2

    played(registry, play)


def test_p_pauses_and_lets_go_on(registry: Registry) -> None:
    view = watched.put(registry, "hot", [watched.task(0)])

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        for wanted in ("paused", "running"):
            await pilot.press("p")
            await until(pilot, lambda wanted=wanted: view.config().value.desired_state == wanted)  # type: ignore[misc]

    played(registry, play)


def test_keys_say_what_they_cannot_do_and_change_nothing(registry: Registry) -> None:
    ended = watched.put(registry, "hot", [watched.task(0)])
    ended.set_status(ended.status().model_copy(update={"state": "stopped"}))
    lost = watched.put(registry, "lost", [watched.task(0)])
    for number in (1, 2):
        registry.delete(f"{lost.paths.master}/candidate-{number}")
    watched.put(registry, "part", [watched.task(0)])
    watched.put_chain(registry, "whole", ("part", "part"))

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        assert [row[0] for row in rows(app, "#flows")] == ["lost", "hot", "whole", "  part"]
        for key in ("p", "plus", "minus"):
            await pilot.press(key)
            await until(pilot, lambda: shown(app, "#trouble").startswith("dataflow 'lost' has no master any more"))
        await pilot.press("down")
        for key in ("p", "plus", "minus"):
            await pilot.press(key)
            await until(
                pilot, lambda: shown(app, "#trouble").startswith("dataflow 'hot' is stopped: `scribengin start")
            )
        await pilot.press("down", "p")
        await until(pilot, lambda: shown(app, "#trouble").startswith("whole is a chain"))
        assert "order   part" in shown(app, "#detail")
        await pilot.press("down", "plus")
        await until(pilot, lambda: workers_of(registry, "part") == 3)
        await until(pilot, lambda: shown(app, "#trouble") == "")
        assert "whole/part" in shown(app, "#detail")

    played(registry, play)
    assert [view.config().version for view in (ended, lost)] == [0, 0]


def test_a_question_mark_shows_what_keys_do(registry: Registry) -> None:
    watched.put_three(registry)

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        text = await log_shown(app, pilot)
        for binding in app.BINDINGS:
            assert isinstance(binding, Binding)
            assert re.search(rf"^  (\S, )?{re.escape(binding.key_display or binding.key)}[ ,]", text, re.MULTILINE)
        assert "leaderless" in text
        await pilot.press("question_mark")
        await until(pilot, lambda: not isinstance(app.screen, LogScreen))

    played(registry, play, size=(80, 24))


def test_ctrl_c_ends_it_as_it_ends_every_command_also_in_a_log(registry: Registry) -> None:
    ended: list[MonitorApp] = []

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        await log_shown(app, pilot)
        await pilot.press("ctrl+c")
        ended.append(app)

    played(registry, play)
    assert ended[0].return_code == 130


def test_l_opens_a_log_and_escape_closes_it(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path))
    watched.put(registry, "hot", [watched.task(0)])

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        await pilot.press("l")
        assert "no output of hot is on this machine" in await log_shown(app, pilot)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, LogScreen))
        await pilot.press("tab", "l")
        assert "no output of worker-1" in await log_shown(app, pilot)

    played(registry, play)


def test_the_log_is_what_the_worker_of_the_task_under_the_cursor_has_written(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path))
    watched.put(registry, "hot", [watched.task(0), watched.task(1)])
    with LocalLauncher(tmp_path) as launcher:
        talking = [launcher.launch(talk(registry.hosts, worker)) for worker in ("worker-1", "worker-2")]

        async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
            await pilot.press("tab", "down", "l")
            text = await log_shown(app, pilot)
            assert "I am worker-2" in text
            assert "worker-1" not in text

        try:
            for container in talking:
                output = launcher.logs(container).stdout
                wait_until(lambda output=output: output.exists() and output.read_text(), PATIENCE_S, "words")
            played(registry, play)
        finally:
            for container in talking:
                launcher.kill(container)


def test_a_log_commands_no_terminal_and_shows_no_secret(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path))
    watched.put(registry, "hot", [watched.task(0)])
    with LocalLauncher(tmp_path) as launcher:
        container = launcher.launch(talk(registry.hosts, "worker-1", f"{EVIL} password=hunter2"))

        async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
            await pilot.press("l")
            text = await log_shown(app, pilot)
            assert r"a\x1b]0;owned\x07\x1b[2J\x9b31m" in text
            assert commands_in(text) == []
            assert "hunter2" not in text

        try:
            output = launcher.logs(container).stdout
            wait_until(lambda: output.exists() and output.read_text(), PATIENCE_S, "words")
            played(registry, play)
        finally:
            launcher.kill(container)


class OthersWords(MonitorActions):
    """Of a registry in which others have written what a terminal would obey."""

    def scale(self, name: str, by: int) -> str:
        """It is told what was done."""
        return f"{name} {EVIL} [/b]"

    def pause_or_resume(self, name: str) -> str:
        """It is told why not."""
        raise ConfigInvalid(f"{name} {EVIL} password=hunter2")


def test_what_was_done_and_what_was_not_commands_no_terminal(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MonitorApp, "NOTIFICATION_TIMEOUT", 10 * PATIENCE_S)
    watched.put(registry, "hot", [watched.task(0)])

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        await pilot.press("plus")
        await until(pilot, lambda: bool(list(app._notifications)))
        told = next(iter(app._notifications))
        assert (commands_in(told.message), told.markup) == ([], False)
        assert r"hot a\x1b]0;owned" in told.message
        await pilot.press("p")
        await until(pilot, lambda: shown(app, "#trouble").startswith(r"hot a\x1b]0;owned"))
        assert commands_in(shown(app, "#trouble")) == []
        assert "hunter2" not in shown(app, "#trouble")

    played(registry, play, actions=OthersWords)


def talk(hosts: str, worker: str, said: str = "") -> ContainerRequest:
    """A process of the dataflow `hot` that says its name, and something else."""
    program = f"import signal; print('I am {worker}', {said!r}, flush=True); signal.pause()"
    return ContainerRequest(hosts, "hot", worker, [sys.executable, "-c", program], 256)


def test_new_values_leave_the_cursor_where_it_is_and_dataflows_come_and_go(registry: Registry) -> None:
    watched.put_three(registry)

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down")
        await until(pilot, lambda: "heat_alarm" in shown(app, "#detail"))
        watched.put(registry, "a_new_one", [watched.task(0)])
        await until(pilot, lambda: len(rows(app, "#flows")) == 4)
        assert "heat_alarm" in shown(app, "#detail")
        delete_nodes(DataflowView(registry, "heat_alarm"))
        await until(pilot, lambda: len(rows(app, "#flows")) == 3)
        await until(pilot, lambda: "heat_alarm" not in shown(app, "#detail"))

    played(registry, play)


def test_what_goes_wrong_is_said_above_and_the_last_picture_stays(registry: Registry) -> None:
    watched.put(registry, "hot", [watched.task(0)])

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        delete_nodes(DataflowView(registry, "hot"))
        await until(pilot, lambda: "there is no dataflow 'hot'" in shown(app, "#trouble"))
        assert rows(app, "#flows")[0][0] == "hot"
        watched.put(registry, "hot", [watched.task(0)])
        await until(pilot, lambda: shown(app, "#trouble") == "")

    played(registry, play, "hot")


def test_a_damaged_dataflow_is_shown_as_that_until_it_is_mended(registry: Registry) -> None:
    watched.put_three(registry)
    path = DataflowView(registry, "heat_alarm").paths.status

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        good = registry.get(path).data
        registry.set(path, b"{")
        await until(pilot, lambda: [row[1] for row in rows(app, "#flows")] == ["stalled", "unreadable", "running"])
        await pilot.press("down")
        await until(pilot, lambda: "does not hold a DataflowStatus" in shown(app, "#detail"))
        registry.set(path, good)
        await until(pilot, lambda: "unreadable" not in [row[1] for row in rows(app, "#flows")])

    played(registry, play)


@pytest.mark.parametrize("size", [(100, 30), (80, 24)])
def test_all_columns_fit_a_small_terminal(registry: Registry, size: tuple[int, int]) -> None:
    watched.put_three(registry)

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        await pilot.pause()
        for name in ("#flows", "#tasks"):
            assert app.query_one(name, DataTable).virtual_size.width <= size[0]
        assert app.query_one("#tasks", DataTable).region.height >= 5

    played(registry, play, size=size)


def test_a_terminal_that_grows_while_nothing_is_there_has_room_for_long_names(registry: Registry) -> None:
    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        for width in (200, 120):
            await pilot.resize_terminal(width, 30)
            await until(pilot, lambda width=width: app.size.width == width)
            for name in ("#flows", "#tasks"):
                table = app.query_one(name, DataTable)
                await until(pilot, lambda table=table: table.virtual_size.width == app.size.width - 1)

    played(registry, play, size=(80, 24))


def test_the_picture_in_the_readme_is_what_it_looks_like(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """To make it anew: delete it, and run this test once. The screen is drawn anew at any moment, by a timer: so what
    differs from run to run, the registry's address, is another before anything is drawn."""
    watched.put_three(registry)
    monkeypatch.setattr(type(registry), "hosts", "zk-1:2181")
    found: list[str] = []

    async def play(app: MonitorApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.query("FooterKey")))  # the keys come a moment after the rest
        await pilot.pause()
        found.append(app.export_screenshot())

    played(registry, play)
    if not PICTURE.exists():
        PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", found[0], flags=re.DOTALL), encoding="utf-8")
    assert words_of(found[0]) == words_of(PICTURE.read_text(encoding="utf-8"))


def words_of(svg: str) -> list[str]:
    """What can be read in a picture, in order."""
    return html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).split()
