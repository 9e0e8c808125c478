"""What a command says while it opens a namespace, which may start a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scribengin.log import LogNamespace
from scribengin.testing.waiting import wait_until
from scribengin_tools.cli.options import opened_namespace
from scribengin_tools.rendering.text import SILENT_VARIABLE

PLACE = "distributedlog-file://here:2181/logs"


def test_a_namespace_that_opens_slowly_is_named_and_no_registry_is_blamed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    @contextmanager
    def slow(_place: str, **_options: object) -> Iterator[object]:
        wait_until(lambda: said.append(capsys.readouterr().err) or said[-1], what="the line")
        yield "opened"

    monkeypatch.setenv(SILENT_VARIABLE, "0.001")
    monkeypatch.setattr(LogNamespace, "open", slow)
    with opened_namespace(None, PLACE) as opened:
        assert opened == "opened"  # type: ignore[comparison-overlap]  # what `slow` gives
    assert "".join(said) == f"opening the namespace {PLACE} ...\n"
