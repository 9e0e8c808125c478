"""A dataflow run by one owner in this process, without masters and workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from scribengin.clock import SYSTEM_CLOCK
from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.resources import Resources
from scribengin.dataflow.round import TaskOwner
from scribengin.spark.transformation import Transformation
from scribengin_registry.contract import Registry


@contextmanager
def run_until_drained(
    registry: Registry, spark: SparkSession, flow: DataflowConfig, lease: int = 1
) -> Iterator[Resources]:
    """Run all rounds as the owner of that lease, give the task back, and yield what the dataflow has open."""
    with Resources(flow, Environment(registry=registry, dataflow=flow.name)) as resources:
        for name, streams in resources.sink_streams(1).items():
            resources.sinks[name].create(streams)
        owner = TaskOwner(
            registry,
            flow.name,
            resources.tasks()[0],
            owner=f"test-{lease}",
            lease=lease,
            sources=resources.sources,
            sinks=resources.sinks,
            transform=Transformation.load(resources.transformation_spec(), spark),
            round_config=flow.round,
            errors=flow.errors,
            clock=SYSTEM_CLOCK,
        )
        owner.take_over()
        while owner.run_round() is not None:
            pass
        assert owner.lag() == 0
        owner.release()
        owner.close()
        yield resources
