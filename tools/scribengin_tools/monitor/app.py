"""The screen: dataflows above, the one under the cursor below, with its tasks. Looks again about once a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static
from textual.widgets.data_table import ColumnKey

from scribengin.base.text.masking import masked_text
from scribengin.base.text.plain_words import in_plain_words
from scribengin.errors import ScribenginError
from scribengin.monitoring.overview import DataflowOverview, TaskOverview
from scribengin_registry.contract import SessionState
from scribengin_tools.monitor.actions import MonitorActions
from scribengin_tools.monitor.cells import (
    FLOW_COLUMNS,
    TASK_COLUMNS,
    ChainRow,
    chain_lines,
    detail_lines,
    headline,
    in_order,
    key_of,
    row_cells,
    task_cells,
    tasks_shown,
)
from scribengin_tools.terminal import visible

PERIOD_S = 1.0
INTERRUPTED = 130
"""What a command ends with that Ctrl-C has ended."""
_SCROLLBAR = 1
_SHARE_OF_TIME = 5
"""A look at very many dataflows takes long; then there is a pause of so many times that before the next one. One that
failed, or that an outage of the registry has held up, is no measure of that."""
_AWAY = (SessionState.SUSPENDED, SessionState.LOST)

HELP = """\
Keys
  up, down    another dataflow, or another task
  tab         from the dataflows to the tasks of the one under the cursor, and back
  +, -        one worker more, one less
  p           pause the dataflow, or let it go on: its tasks commit, then wait
  l           the output of its processes on this machine; of one task, that of its worker
  ?           this; again, or Esc: back
  q, Ctrl-C   quit

What is shown
  LAG         records that wait. `?`: nobody has looked; `~`: that is old, or leaves something out
  stalled     a task had something to do for long, and has committed nothing
  leaderless  all masters are gone: `scribengin start NAME` launches one

It looks again each second. `scribengin status NAME` tells more of one dataflow."""


class LogScreen(ModalScreen[None]):
    """The last lines of some processes, the newest in view; or the help."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,l,question_mark", "dismiss", "back")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Text(visible(self._text)), id="log")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).scroll_end(animate=False)


