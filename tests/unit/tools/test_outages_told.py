"""What a command says when the registry stops answering while it is at work."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import SessionState
from scribengin_registry.threads import background
from scribengin_tools.cli import options
from scribengin_tools.cli.dataflow import config, editor
from scribengin_tools.rendering import outages
from scribengin_tools.rendering.text import SILENT_VARIABLE


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SILENT_VARIABLE, "0.001")


class HeldRegistry:
    """All that is asked of a registry: a listener, which it may call late, as one that is just being told."""

    hosts = "here:2181"

    def __init__(self) -> None:
        self.tell: Callable[[SessionState], None] = lambda _: None

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self.tell = listener

    def off_session(self, _listener: Callable[[SessionState], None]) -> None: ...


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(outages, "note", lines.append)
    return lines


def tellers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "outage" in thread.name]


@pytest.mark.usefixtures("at_once")
def test_an_outage_and_its_end_are_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = MemoryEnsemble()
    session = ensemble.connect()
    monkeypatch.setattr("scribengin_registry.opening.connect", lambda _hosts, **_options: session)
    said = ""

    def hears(line: str) -> None:
        def heard() -> bool:
            nonlocal said
            said += "".join(
                line for line in capsys.readouterr().err.splitlines(True) if not line.startswith("waiting for")
            )
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


def test_what_is_short_is_not_worth_a_word(said: list[str]) -> None:
    registry = HeldRegistry()
    with outages.outages_told(registry):  # type: ignore[arg-type]  # all that is asked of one
        for state in (SessionState.SUSPENDED, SessionState.SUSPENDED, SessionState.CONNECTED, SessionState.SUSPENDED):
            registry.tell(state)
    assert (said, tellers()) == ([], [])


@pytest.mark.usefixtures("at_once")
def test_nothing_is_said_behind_the_end(said: list[str]) -> None:
    registry = HeldRegistry()
    with outages.outages_told(registry):  # type: ignore[arg-type]  # all that is asked of one
        registry.tell(SessionState.SUSPENDED)
        wait_until(lambda: bool(said), what="the outage to be told")
    registry.tell(SessionState.CONNECTED)
    registry.tell(SessionState.SUSPENDED)
    assert tellers() == []
    assert said == ["the registry at here:2181 does not answer: waiting for it ..."]


@pytest.mark.usefixtures("at_once")
def test_the_registry_never_waits_for_a_stderr_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, begun, taken = HeldRegistry(), threading.Event(), threading.Event()

    def blocked(_message: str) -> None:
        begun.set()
        taken.wait()

    monkeypatch.setattr(outages, "note", blocked)
    with outages.outages_told(registry):  # type: ignore[arg-type]  # all that is asked of one
        registry.tell(SessionState.SUSPENDED)
        wait_until(begun.is_set, what="the outage to be told")
        told = background("its watches", lambda: registry.tell(SessionState.CONNECTED))
        told.start()
        try:
            wait_until(lambda: not told.is_alive(), what="the registry's thread to go on")
        finally:
            taken.set()


@pytest.mark.usefixtures("at_once")
def test_nothing_is_told_on_an_editors_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[list[threading.Thread]] = []
    session = MemoryEnsemble().connect()
    monkeypatch.setattr("scribengin_registry.opening.connect", lambda _hosts, **_options: session)
    monkeypatch.setattr("scribengin.operations.names.view_of", lambda _session, name: name)
    monkeypatch.setattr(editor, "edit_text", lambda _view, *, force: there.append(tellers()))
    monkeypatch.setattr(config, "tell", lambda _view, _edited: None)
    monkeypatch.setattr(options, "_tell_of_open", lambda _registry: None)
    config.edit("hot", registry="here:2181")
    assert there == [[]]
