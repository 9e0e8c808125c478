"""What a task with state leaves in Spark's JVM when it is taken over again: in trouble that happens every second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scribengin.base.threads import pause
from scribengin.dataflow.round.stateful import StatefulRunner
from scribengin_registry.contract import Registry
from tests.garbage import collect_garbage
from tests.integration.state_flow import StateFlow, drain

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNTS = "SELECT window.start AS start, who, count(*) AS n FROM src GROUP BY window(at, '10 seconds'), who"
LOOKS_MAX = 100


def test_a_query_that_was_stopped_is_kept_by_nobody(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    """Nor are its plan, its sessions and what it has told of its batches"""
    flow = StateFlow(memory_registry, spark, tmp_path, sql=COUNTS)
    flow.append("in/0", [(10, "a", 1)])
    with flow.owner() as owner:
        owner.take_over()
        drain(owner)
        [finished, *_] = weakly(spark, owner)
        for _ in range(2):
            owner.take_over()
            flow.append("in/0", [(11, "a", 1)])
            drain(owner)
        owner.take_over()
        idle = weakly(spark, owner)
        owner.take_over()  # the session that was made last is the active one
        owner.release()
        assert any(are_gone(spark, [finished, *idle]) for _ in range(LOOKS_MAX))


def weakly(spark: SparkSession, owner: StatefulRunner) -> list[Any]:
    """References to its query and the two sessions of that, which keep nothing."""
    assert owner._query is not None
    jvm: Any = spark._jvm
    query = owner._query._query._jsq.streamingQuery()  # type: ignore[attr-defined]
    kept = (query, query.sparkSession(), query.sparkSessionForStream())
    return [jvm.java.lang.ref.WeakReference(one) for one in kept]


def are_gone(spark: SparkSession, kept: Sequence[Any]) -> bool:
    """Without asking for one of them: py4j lets go of what it has told us a second late."""
    collect_garbage()
    jvm: Any = spark._jvm
    jvm.System.gc()
    pause(0.5)  # a look costs the JVM as much
    return all(one.refersTo(None) for one in kept)
