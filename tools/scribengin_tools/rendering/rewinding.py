"""What `scribengin rewind` asks, shows and leaves in the history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from rich.console import RenderableType

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.model import Position
from scribengin.connectors.contract import StartAt
from scribengin.dataflow.registry.descriptors import FINAL_STATES, HistoryEvent
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowBusy
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

    A purge in between that takes the beginning is seen by looking again: from then on the logs are held back for the
    dataflow, where it is to be read on. Raises what Rewind and its `apply` raise; DataflowBusy if purges keep coming.
    """
    begun: dict[tuple[str, str], Position | None] = {}
    for _attempt in range(_TRIES_MAX):
        planned = Rewind(view, at, source)
        planned.apply()
        begun = {**{(s.source, s.stream): s.before for s in planned.streams}, **begun}
        if at.kind != "earliest" or not _moved_on(view, at, source, planned):
            return [replace(s, before=begun[s.source, s.stream]) for s in planned.streams]
    raise DataflowBusy(f"the beginning of what '{view.dataflow}' reads keeps being purged: rewind it again")


def _moved_on(view: DataflowView, at: StartAt, source: str | None, planned: Rewind) -> bool:
    """Whether the place is another one by now."""
    try:
        now = Rewind(view, at, source)
    except DataflowBusy:  # somebody has it run again already, from there
        return False
    return [stream.after for stream in now.streams] != [stream.after for stream in planned.streams]


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
