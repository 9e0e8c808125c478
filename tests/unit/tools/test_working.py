"""What is said while something is waited for: a line that changes on a terminal, a line for each change in a pipe."""

from __future__ import annotations

import io
import sys

import pytest

from scribengin_tools.rendering.text import working


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_is_told_each_change_once_and_nothing_before(capsys: pytest.CaptureFixture[str]) -> None:
    with working("waiting until 'hot' runs") as progress:
        assert capsys.readouterr().err == ""  # it may yet be refused, in one line
        for said in ("starting", "starting", "starting, 1 worker"):
            progress(said)
    assert capsys.readouterr().err == "starting ...\nstarting, 1 worker ...\n"


def test_whoever_ends_the_command_is_told_what_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), working("stopping 'hot'", left="'hot' goes on stopping"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "'hot' goes on stopping\n"
    with pytest.raises(KeyboardInterrupt), working("checking"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


def test_on_a_terminal_nothing_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with working("stopping 'hot'") as progress:
        progress("stopping 'hot': 1 of 2 tasks have ended")
    assert "stopping 'hot'" in terminal.getvalue()
    assert "\x1b[2K" in terminal.getvalue(), "the line is erased"
