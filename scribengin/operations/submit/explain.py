"""Everything about a dataflow that can be checked without running it.

`submit` refuses what `explain` finds wrong. Each check stands alone, so that one run shows all that is wrong and not
the first thing only. The transformation, which takes Spark some seconds, is looked at once the rest is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scribengin.base.model import Descriptor
from scribengin.connectors import Environment
from scribengin.connectors.contract import Guarantee
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.config_node import already_there, owner_of_resource, refuse_taken, refuse_too_large
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.registry.view import dataflow_names
from scribengin.dataflow.round.checkpoints import refuse_unusable
from scribengin.dataflow.tasks import idle_workers
from scribengin.errors import (
    ConfigError,
    ConfigInvalid,
    DataflowError,
    LogError,
    ScribenginError,
    SystemUnreachable,
)
from scribengin.operations.submit.memory import memory_note, planned
from scribengin.spark.transform.spec import CheckedPlan, StateOperator, TransformationSpec
from scribengin_registry.contract import Registry

_TOLD = (ConfigError, LogError, DataflowError, SystemUnreachable)


class Explanation(Descriptor):
    """What a dataflow would be, and what is wrong with it."""

    dataflow: str
    sources: dict[str, list[str]] = {}
    """The streams of each source."""
    divided_by: dict[str, list[str]] = {}
    """The columns by which records are divided among them, where the source says so."""
    sinks: dict[str, str] = {}
    """The resource of each sink."""
    comes_again: dict[str, str] = {}
    """By sink, the source that reads what goes there: the transformation is to send less there each time."""
    guarantees: dict[str, Guarantee] = {}
    """What each sink promises of the output after a crash."""
    guarantee_note: dict[str, str] = {}
    """What that rests on, where it is not the same for all sinks of a kind."""
    memory_mb: int = 0
    """What a worker gets, in MiB. 0: nobody knows, as the sources and sinks could not be opened."""
    memory_note: str = ""
    """Why it is not what the config says."""
    tasks: list[TaskDescriptor] = []
    inputs: dict[str, str] = {}
    """The columns of each source as the transformation sees them, as DDL."""
    outputs: dict[str, str] = {}
    """The columns that the transformation gives each sink, as DDL."""
    operators: list[str] = []
    """The operators of the executed plan; of a transformation with state, those that keep it."""
    state: list[StateOperator] = []
    """What keeps state, by which key, and what bounds it."""
    problems: list[str] = []
    """What is wrong, a line each. Empty: it can be submitted."""


def explain(
    registry: Registry,
    config: DataflowConfig,
    environment: Environment,
    check_transformation: Callable[[Callable[[], TransformationSpec]], CheckedPlan],
    *,
    exists: bool = False,
    code: bool = True,
    expected: tuple[type[ScribenginError], ...] = (),
) -> tuple[Explanation, list[ScribenginError]]:
    """Check a dataflow that is not submitted yet, or `exists` and is to become this. Returns what it would be, and the
    errors behind `problems`.

    `check_transformation` is given what makes the specification, which may need Spark: a table's columns do. That takes
    long, so it is asked only when nothing else is wrong but what is `expected`. Without `code` nobody looks at the
    transformation's files. Changes nothing. Raises only what makes every answer impossible (the registry is away).
    """
    errors: list[ScribenginError] = []
    divisions = {name: source.division for name, source in config.sources.items()}
    divided_by = {name: list(division.columns) for name, division in divisions.items() if division is not None}
    found = Explanation(dataflow=config.name, divided_by=divided_by, comes_again=read_again(config))
    with _collected(errors):
        if not exists:
            _check_name(registry, config)
    with _collected(errors):
        if not exists:
            refuse_own_output(config)
    errors += problems_of_files(config, code=code)
    with _collected(errors), OpenedDataflow(config, environment) as resources:
        found = found.model_copy(
            update={
                "sinks": {name: sink.resource for name, sink in resources.sinks.items()},
                "guarantees": resources.guarantees(),
                "guarantee_note": {
                    name: sink.guarantee_note for name, sink in resources.sinks.items() if sink.guarantee_note
                },
                "memory_mb": planned(config, resources.with_jvms()).container.memory_mb,
                "memory_note": memory_note(config, resources.with_jvms()),
            }
        )
        with _collected(errors):
            _check_resources(registry, config, found.sinks)
        with _collected(errors):
            if config.state is not None:
                refuse_unusable(config.state, here=config.launcher == "local")
        if config.launcher == "local":  # elsewhere it is not this machine that writes
            _check_writable(resources, errors)
        with _collected(errors):
            streams = resources.source_streams()
            found = found.model_copy(
                update={
                    "sources": {name: [s.name for s in of_source] for name, of_source in streams.items()},
                    "tasks": resources.tasks(streams),
                }
            )
        if not exists:
            _check_workers(config, found, errors, expected)
        with _collected(errors):
            if any(not isinstance(error, expected) for error in errors):
                return _with_problems(found, errors), errors
            plan = check_transformation(resources.transformation_spec)
            found = found.model_copy(
                update={
                    "inputs": plan.inputs,
                    "outputs": plan.outputs,
                    "operators": list(plan.operators),
                    "state": list(plan.state),
                }
            )
    return _with_problems(found, errors), errors


def problems_of_files(config: DataflowConfig, *, code: bool = True) -> list[ScribenginError]:
    """What is wrong with a dataflow by its descriptor and its transformation's files alone; without `code`, by its
    descriptor. It asks neither the registry nor Spark, so it takes no time."""
    errors: list[ScribenginError] = []
    with _collected(errors):
        refuse_too_large(config)
    with _collected(errors):
        if config.spark.master is not None:
            from scribengin.spark.session.spark_master import refuse_unknown  # with PySpark

            refuse_unknown(config.spark.master)
    with _collected(errors):
        if code:
            _check_code(config)
    return errors


def _with_problems(found: Explanation, errors: Sequence[ScribenginError]) -> Explanation:
    return found.model_copy(update={"problems": [str(error) for error in errors]})


@contextmanager
def _collected(errors: list[ScribenginError]) -> Iterator[None]:
    try:
        yield
    except _TOLD as error:
        errors.append(error)


def _check_name(registry: Registry, config: DataflowConfig) -> None:
    if config.name in dataflow_names(registry):
        raise already_there(config.name)


def _check_writable(resources: OpenedDataflow, errors: list[ScribenginError]) -> None:
    for sink in resources.sinks.values():
        with _collected(errors):
            sink.refuse_unwritable()


def _check_workers(
    config: DataflowConfig,
    found: Explanation,
    errors: list[ScribenginError],
    expected: tuple[type[ScribenginError], ...],
) -> None:
    """Also where there are no streams because what makes them is `expected` to come. Where they could not be asked for,
    nobody knows."""
    if not found.sources and any(not isinstance(error, expected) for error in errors):
        return
    if (why := idle_workers(config, len(found.tasks), submitted=False)) is not None:
        errors.append(ConfigInvalid(why))


def _check_code(config: DataflowConfig) -> None:
    """What the files alone show. A package that was shipped already is elsewhere."""
    if config.transformation is None or "://" in (config.package or ""):
        return
    from scribengin.spark.transform.user_package import UserPackage  # with PySpark, which takes a while to import

    UserPackage(Path(config.package) if config.package is not None else None).refuse_missing(config.transformation)


def refuse_own_output(config: DataflowConfig) -> None:
    """Raise ConfigInvalid where each record of an output would come again for ever, as would a bad or a late one.

    A transformation of several outputs may send there what is to come again, and nothing else."""
    again = read_again(config)
    spared = () if all(sink in again for sink in config.outputs) else config.outputs
    for sink, source in again.items():
        if sink not in spared:
            raise ConfigInvalid(
                f"source '{source}' reads what sink '{sink}' writes ({config.sinks[sink].endpoint()}): each record "
                "would come again for ever; write elsewhere, or read less"
            )


def read_again(config: DataflowConfig) -> dict[str, str]:
    """The sinks whose output a source of the same dataflow reads, for ever."""
    return {
        sink: source
        for sink, written in config.sinks.items()
        for source, read in config.sources.items()
        if read.reads_again(written.first())
    }


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
