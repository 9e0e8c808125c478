"""A dataflow's transformation: loaded once, run round after round by any number of threads.

    transformation = Transformation.load(spec, session)
    transformation.check()                        # explain, submit: narrow, with the outputs that there are sinks for
    outputs = transformation.run({"flights": splits})
    outputs = transformation.run_tables({"flights": table})

The user's function is called when a plan is built, not once a round: it describes what becomes of the records. Static
tables are read, and broadcast, once a plan. A thread that finds no idle plan builds one; small and large rounds have
plans of their own. Where the plan holds the time or something random it is built anew for every round.

The output of a round follows the order of its input, stream by stream: the records of a source in the order of its
splits; with several outputs, each by itself.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from scribengin.connectors.contract import RecordSplit
from scribengin.spark.session.session import scratch_directory
from scribengin.spark.session.spark_master import files_are_shared
from scribengin.spark.transform.plan_builder import PlanBuilder
from scribengin.spark.transform.plan_builder import TransformationContext as TransformationContext
from scribengin.spark.transform.plan_pool import PlanPool, Shape
from scribengin.spark.transform.raising import RaisingRecords
from scribengin.spark.transform.screen import Screens
from scribengin.spark.transform.spec import CheckedPlan as CheckedPlan
from scribengin.spark.transform.spec import InputSpec as InputSpec
from scribengin.spark.transform.spec import OutputSpec as OutputSpec
from scribengin.spark.transform.spec import TransformationSpec as TransformationSpec

SMALL_BYTES_MAX = 8 * 1024 * 1024
SMALL_RECORDS_MAX = 50_000
"""A round up to both is small: one partition, and its output through the JVM."""

Outputs = dict[str, list[pa.RecordBatch]]


class Transformation:
    """The user's transformation over records. Any thread may use it."""

    def __init__(self, builder: PlanBuilder, session: SparkSession) -> None:
        """Use `Transformation.load`."""
        self.spec = builder.spec
        self._builder = builder
        self._session = session
        self._directory = Path(tempfile.mkdtemp(dir=scratch_directory(), prefix="plans-"))
        self._plans = PlanPool(builder, session, self._directory)
        self._lock = threading.Lock()
        self._raising: RaisingRecords | None = None
        with builder.planning():
            local = files_are_shared(session.sparkContext.master or "")
            parallel = max(session.sparkContext.defaultParallelism, 1)
        self._small = Shape(1, through_files=False, remote=not local)
        self._large = Shape(parallel, through_files=local, remote=not local)
        self._screens = Screens(self.spec.inputs, session, self._directory, self._large)

    @classmethod
    def load(cls, spec: TransformationSpec, session: SparkSession) -> Transformation:
        """Import the user's function. Raises PackageInvalid, SparkUnavailable."""
        return cls(PlanBuilder(spec), session)

    def check(self) -> CheckedPlan:
        """Build it and look at the plan. Raises NotNarrow, PackageInvalid, ConfigInvalid, SparkUnavailable."""
        with self._plans.take(self._small) as plan:
            inputs = {name: frame.schema.toDDL() for name, frame in plan.built.inputs.items()}
            outputs = {name: frame.schema.toDDL() for name, frame in plan.built.given.items()}
            return CheckedPlan(inputs, outputs, plan.operators)

    def warm_up(self) -> None:
        """Execute it over nothing, in a small and in a large plan. Raises as `run`.

        The first execution of each loads what Spark is made of, forks its Python workers and reads the static tables:
        seconds, which are better spent before there are tasks that stand still for it.
        """
        for shape in (self._small, self._large):
            with self._plans.take(shape) as plan:
                plan.run({})

    def run(self, inputs: Mapping[str, Sequence[RecordSplit]]) -> Outputs:
        """Transform one round: splits in order, by source; a source without any may be left out.

        Returns batches by output (all of them; an output without records has none), with the columns that its
        OutputSpec says.

        Raises TransformationFailed for whatever their code or data did, with `reason` in one line and Spark's exception
        as the cause; SparkUnavailable for Spark's own trouble; what reading a split raises; and what `check` raises.
        """
        splits = [split for of_source in inputs.values() for split in of_source]
        if not splits:
            return self._nothing()
        with self._plans.take(self._shape(sum(s.records for s in splits), sum(s.size_bytes for s in splits))) as plan:
            return self._nothing() | plan.run(inputs)

    def run_tables(self, inputs: Mapping[str, pa.Table]) -> Outputs:
        """The same on records in hand, one table a source, in the source's schema."""
        records = sum(table.num_rows for table in inputs.values())
        if not records:
            return self._nothing()
        with self._plans.take(self._shape(records, sum(table.nbytes for table in inputs.values()))) as plan:
            return self._nothing() | plan.run_tables(inputs)

    def undecodable(self, inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        """As `Screens`."""
        return self._screens.undecodable(inputs)

    def raising(self, inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        """By source, the rows on which a Python function of the plan seems to raise, and what: one job a source, for
        all its rows. A guess: what becomes of such a row alone, or of all others, only a run says. Where rows had to be
        counted, it does not say what.

        Raises SparkUnavailable.
        """
        if self.spec.function is None:
            return {}
        records, size_bytes = sum(t.num_rows for t in inputs.values()), sum(t.nbytes for t in inputs.values())
        return self._watched().find(inputs, self._shape(records, size_bytes))

    def _watched(self) -> RaisingRecords:
        with self._lock:
            if self._raising is None:
                directory = self._directory / "watched"
                directory.mkdir()
                self._raising = RaisingRecords(self._builder, self._session, directory)
            return self._raising

    def _shape(self, records: int, size_bytes: int) -> Shape:
        return self._small if records <= SMALL_RECORDS_MAX and size_bytes <= SMALL_BYTES_MAX else self._large

    def _nothing(self) -> Outputs:
        return {name: [] for name in self.spec.outputs}
