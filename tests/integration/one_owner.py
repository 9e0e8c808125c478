"""A dataflow of one task run by one owner in this process, with its own transformation, without masters and workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.spark.transform.transformation import Transformation
from scribengin_registry.contract import Registry
from tests.integration.owners import owners_of


def taken_over(registry: Registry, resources: OpenedDataflow, spark: SparkSession, generation: int = 1) -> RoundRunner:
    """The owner of the task under that generation, which it has taken over."""
    transformation = Transformation.load(resources.transformation_spec(), spark)
    (owner,) = owners_of(registry, resources, transformation, generation=generation)
    owner.take_over()
    return owner


@contextmanager
def run_until_drained(
    registry: Registry, spark: SparkSession, flow: DataflowConfig, generation: int = 1
) -> Iterator[OpenedDataflow]:
    """Run all rounds as the owner of that generation, give the task back, and yield what the dataflow has open."""
    with OpenedDataflow(flow, Environment(registry=registry, dataflow=flow.name, nodes=STREAM_NODES)) as resources:
        owner = taken_over(registry, resources, spark, generation)
        while owner.run_round() is not None:
            pass
        assert owner.lag() == 0
        owner.release()
        owner.close()
        yield resources
