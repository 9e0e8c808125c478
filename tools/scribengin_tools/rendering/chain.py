"""A chain as it is shown: its dataflows in the order in which records flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.retention_holds import HeldLog
from scribengin.errors import DataflowNotFound
from scribengin.monitoring.overview import DataflowOverview, overview_of
from scribengin.operations.chain.graph import ChainGraph, graph_of
from scribengin.operations.chain.registry import ChainDescriptor, ChainMember, shared_state
from scribengin.operations.delete import held_for
from scribengin_registry.contract import Registry
from scribengin_tools.rendering.dataflow import held_text
from scribengin_tools.rendering.text import facts, lag_text, state_text, table


@dataclass(frozen=True, slots=True)
class ChainOverview:
    """A chain as it is shown: each dataflow with what it does just now, None if it is not there."""

    chain: ChainDescriptor
    graph: ChainGraph
    overviews: tuple[tuple[ChainMember, DataflowOverview | None], ...]
    held: tuple[HeldLog, ...] = ()
    """What logs keep for those that have ended."""

    @property
    def state(self) -> str:
        """The state that all dataflows share, or else what most needs to be looked at."""
        if self.chain.state == "submitting":
            return "submitting"
        return shared_state("missing" if found is None else found.state for _, found in self.overviews)

    def to_json(self) -> dict[str, Any]:
        """Everything there is to say."""
        return {
            "chain": self.chain.name,
            "state": self.state,
            "submitted_ms": self.chain.submitted_ms,
            "dataflows": [
                {
                    "name": member.key,
                    "dataflow": member.dataflow,
                    "fed_by": list(member.fed_by),
                    "state": "missing" if found is None else found.state,
                    "overview": None if found is None else found.model_dump(mode="json"),
                }
                for member, found in self.overviews
            ],
            **({"retention_holds": [one.model_dump(mode="json") for one in self.held]} if self.held else {}),
        }

    def renderable(self) -> RenderableType:
        """For a terminal."""
        head = facts(
            (
                ("chain", self.chain.name),
                ("state", state_text(self.state)),
                ("error", self._errors()),
                ("logs keep", held_text(self.held, self.chain.name)),
            )
        )
        rows = [
            (
                f"{self.chain.name}/{member.key}",
                state_text("missing" if found is None else found.state),
                ", ".join(member.fed_by) or "-",
                *(
                    (None,) * 4
                    if found is None
                    else (found.tasks_total, len(found.workers), found.records_out, lag_text(found))
                ),
            )
            for member, found in self.overviews
        ]
        columns = ("DATAFLOW", "STATE", "FED BY", ">TASKS", ">WORKERS", ">RECORDS OUT", ">LAG")
        return Group(head, Text(), table(columns, rows))

    def _errors(self) -> str | None:
        errors = [f"{m.key}: {found.error}" for m, found in self.overviews if found is not None and found.error]
        return "\n".join(errors) or None


def chain_overview(registry: Registry, chain: ChainDescriptor, now_ms: int) -> ChainOverview:
    """Look at all of a chain's dataflows once."""
    found: list[tuple[ChainMember, DataflowOverview | None]] = []
    held: list[HeldLog] = []
    for member in chain.members:
        view = DataflowView(registry, member.dataflow)
        try:
            seen = overview_of(view, now_ms)
            held += held_for(view) if seen.state != "unreadable" else ()
        except DataflowNotFound:
            found.append((member, None))
            continue
        found.append((member, seen))
    return ChainOverview(chain, graph_of(chain.parsed()), tuple(found), tuple(held))
