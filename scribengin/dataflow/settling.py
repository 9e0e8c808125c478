"""Bringing every round of a dataflow that does not run to its end: before its positions and claims are forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from scribengin.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors import Environment
from scribengin.connectors.contract import ReadSplit
from scribengin.dataflow.resources import Resources
from scribengin.dataflow.round import TaskOwner
from scribengin.dataflow.view import DataflowView, Versioned
from scribengin.errors import LogNotFound


class _Nothing:
    """The transformation of an owner that runs no rounds."""

    def run(self, inputs: Mapping[str, Sequence[ReadSplit]]) -> dict[str, list[pa.RecordBatch]]:
        return {}

    def run_tables(self, inputs: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        return {}


def settle(view: DataflowView, clock: Clock = SYSTEM_CLOCK) -> None:
    """Take every task over and give it back: what was committed is visible afterwards, and nothing else is staged.

    A worker that was killed between its commit and the completion leaves such a round, and only the commit logs know of
    it. What waits to be merged is merged: the next dataflow that writes there knows nothing of it. A log that was
    deleted meanwhile has nothing to complete. Raises what opening and recovering the sinks raises.
    """
    head = view.placement_head()
    lease = head.value.next_lease
    view.commit_placement(Versioned(head.value.model_copy(update={"next_lease": lease + 1}), head.version), [])
    config = view.config_in_force().value
    environment = Environment(registry=view.registry, dataflow=view.dataflow, clock=clock)
    with Resources(config.model_copy(update={"sources": {}}), environment) as resources:
        for task in view.tasks().values():
            owner = TaskOwner(
                view.registry,
                view.dataflow,
                task.model_copy(update={"sources": ()}),
                owner="settling",
                lease=lease,
                sources={},
                sinks=resources.sinks,
                transform=_Nothing(),
                round_config=config.round,
                errors=config.errors,
                clock=clock,
            )
            try:
                owner.take_over()
                owner.release()
            except LogNotFound:
                continue
            finally:
                owner.close()
        for sink in resources.sinks.values():
            sink.maintain(view.registry, idle=True)
