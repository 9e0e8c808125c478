"""Everything about a dataflow that can be checked without running it.

`submit` refuses what `explain` finds wrong. Each check stands alone, so that one run shows all that is wrong and not
the first thing only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scribengin.connectors import Environment
from scribengin.dataflow import paths
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.descriptors import TaskDescriptor
from scribengin.dataflow.resources import Resources
from scribengin.dataflow.view import already_there, dataflow_names, owner_of_resource, refuse_taken
from scribengin.errors import (
    ConfigError,
    ConfigInvalid,
    DataflowExists,
    LogError,
    ScribenginError,
    TransformationFailed,
)
from scribengin.model import Descriptor
from scribengin.spark.spec import CheckedPlan, TransformationSpec
from scribengin_registry.contract import Registry


class Explanation(Descriptor):
    """What a dataflow would be, and what is wrong with it."""

    dataflow: str
    sources: dict[str, list[str]] = {}
    """The streams of each source."""
    sinks: dict[str, str] = {}
    """The resource of each sink."""
    tasks: list[TaskDescriptor] = []
    inputs: dict[str, str] = {}
    """The columns of each source as the transformation sees them, as DDL."""
    outputs: dict[str, str] = {}
    """The columns that the transformation gives each sink, as DDL."""
    operators: list[str] = []
    """The operators of the executed plan."""
    problems: list[str] = []
    """What is wrong, a line each. Empty: it can be submitted."""


def explain(
    registry: Registry,
    config: DataflowConfig,
    environment: Environment,
    check_transformation: Callable[[TransformationSpec], CheckedPlan],
) -> tuple[Explanation, list[ScribenginError]]:
    """Check a dataflow that is not submitted yet. Returns what it would be, and the errors behind `problems`.

    Changes nothing. Raises only what makes every answer impossible (the registry is away).
    """
    errors: list[ScribenginError] = []
    found = Explanation(dataflow=config.name)
    with _collected(errors):
        _check_name(registry, config)
    with _collected(errors), Resources(config, environment) as resources:
        found = found.model_copy(update={"sinks": {name: sink.resource for name, sink in resources.sinks.items()}})
        with _collected(errors):
            _check_resources(registry, config, found.sinks)
        with _collected(errors):
            streams = resources.source_streams()
            found = found.model_copy(
                update={
                    "sources": {name: [s.name for s in of_source] for name, of_source in streams.items()},
                    "tasks": resources.tasks(streams),
                }
            )
        with _collected(errors):
            plan = check_transformation(resources.transformation_spec())
            found = found.model_copy(
                update={"inputs": plan.inputs, "outputs": plan.outputs, "operators": list(plan.operators)}
            )
    return found.model_copy(update={"problems": [str(error) for error in errors]}), errors


@contextmanager
def _collected(errors: list[ScribenginError]) -> Iterator[None]:
    try:
        yield
    except (ConfigError, LogError, DataflowExists, TransformationFailed) as error:
        errors.append(error)


def _check_name(registry: Registry, config: DataflowConfig) -> None:
    if config.name in dataflow_names(registry):
        raise already_there(config.name)


def _check_resources(registry: Registry, config: DataflowConfig, resources: dict[str, str]) -> None:
    by_resource: dict[str, str] = {}
    for sink, resource in resources.items():
        if resource in by_resource:
            raise ConfigInvalid(
                f"sinks '{by_resource[resource]}' and '{sink}' both write {resource}: give each its own"
            )
        by_resource[resource] = sink
        node = registry.find(paths.sink_resource(resource))
        if node is not None:
            refuse_taken(resource, owner_of_resource(node), config.name)
