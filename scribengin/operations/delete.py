"""What logs keep for dataflows that have ended: shown, and given up on demand."""

from __future__ import annotations

from collections.abc import Sequence

from scribengin.dataflow.registry.descriptors import FINAL_STATES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.retention_holds import HeldLog, held_back, let_all_go
from scribengin.errors import DataflowBusy

_LOGS_SHOWN = 3


def held_for(view: DataflowView) -> tuple[HeldLog, ...]:
    """What logs keep for a dataflow that has ended. Of one that runs that is no news: it is its lag."""
    return held_back(view.registry, view.config_in_force().value) if view.status().state in FINAL_STATES else ()


def held_text(held: Sequence[HeldLog], name: str) -> str:
    """The same in a line; nothing if there is nothing."""
    if not held:
        return ""
    names = ", ".join(one.log for one in held[:_LOGS_SHOWN])
    more = f" and {len(held) - _LOGS_SHOWN} more" if len(held) > _LOGS_SHOWN else ""
    total = sum(one.records for one in held)
    return f"{total:,} records of {names}{more}, until it has read them; `scribengin let-go {name}` gives them up"


def let_go(views: Sequence[DataflowView]) -> list[HeldLog]:
    """Have logs keep nothing more for these dataflows; returns what they had kept. Raises DataflowBusy, before anything
    is done, if one of them has not ended."""
    for view in views:
        state = view.status().state
        if state not in FINAL_STATES:
            raise DataflowBusy(
                f"dataflow '{view.dataflow}' is {state}, and is to read what is kept for it: `scribengin stop "
                f"{view.dataflow}` first"
            )
    held = [one for view in views for one in held_for(view)]
    for view in views:
        let_all_go(view.registry, view.config_in_force().value)
    return held
