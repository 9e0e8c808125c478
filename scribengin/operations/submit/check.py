"""Everything that can be checked of a dataflow before it runs, its transformation by Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ScribenginError
from scribengin.operations.state import TaskState, state_here
from scribengin.operations.submit.explain import Explanation, explain
from scribengin.spark import runtime
from scribengin.spark.stateful.transformation import StatefulTransformation, load_transformation
from scribengin.spark.transform.spec import CheckedPlan, TransformationSpec
from scribengin_registry.contract import Registry


def check(
    registry: Registry,
    config: DataflowConfig,
    *,
    exists: bool = False,
    transformation: bool = True,
    expected: tuple[type[ScribenginError], ...] = (),
    saying: Callable[[str], None] = lambda _: None,
) -> tuple[Explanation, list[ScribenginError]]:
    """Check everything that can be checked without running it. Changes nothing. `exists`: it is there, and is to
    become this, with the state that it has. Without `transformation`, that is not looked at, which needs Spark; nor
    while anything is wrong but what is `expected`. `saying` is told when Spark is asked, which takes long."""

    def by_spark(spec: Callable[[], TransformationSpec]) -> CheckedPlan:
        if not transformation:
            return CheckedPlan({}, {}, ())
        saying(f"checking the transformation of '{config.name}'; Spark takes some seconds")
        kept = state_here(DataflowView(registry, config.name)) if exists else []
        return _checked_by_spark(config, spec, kept)

    environment = Environment(registry=registry, dataflow=config.name, nodes=STREAM_NODES)
    return explain(registry, config, environment, by_spark, exists=exists, code=transformation, expected=expected)


def _checked_by_spark(
    config: DataflowConfig, spec: Callable[[], TransformationSpec], kept: Sequence[TaskState]
) -> CheckedPlan:
    with runtime.brief_session(f"explain {config.name}", config.spark.conf) as session:
        transformation = load_transformation(spec(), session)
        if isinstance(transformation, StatefulTransformation):
            partitions = None if config.state is None else config.state.partitions
            return transformation.check({one.task: one.directory for one in kept}, partitions)
        return transformation.check()
