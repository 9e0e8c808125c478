"""What `scribengin rewind` asks, shows and leaves in the history."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import RenderableType

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.model import Position
from scribengin.connectors.contract import StartAt
from scribengin.dataflow.registry.descriptors import FINAL_STATES, HistoryEvent
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowBusy, RewindOvertaken
from scribengin.operations.lifecycle import author, await_masters_gone
from scribengin.operations.rewind import Rewind, Rewound
from scribengin_tools.rendering.text import table

_STREAMS_TOLD_MAX = 20
_TRIES_MAX = 5


def refuse_while_it_runs(view: DataflowView) -> None:
    """Raise DataflowBusy unless the dataflow is paused or has ended, and DataflowNotFound."""
    state, name = view.status().state, view.dataflow
    if state == "paused" and view.config_to_edit().value.desired_state == "paused":
        return
    if state not in FINAL_STATES:
        raise DataflowBusy(f"dataflow '{name}' is {state}: `scribengin pause {name}` first")
    await_masters_gone(view)


def rewind(view: DataflowView, at: StartAt, source: str | None) -> list[Rewound]:
    """Move the streams to where that place is now: what was shown before somebody said yes may be gone. Returns from
    where they came, and where they landed.

    A purge that takes the beginning in between is no reason to refuse: there is another beginning then. Raises what
    Rewind and its `apply` raise; RewindOvertaken if purges keep coming.
    """
    for _attempt in range(_TRIES_MAX):
        planned = Rewind(view, at, source)
        try:
            planned.apply()
        except RewindOvertaken:
            if at.kind != "earliest":
                raise
        else:
            return planned.streams
    raise RewindOvertaken(f"the beginning of what '{view.dataflow}' reads keeps being purged: rewind it again")


def shown(streams: Sequence[Rewound]) -> RenderableType:
    """What is going to move, or has moved, for people."""
    rows = [(s.task, s.source, s.stream, _told(s.before), _told(s.after)) for s in streams]
    return table(("TASK", "SOURCE", "STREAM", "FROM", "TO"), rows)


def record(view: DataflowView, moved: Sequence[Rewound], at: StartAt) -> None:
    """Leave a line in the dataflow's history."""
    streams = [f"{s.source}/{s.stream} from {_told(s.before)} to {_told(s.after)}" for s in moved[:_STREAMS_TOLD_MAX]]
    more = len(moved) - len(streams)
    told = ", ".join(streams) + (f" and {more} more" if more else "")
    event = HistoryEvent(at_ms=SYSTEM_CLOCK.now_ms(), kind="rewound", message=f"to {at} by {author()}: {told}")
    view.add_history([event])


def _told(position: Position | None) -> str:
    """A position in a few words: those of its values that are no names."""
    if position is None:
        return "its start"
    if {"segment", "entry", "slot"} <= set(position):
        return "{segment}/{entry}/{slot}".format(**position)
    text = json.dumps(position)
    return str(position["offset"]) if "offset" in position else text if len(text) < 60 else f"{text[:60]} ..."
