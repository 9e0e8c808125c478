"""What is said while something is waited for: a line that changes on a terminal, a line for each change in a pipe."""

from __future__ import annotations

import io
import sys

import pytest

from scribengin.testing.waiting import wait_until
from scribengin_tools.rendering import text
from scribengin_tools.rendering.text import said_if_slow, working


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


def test_what_is_slow_is_said_once_and_what_is_not_is_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "SILENT_MAX_S", 1000.0)
    with said_if_slow("waiting for the registry"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(text, "SILENT_MAX_S", 0.0)
    said: list[str] = []
    with said_if_slow("waiting for the registry"):
        wait_until(lambda: said.append(capsys.readouterr().err) or said[-1].endswith("\n"), what="the line")
    assert "".join(said) == "waiting for the registry ...\n"
