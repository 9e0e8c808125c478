"""What others have written does nothing to a terminal; a pipe gets it as it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from rich.text import Text

from scribengin_tools.logs.lines import print_records
from scribengin_tools.monitor.cells import _fact
from scribengin_tools.rendering.text import console, print_error, print_json, print_json_line, table
from scribengin_tools.terminal import visible, visible_bytes_on

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\rb\x08\x7f Gr\u00fc\u00dfe\t"


class Terminal:
    """A pseudo-terminal as stdout and stderr of this process."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        self.stream = os.fdopen(slave, "w", encoding="utf-8")

    def said(self) -> bytes:
        """What came out since the last time, if anything."""
        self.stream.flush()
        os.set_blocking(self._master, False)
        return os.read(self._master, 100_000)

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
            said = screen.said().replace(b"\r\n", b"\n")
        assert b"owned" in said
        assert not set(said) & {0x1B, 0x07, 0x08, 0x7F, 0x0D, 0x00}, said
        assert b"\xc2\x9b" not in said


def test_a_pipe_gets_every_byte(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    every = bytes(range(256))
    print_records([pa.RecordBatch.from_pydict({"payload": pa.array([every])})], as_json=False)
    assert capfdbinary.readouterr().out == every + b"\n"


def test_bytes_that_are_no_text_stay_unless_they_command() -> None:
    with terminal() as screen:
        assert visible_bytes_on(screen.stream, b"\xff\x9b\xe9\x1b\n") == b"\xff\\x9b\xe9\\x1b\n"
