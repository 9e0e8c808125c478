"""`config edit`, up to what it writes: a text that is left as it was, and a shell that has no screen for an editor."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from scribengin.dataflow.registry.descriptors import ConfigEdit
from scribengin.dataflow.registry.edit_log import outcome_operations
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigInvalid
from scribengin_tools.cli.dataflow.editor import edit_text
from tests.unit.submitted import submitted


@pytest.fixture
def flow() -> Iterator[DataflowView]:
    with submitted() as view:
        yield view


def test_a_text_that_is_left_as_it_was_leaves_a_refused_edit_where_it_stands(
    flow: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that this changes nothing."""
    monkeypatch.setenv("VISUAL", "true")
    flow.registry.set(flow.paths.config, b"{")
    flow.registry.commit(outcome_operations(flow, ConfigEdit(version=1, at_ms=5, outcome="refused", error="no")))
    assert not edit_text(flow).written
    node = flow.registry.find(flow.paths.config)
    assert node is not None
    assert node.data == b"{"


def test_without_a_terminal_and_an_editor_that_was_named_nobody_waits_for_one(
    flow: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`vi` would wait for keys that nobody can press."""
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(ConfigInvalid) as refused:
        edit_text(flow)
    assert str(refused.value) == (
        "there is no terminal for an editor: use `scribengin config set flow KEY=VALUE`, or name one that needs none "
        "in EDITOR"
    )
