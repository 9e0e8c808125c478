"""Checking a chain before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scribengin.dataflow.registry.view import dataflow_names
from scribengin.errors import ChainExists, DataflowExists, ScribenginError, SourceMissing
from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.graph import ChainGraph, graph_of
from scribengin.operations.chain.submit import begun_before, problems_of
from scribengin.operations.submit.check import check
from scribengin.operations.submit.explain import Explanation
from scribengin_registry.contract import Registry

_TOLD_OF_THE_CHAIN = (SourceMissing, DataflowExists)
"""What the chain itself creates need not be there; `problems_of` tells of the rest, and of names."""


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """What a chain would be, and all that is wrong with it."""

    chain: ChainConfig
    graph: ChainGraph
    dataflows: dict[str, Explanation]
    errors: tuple[ScribenginError, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything there is to say."""
        return {
            "chain": self.chain.name,
            "order": list(self.graph.order),
            "edges": [
                {"from": e.writer, "sink": e.sink, "through": e.place, "to": e.reader, "source": e.source}
                for e in self.graph.edges
            ],
            "dataflows": {key: found.model_dump(mode="json") for key, found in self.dataflows.items()},
            "problems": [str(error) for error in self.errors],
        }


def check_chain(registry: Registry, chain: ChainConfig, *, transformations: bool = True) -> ChainCheck:
    """Check everything that can be checked without running it; `transformations` with Spark, once the rest is right.
    Changes nothing."""
    graph = graph_of(chain)
    errors = problems_of(registry, chain)
    found, of_flows = _of_dataflows(registry, chain, transformations=False)
    errors += of_flows
    if transformations and not errors:
        found, errors = _of_dataflows(registry, chain, transformations=True)
    return ChainCheck(chain, graph, found, tuple(errors))


def _of_dataflows(
    registry: Registry, chain: ChainConfig, *, transformations: bool
) -> tuple[dict[str, Explanation], list[ScribenginError]]:
    begun = _begun(registry, chain)
    found: dict[str, Explanation] = {}
    errors: list[ScribenginError] = []
    for key in graph_of(chain).order:
        config = chain.dataflows[key]
        exists = begun and config.name in dataflow_names(registry)
        found[key], of_flow = check(
            registry, config, exists=exists, transformation=transformations, expected=_TOLD_OF_THE_CHAIN
        )
        errors += [error for error in of_flow if not isinstance(error, _TOLD_OF_THE_CHAIN)]
    return found, errors


def _begun(registry: Registry, chain: ChainConfig) -> bool:
    try:
        return begun_before(registry, chain) is not None
    except (ChainExists, DataflowExists):
        return False