class MonitorApp(App[None]):
    """`scribengin monitor`."""

    TITLE = "scribengin monitor"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; background: $panel; padding: 0 1; }
    #trouble { height: auto; max-height: 3; color: $text-error; padding: 0 1; display: none; }
    #flows { height: auto; max-height: 45%; }
    #detail { height: auto; max-height: 7; padding: 0 1; border-top: solid $panel; }
    #tasks { height: 1fr; }
    DataTable { scrollbar-size-vertical: 1; overflow-x: hidden; }
    LogScreen VerticalScroll { background: $surface; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign", "scale(1)", "one worker more", key_display="+"),
        Binding("minus", "scale(-1)", "one less", key_display="-"),
        Binding("p", "pause", "pause/resume"),
        Binding("l", "log", "log"),
        Binding("tab", "app.focus_next", "tasks", show=False),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "interrupt", "quit", show=False, key_display="Ctrl-C", priority=True),
    ]

    def __init__(self, operator: MonitorActions) -> None:
        super().__init__()
        self._operator = operator
        self._found: dict[str, DataflowOverview] = {}
        self._chains: dict[str, ChainRow] = {}
        self._refusal = ""
        self._looking = False
        self._session_changes = 0
        self._unchosen: tuple[str, str] | None = None
        """The dataflow that the cursor was on, which has gone, and what it is on since then: nobody chose it."""

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="trouble")
        yield DataTable[Text](id="flows", cursor_type="row")
        yield Static(id="detail")
        yield DataTable[Text](id="tasks", cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        for name, columns in (("#flows", FLOW_COLUMNS), ("#tasks", TASK_COLUMNS)):
            for column, width in columns.items():
                self._table(name).add_column(_heading(column), key=column, width=width)
        self._fit(self.size.width)
        self._table("#flows").focus()
        self._operator.registry.on_session(self._session_changed)
        self._look()

    def on_unmount(self) -> None:
        """The screen is gone."""
        self._operator.registry.off_session(self._session_changed)

    def on_resize(self, event: Resize) -> None:
        """The terminal has another size."""
        if self._table("#flows").columns:  # else it is not mounted yet, and will fit then
            self._fit(event.size.width)
        if self._found:
            self._show()

    def _fit(self, width: int) -> None:
        """The first column of each table takes what the others leave."""
        for name, columns in (("#flows", FLOW_COLUMNS), ("#tasks", TASK_COLUMNS)):
            table = self._table(name)
            others = sum(columns.values()) + 2 * table.cell_padding * len(columns) + _SCROLLBAR
            first, least = next(iter(columns.items()))
            table.columns[ColumnKey(first)].width = least + max(0, width - others)
            table.clear()

    # -- looking

    def _look(self) -> None:
        """Have a thread look, unless one still does."""
        if not self._looking:
            self._looking = True
            self.run_worker(self._look_once, thread=True)

    def _look_once(self) -> None:
        clock = self._operator.clock
        begun_s, changes = clock.monotonic_s(), self._session_changes
        found: Sequence[DataflowOverview] | str
        try:
            found = self._operator.look()
        except ScribenginError as error:
            found = in_plain_words(error)
        pause_s = PERIOD_S
        if not isinstance(found, str) and changes == self._session_changes:
            pause_s = max(PERIOD_S, _SHARE_OF_TIME * (clock.monotonic_s() - begun_s))
        if self.is_running:
            self.call_from_thread(self._on_screen, self._seen, found, pause_s)

    def _session_changed(self, state: SessionState) -> None:
        """On a thread of the registry's. Looks would wait long before they fail: it is said at once."""
        self._session_changes += 1
        if state in _AWAY:
            hosts = self._operator.registry.hosts
            words = f"the registry {hosts} does not answer; what is shown is from before"
            self.call_later(self._on_screen, self._tell_trouble, words)

    def _on_screen(self, then: Callable[..., object], *told: object) -> None:
        """What a thread has to tell, unless there is no screen any more by the time that it is its turn."""
        if self.is_running:
            then(*told)

    def _seen(self, found: Sequence[DataflowOverview] | str, pause_s: float) -> None:
        self._looking = False
        self._tell_trouble(found if isinstance(found, str) else self._refusal)
        if not isinstance(found, str):
            self._found = {overview.dataflow: overview for overview in found}
            self._show()
        self.set_timer(pause_s, self._look)

    def _show(self) -> None:
        now_ms = self._operator.clock.now_ms()
        found = in_order(self._found.values())
        self._chains = {key_of(one): one for one in found if isinstance(one, ChainRow)}
        head = headline(list(self._found.values()))
        self.query_one("#head", Static).update(head.append(f"  {self._operator.registry.hosts}", "dim"))
        gone = _fill(self._table("#flows"), [(key_of(one), row_cells(one, now_ms)) for one in found])
        if gone is not None:
            self._unchosen = (gone, self._key())
        self._show_selected()

    def _show_selected(self) -> None:
        overview, now_ms = self._selected(), self._operator.clock.now_ms()
        chain = self._chains.get(self._key())
        lines = chain_lines(chain) if chain is not None else [Text("no dataflow", "dim")]
        if overview is not None:
            lines = detail_lines(overview)
        self.query_one("#detail", Static).update(Text("\n").join(lines))
        tasks = tasks_shown(overview) if overview is not None else []
        _fill(self._table("#tasks"), [(task.task, task_cells(task, now_ms)) for task in tasks])

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Another dataflow is under the cursor."""
        if event.data_table.id == "flows":
            self._show_selected()

    # -- acting

    def action_interrupt(self) -> None:
        """As everywhere: Ctrl-C ends it. Textual would ask for another key."""
        self.exit(return_code=INTERRUPTED)

    def action_scale(self, by: int) -> None:
        """One worker more or less for the dataflow under the cursor."""
        self._act(lambda name: self._operator.scale(name, by))

    def action_pause(self) -> None:
        """Pause it, or let it go on."""
        self._act(self._operator.pause_or_resume)

    def action_help(self) -> None:
        """What keys do, and what is shown."""
        self.push_screen(LogScreen(HELP))

    def action_log(self) -> None:
        """The output of the worker of the task under the cursor, or of all processes of the dataflow."""
        overview, task = self._selected(), self._selected_task()
        if overview is not None:
            process = task.worker if task is not None and self._table("#tasks").has_focus else None
            name = overview.dataflow
            self._in_thread(lambda: self._operator.log(name, process), lambda text: self.push_screen(LogScreen(text)))

    def _act(self, act: Callable[[str], str]) -> None:
        overview, unchosen = self._selected(), self._unchosen
        self._refuse("")
        self._unchosen = None
        if overview is not None and unchosen is not None and unchosen[1] == self._key():
            self._refuse(f"{unchosen[0]} is there no more: once more, and it is done to {overview.dataflow}")
        elif overview is not None:
            name = overview.dataflow
            self._in_thread(lambda: act(name), self._done)
        elif self._key() in self._chains:
            self._refuse(f"{self._key().rstrip('/')} is a chain: put the cursor on one of its dataflows")

    def _done(self, words: str) -> None:
        self.notify(visible(words), markup=False)
        self._look()

    def _in_thread(self, work: Callable[[], str], then: Callable[[str], object]) -> None:
        """What talks to the registry must not hold up the screen."""

        def run() -> None:
            try:
                words, told = work(), then
            except ScribenginError as error:
                words, told = in_plain_words(error), self._refuse
            if self.is_running:
                self.call_from_thread(self._on_screen, told, words)

        self.run_worker(run, thread=True)

    # -- parts of the screen

    def _refuse(self, words: str) -> None:
        """What a key could not do; it stays until the next one."""
        self._refusal = words
        self._tell_trouble(words)

    def _tell_trouble(self, words: str) -> None:
        trouble = self.query_one("#trouble", Static)
        trouble.update(Text(visible(masked_text(words))))
        trouble.display = bool(words)

    def _table(self, name: str) -> DataTable[Text]:
        return self.query_one(name, DataTable)

    def _selected(self) -> DataflowOverview | None:
        return self._found.get(self._key())

    def _key(self) -> str:
        return _key_under_cursor(self._table("#flows")) or ""

    def _selected_task(self) -> TaskOverview | None:
        overview, key = self._selected(), _key_under_cursor(self._table("#tasks"))
        return next((task for task in overview.tasks if task.task == key), None) if overview is not None else None


def _heading(column: str) -> Text:
    return Text(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")


def _key_under_cursor(table: DataTable[Text]) -> str | None:
    if not table.row_count:
        return None
    return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value


def _fill(table: DataTable[Text], rows: Sequence[tuple[str, Sequence[Text]]]) -> str | None:
    """Show these rows. Where only values have changed the cursor and the place in a long table stay as they are. What
    the cursor was on, if that has gone: it is on what stands in that place now."""
    if [key.value for key in table.rows] != [key for key, _ in rows]:
        under, row = _key_under_cursor(table), table.cursor_row
        table.clear()
        for key, cells in rows:
            table.add_row(*cells, key=key)
        if under in (keys := [key for key, _ in rows]):
            table.move_cursor(row=keys.index(under), animate=False)
            return None
        table.move_cursor(row=max(0, min(row, len(rows) - 1)), animate=False)
        return under
    columns = list(table.columns)
    for key, cells in rows:
        for column, cell in zip(columns, cells, strict=True):
            if table.get_cell(key, column) != cell:
                table.update_cell(key, column, cell, update_width=True)
    return None
