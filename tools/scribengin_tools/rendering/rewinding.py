"""What `scribengin rewind` shows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from scribengin.connectors.contract import StartAt
from scribengin.operations.rewind import Rewound, place_text, position_text
from scribengin_tools.rendering.text import table


def question(name: str, at: StartAt, *, resets_state: bool) -> str:
    """What is asked before anything moves."""
    forgets = ", and its state is forgotten" if resets_state else ""
    return f"rewind '{name}' to {place_text(at)}? Its sinks keep what they have{forgets}"


def shown(streams: Sequence[Rewound]) -> RenderableType:
    """What is going to move, or has moved, for people."""
    rows = [(s.task, s.source, s.stream, position_text(s.before), position_text(s.after)) for s in streams]
    return table(("TASK", "SOURCE", "STREAM", "FROM", "TO"), rows)
