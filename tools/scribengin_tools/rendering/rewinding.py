"""What `scribengin rewind` shows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from scribengin.operations.rewind import Rewound, position_text
from scribengin_tools.rendering.text import table


def shown(streams: Sequence[Rewound]) -> RenderableType:
    """What is going to move, or has moved, for people."""
    rows = [(s.task, s.source, s.stream, position_text(s.before), position_text(s.after)) for s in streams]
    return table(("TASK", "SOURCE", "STREAM", "FROM", "TO"), rows)
