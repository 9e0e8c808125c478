"""How the demo ends: an error is a line, and a signal is an interruption whatever the code that it met made of it."""

from __future__ import annotations

import signal

import pytest
import typer

from scribengin.errors import DataflowError
from scribengin_dev.harness.ending import ending_cleanly
from scribengin_registry.errors import RegistryError

INTERRUPTED = "demo: interrupted; everything it had started is stopped\n"


def test_an_error_is_a_line_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, ending_cleanly("demo"):
        raise DataflowError("the dataflow failed")
    assert (ended.value.exit_code, capsys.readouterr().err) == (1, "demo: the dataflow failed\n")


def interrupted(number: int, cleaned_up: list[str]) -> None:
    try:
        signal.raise_signal(number)
    finally:
        signal.raise_signal(number)
        cleaned_up.append("all of it")


def interrupted_in_a_request() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise RegistryError("this registry client is closed", path="/logs") from None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_an_interruption_and_further_ones_are_not_heard(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before, cleaned_up = signal.getsignal(number), list[str]()
    with pytest.raises(typer.Exit) as ended, ending_cleanly("demo"):
        interrupted(number, cleaned_up)
    assert (ended.value.exit_code, capsys.readouterr().err) == (130, INTERRUPTED)
    assert cleaned_up
    assert signal.getsignal(number) is before


def test_an_error_that_somebody_made_of_the_interruption_is_one_still(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, ending_cleanly("demo"):
        interrupted_in_a_request()
    assert (ended.value.exit_code, capsys.readouterr().err) == (130, INTERRUPTED)
