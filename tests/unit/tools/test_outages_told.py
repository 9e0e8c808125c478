"""What a command says when the registry stops answering while it is at work."""

from __future__ import annotations

import pytest

from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.waiting import wait_until
from scribengin_tools.cli import options
from scribengin_tools.rendering import outages
from scribengin_tools.rendering.text import SILENT_VARIABLE


def test_an_outage_and_its_end_are_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SILENT_VARIABLE, "0.001")
    ensemble = MemoryEnsemble()
    session = ensemble.connect()
    monkeypatch.setattr("scribengin_registry.opening.connect", lambda _hosts, **_options: session)
    said = ""

    def hears(line: str) -> None:
        def heard() -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return said.endswith(f"{line}\n")

        wait_until(heard, what=line)

    with options.connected("here:2181", checked=False):
        for _ in range(2):
            ensemble.suspend(session)
            hears("does not answer: waiting for it ...")
            ensemble.resume(session)
            hears("answers again")
    assert said.count("\n") == 4
    assert said.startswith(f"the registry at {session.hosts} does not answer")


def test_what_is_short_is_not_worth_a_word_and_nothing_is_said_behind_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ensemble = MemoryEnsemble()
    with ensemble.connect() as session, outages.outages_told(session):
        teller = outages._OutageTeller("here:2181")
        teller.heard(outages.SessionState.SUSPENDED)
        saying = teller._saying
        assert saying is not None
        teller.heard(outages.SessionState.CONNECTED)
        saying.join()
        teller.heard(outages.SessionState.SUSPENDED)
        teller.end()
        teller._say()
    assert capsys.readouterr().err == ""
