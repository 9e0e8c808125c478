"""What others have written does nothing to a terminal; a pipe gets it as it is."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from rich.text import Text

from scribengin.log import READ_SCHEMA
from scribengin.operations.registry import leftovers
from scribengin.spark.stateful.stored import StateRow
from scribengin_tools.cli.dataflow.state import _print_rows
from scribengin_tools.cli.registry import check
from scribengin_tools.logs.dump import write_records
from scribengin_tools.logs.lines import print_records
from scribengin_tools.monitor.cells import _fact
from scribengin_tools.output.yarn import ContainerOutput, print_containers
from scribengin_tools.rendering import stored_state
from scribengin_tools.rendering.text import console, print_error, print_json, print_json_line, table, working
from scribengin_tools.terminal import check_read, visible, visible_bytes_on

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\rb\x08\x7f Gr\u00fc\u00dfe\t"


_END = "<that is all>"


class Terminal:
    """A pseudo-terminal as stdout and stderr of this process."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        self.stream = os.fdopen(slave, "w", encoding="utf-8")

    def said(self) -> bytes:
        """What came out since the last time. It comes through in parts."""
        self.stream.write(_END)
        self.stream.flush()
        found = b""
        while not found.endswith(_END.encode()):
            found += os.read(self._master, 100_000)
        return found.removesuffix(_END.encode())

    def close(self) -> None:
        self.stream.close()
        os.close(self._master)


@contextmanager
def terminal() -> Iterator[Terminal]:
    """For a part of a test: around a whole one pytest puts its own streams."""
    found = Terminal()
    before = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = found.stream
    try:
        yield found
    finally:
        sys.stdout, sys.stderr = before
        found.close()


def assert_harmless(said: bytes) -> None:
    """Of EVIL, on a terminal."""
    said = said.replace(b"\r\n", b"\n")
    assert b"owned" in said or b"6f 77 6e 65 64" in said
    assert not set(said) & {0x1B, 0x07, 0x08, 0x7F, 0x0D, 0x00}, said
    assert b"\xc2\x9b" not in said


def test_commands_of_7_and_8_bits_are_written_out_and_text_stays() -> None:
    assert visible("Gr\u00fc\u00dfe \U0001f600\tx\r\ny\n") == "Gr\u00fc\u00dfe \U0001f600\tx\r\ny\n"
    assert visible("\x1b[31m\x9b\x00\ra") == r"\x1b[31m\x9b\x00\x0da"


def test_nothing_that_is_printed_commands_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")  # without styles of our own
    records = pa.RecordBatch.from_pydict({"payload": pa.array([EVIL.encode(), bytes(range(256))])})
    for act in (
        lambda: print_records([records], as_json=False),
        lambda: print_json({"a": EVIL}),
        lambda: print_json_line({"a": EVIL}),
        lambda: print_error(EVIL),
        lambda: print_error(f"Traceback (most recent call last)\n{EVIL}\n{EVIL}"),
        lambda: console().print(table(("A",), [(EVIL,)])),
        lambda: console().print(Text(EVIL)),
        lambda: print(_fact("error", EVIL).plain),
    ):
        with terminal() as screen:
            act()
            assert_harmless(screen.said())


@pytest.mark.parametrize("form", ["text", "jsonl", "hex"])
def test_a_dump_without_a_file_commands_no_terminal(form: str) -> None:
    row = {"payload": EVIL.encode(), "txid": 1, "segment": 1, "entry": 0, "slot": 0, "sequence": 0}
    records = pa.RecordBatch.from_pylist([row], schema=READ_SCHEMA)
    with terminal() as screen:
        assert write_records(iter([records]), form, None) == 1
        assert_harmless(screen.said())


def test_a_dump_into_a_file_or_a_pipe_is_every_byte(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    every = bytes(range(256))
    batch = pa.RecordBatch.from_pydict({"payload": pa.array([every])})
    write_records(iter([batch]), "text", tmp_path / "dump")
    assert (tmp_path / "dump").read_bytes() == every + b"\n"
    write_records(iter([batch]), "text", None)
    assert capfdbinary.readouterr().out == every + b"\n"


def test_what_is_kept_as_state_commands_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")  # without a line of progress
    kept = json.dumps({"word": EVIL}, ensure_ascii=False)
    found = [("task-0", StateRow(partition=0, key=kept, value=kept))]
    monkeypatch.setattr(stored_state, "stored_rows", lambda *_: found)
    with terminal() as screen:
        _print_rows((), "count", None, {}, 20, as_json=True)
        assert_harmless(screen.said())


def test_what_is_left_over_commands_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a file that somebody has named."""
    monkeypatch.setattr(leftovers, "leftovers", lambda *_: [leftovers.Leftover("unclaimed files", f"/out/{EVIL}")])
    monkeypatch.setattr(check, "connected", nullcontext)
    with terminal() as screen:
        with pytest.raises(typer.Exit):
            check.check(registry="somewhere")
        assert_harmless(screen.said())


def test_brackets_in_a_line_of_progress_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream may be called like that."""
    monkeypatch.setenv("TERM", "xterm")
    with terminal() as screen:
        with working("stopping [/a]"):
            pass
        assert b"stopping [/a] ..." in screen.said()
        with working("stopping") as progress:
            progress("last reads on: files:[/in]")
        assert b"last reads on: files:[/in] ..." in screen.said()


def test_why_a_container_has_ended_commands_no_terminal() -> None:
    """On YARN it may be what a process has said at its end."""
    with terminal() as screen:
        print_containers([ContainerOutput("worker-1", "container_1", "node-1", EVIL, lambda *_: (0, b""))], 10)
        assert_harmless(screen.said())


def test_a_pipe_gets_every_byte(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    every = bytes(range(256))
    print_records([pa.RecordBatch.from_pydict({"payload": pa.array([every])})], as_json=False)
    assert capfdbinary.readouterr().out == every + b"\n"


def test_bytes_that_are_no_text_stay_unless_they_command() -> None:
    with terminal() as screen:
        assert visible_bytes_on(screen.stream, b"\xff\x9b\xe9\x1b\n") == b"\xff\\x9b\xe9\\x1b\n"


def test_who_reads_no_more_is_found_before_there_is_more_to_write(tmp_path: Path) -> None:
    check_read(io.StringIO())
    for never_closed in (tmp_path / "out", Path(os.devnull)):
        with never_closed.open("w") as output:
            check_read(output)
    reading, writing = os.pipe()
    with open(writing, "w") as output:
        check_read(output)
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            check_read(output)
