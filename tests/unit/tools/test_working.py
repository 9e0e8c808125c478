"""What is said while something is waited for: a line that changes on a terminal, a line for each change in a pipe."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from scribengin.errors import ConfigInvalid
from scribengin.testing.waiting import wait_until
from scribengin_tools.rendering.text import SILENT_VARIABLE, note, said_if_slow, silent_max_s, working


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


def test_what_is_noted_meanwhile_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with working("stopping 'hot'"):
        wait_until(lambda: "stopping 'hot'" in terminal.getvalue(), what="the line of progress")
        note("the registry does not answer")
    note("it has ended")
    shown = terminal.getvalue().replace("\x1b[?25l", "")  # the cursor is hidden
    lines = [line.rpartition("\x1b[2K")[2] for line in shown.split("\n")]
    assert [line for line in lines if "does not answer" in line] == ["the registry does not answer"]
    assert lines[-2].endswith("it has ended")


def test_what_is_slow_is_said_once_and_what_is_not_is_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with said_if_slow("waiting for the registry"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setenv(SILENT_VARIABLE, "0.001")
    said: list[str] = []
    with said_if_slow("waiting for the registry"):
        wait_until(lambda: said.append(capsys.readouterr().err) or said[-1].endswith("\n"), what="the line")
    assert "".join(said) == "waiting for the registry ...\n"


def test_no_command_of_a_test_is_slow_enough_to_say_so() -> None:
    code = "from scribengin_tools.rendering.text import silent_max_s; print(silent_max_s())"
    of_a_process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert min(silent_max_s(), float(of_a_process)) > 3600, "the machine may be as busy as it likes"


def test_what_is_slow_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SILENT_VARIABLE)
    assert silent_max_s() == 1
    monkeypatch.setenv(SILENT_VARIABLE, "soon")
    with pytest.raises(ConfigInvalid, match=rf"^{SILENT_VARIABLE}=soon: write a number of seconds"), said_if_slow(""):
        pass
