"""Checking a chain before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scribengin.dataflow.registry.view import dataflow_names
from scribengin.errors import ChainExists, DataflowExists, ScribenginError, SourceMissing
from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.graph import ChainGraph, graph_of
from scribengin.operations.chain.submit import begun_before, problems_of
from scribengin.operations.submit.check import check
from scribengin.operations.submit.explain import Explanation, problems_of_files
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


def problems_of_chain_files(chain: ChainConfig, *, code: bool = True) -> list[ScribenginError]:
    """What is wrong with the dataflows of a chain by its file and their transformations' files alone; without `code`,
    by its file. It asks neither the registry nor Spark."""
    return [
        _of_dataflow(key, error)
        for key in graph_of(chain).order
        for error in problems_of_files(chain.dataflows[key], code=code)
    ]


def check_chain(
    registry: Registry,
    chain: ChainConfig,
    *,
    transformations: bool = True,
    saying: Callable[[str], None] = lambda _: None,
) -> ChainCheck:
    """Check everything that can be checked without running it; `transformations` with Spark, once the rest is right.
    `saying` is told of each that Spark is asked about, which takes long. Changes nothing."""
    graph = graph_of(chain)
    errors = problems_of(registry, chain)
    found, of_flows = _of_dataflows(registry, chain, transformations=False, saying=saying)
    errors += of_flows
    if transformations and not errors:
        found, errors = _of_dataflows(registry, chain, transformations=True, saying=saying)
    return ChainCheck(chain, graph, found, tuple(errors))


def _of_dataflows(
    registry: Registry, chain: ChainConfig, *, transformations: bool, saying: Callable[[str], None]
) -> tuple[dict[str, Explanation], list[ScribenginError]]:
    begun = _begun(registry, chain)
    found: dict[str, Explanation] = {}
    errors: list[ScribenginError] = []
    for key in graph_of(chain).order:
        config = chain.dataflows[key]
        exists = begun and config.name in dataflow_names(registry)
        found[key], of_flow = check(
            registry,
            config,
            exists=exists,
            transformation=transformations,
            expected=_TOLD_OF_THE_CHAIN,
            saying=saying,
        )
        errors += [_of_dataflow(key, error) for error in of_flow if not isinstance(error, _TOLD_OF_THE_CHAIN)]
    return found, errors


def _of_dataflow(key: str, error: ScribenginError) -> ScribenginError:
    """The error, which says whose it is now. Behind a user's traceback that stands in the line that sums it up."""
    body, newline, last = str(error).rpartition("\n") if "Traceback (most" in str(error) else ("", "", str(error))
    error.args = (f"{body}{newline}dataflow '{key}': {last}",)
    return error


def _begun(registry: Registry, chain: ChainConfig) -> bool:
    try:
        return begun_before(registry, chain) is not None
    except (ChainExists, DataflowExists):
        return False
