"""A transformation with state: the user's function, or SQL, over streams, checked, and started as a streaming query.

transformation = StatefulTransformation.load(spec, session)
transformation.check()                              # explain, submit: that Spark runs it as a stream
query = transformation.start(directory, initial)    # a task: from its checkpoint on
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, TimestampType

from scribengin.connectors.contract import RecordSplit
from scribengin.spark.arrow_files import arrow_files
from scribengin.spark.session.failures import SPARK_ERRORS, failure
from scribengin.spark.session.hadoop_settings import forget_origins
from scribengin.spark.session.local_files import make_files_in_process
from scribengin.spark.session.session import activate, scratch_directory, session_beside
from scribengin.spark.session.spark_master import files_are_shared
from scribengin.spark.stateful.beats import BEATS, beats_of, is_beats
from scribengin.spark.stateful.divided import first_misplaced, refuse_unlike
from scribengin.spark.stateful.fitting import refuse_other_sources, refuse_undividable, refuse_unfitting, undivided
from scribengin.spark.stateful.offers import BoundRange, Offset, QueryOffers
from scribengin.spark.stateful.operators import refuse_shared, refuse_unbounded, state_operators
from scribengin.spark.stateful.plan import nearest_named, refuse_unread, refuse_unstreamable, with_nulls_apart
from scribengin.spark.stateful.query import TransformationQuery
from scribengin.spark.stateful.query_log import PARTITIONS, QueryDirectory
from scribengin.spark.stateful.source import FORMAT, OfferedSource
from scribengin.spark.stateful.stored import STATE_STORE, STORED_AS
from scribengin.spark.transform.encoding import placed, prefix_beside
from scribengin.spark.transform.input import WATERMARK, carried, spark_schema
from scribengin.spark.transform.output import MemoryCollector, UnionedOutputs, collected, unite
from scribengin.spark.transform.plan_builder import Built, PlanBuilder
from scribengin.spark.transform.plan_pool import Shape
from scribengin.spark.transform.screen import Screens
from scribengin.spark.transform.spec import (
    CheckedPlan,
    InputSpec,
    Misplaced,
    StateOperator,
    StateSpec,
    TransformationSpec,
)
from scribengin.spark.transform.transformation import Transformation

_STREAMING = "spark.sql.streaming"
_ON_DISK = "file:"
_SNAPSHOTS_EVERY = "10s"
_PLANNED = Path("planned", "state")
"""Where, in the directory of a build, is what planning it has left."""


def load_transformation(spec: TransformationSpec, session: SparkSession) -> Transformation | StatefulTransformation:
    """The transformation of a dataflow, with state or without. Raises PackageInvalid, SparkUnavailable."""
    return (Transformation if spec.state is None else StatefulTransformation).load(spec, session)


class StatefulTransformation:
    """The user's transformation over streams. Tasks of one worker share it, each on a thread of its own."""

    def __init__(self, builder: PlanBuilder, session: SparkSession) -> None:
        """Use `StatefulTransformation.load`."""
        self.spec = builder.spec
        self._builder = builder
        self._session = session
        local = files_are_shared(session.sparkContext.master or "")
        parallel = max(session.sparkContext.defaultParallelism, 1)
        self._shape = Shape(parallel, through_files=local, remote=not local)
        self._screens: Screens | None = None
        self._looking: SparkSession | None = None
        self._lock = threading.Lock()

    @classmethod
    def load(cls, spec: TransformationSpec, session: SparkSession) -> StatefulTransformation:
        """Import the user's function. Raises PackageInvalid, SparkUnavailable."""
        return cls(PlanBuilder(spec), session)

    def check(self, kept: Mapping[str, QueryDirectory] | None = None, partitions: int | None = None) -> CheckedPlan:
        """Build it and look at the plan, and whether it fits what tasks have `kept`: the directory of each one's query.
        `partitions`: into how many that is to be divided; None: it stays as it is.

        Raises ConfigInvalid (what Spark cannot do to a stream, or we cannot yet), PackageInvalid, SparkUnavailable,
        TransformationFailed, and as `refuse_unfitting`."""
        with self._passing_directory() as nowhere:
            built, unioned, operators = self._built(nowhere)
            for task, directory in (kept or {}).items():
                refuse_unfitting(unioned.frame, operators, nowhere / _PLANNED, task, directory, partitions)
        return CheckedPlan(
            {name: input_.schema.toDDL() for name, input_ in built.inputs.items()},
            {name: given.schema.toDDL() for name, given in built.given.items()},
            tuple(operator.name for operator in operators),
            operators,
        )

    def start(
        self,
        checkpoint: str,
        initial: Mapping[str, Offset],
        bound: Sequence[BoundRange] = (),
        read: Sequence[str] | None = None,
    ) -> TransformationQuery:
        """Start the query in its checkpoint's directory, a URL, over streams that began at `initial`, by source. A
        batch that stands planned there runs at once, and finds what it reads in `bound`. `read`: the sources as its
        batches there have them (`QueryLog.sources`); None: there is none.

        Raises as `check`, and CheckpointMismatch for sources in another order.
        """
        with ExitStack() as unless_it_starts:
            directory = self._new_directory()
            unless_it_starts.callback(shutil.rmtree, directory, ignore_errors=True)
            query = self._started(directory, checkpoint, initial, bound, read)
            unless_it_starts.pop_all()
        return query

    def _started(
        self,
        directory: Path,
        checkpoint: str,
        initial: Mapping[str, Offset],
        bound: Sequence[BoundRange],
        read: Sequence[str] | None,
    ) -> TransformationQuery:
        _, unioned, operators = self._built(directory, checkpoint)
        if read is not None:
            refuse_other_sources(unioned.frame, read, f"the query in {checkpoint.removeprefix('file:')}")
        output = directory / "output"
        output.mkdir()
        offers = QueryOffers(directory, initial, None if self._shape.through_files else self._portable)
        for one in bound:
            offers.bind(one)
        forget_origins(self._session)
        if checkpoint.startswith(_ON_DISK):
            make_files_in_process(self._session)
        if self._shape.through_files:  # writing them is part of the query's own plan: made once, and not a batch
            unioned = replace(unioned, frame=arrow_files(unioned.frame, output))
        return TransformationQuery(
            unioned,
            lambda frame: collected(frame, output) if self._shape.through_files else MemoryCollector(frame).execute(),
            offers,
            checkpoint,
            f"running the transformation of {self.spec.dataflow}",
            by_clock=any(one.by_clock for one in operators),
        )

    def divide(self, checkpoint: str, partitions: int, before: int | None) -> None:
        """Divide the state in a checkpoint's directory, a URL, into so many partitions, while no query runs there: as
        its next batch, which reads nothing, or as the one that was begun so and is not done. `before`: in how many it
        is, where that number may be wanted again; None where it may not.

        Raises CheckpointMismatch for state that Spark does not divide, before anything is changed; SparkUnavailable.
        """
        with self._passing_directory() as nowhere:
            _, _, operators = self._built(nowhere)
        refuse_undividable(operators, str(checkpoint).removeprefix("file:"), partitions, before)
        assert self.spec.state is not None, "a transformation with state has it in its specification"
        session = session_beside(self._session, query_settings(self.spec.state, checkpoint))
        activate(session)
        try:
            session._streamingCheckpointManager.repartition(checkpoint, partitions)
        except SPARK_ERRORS as error:
            found = failure(error, f"dividing the state in {checkpoint} into {partitions} partitions")
            raise undivided(found, self.spec.dataflow, checkpoint, partitions, before) from error

    def undecodable(self, inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        """As `Screens`."""
        with self._lock:
            if self._screens is None:
                self._screens = Screens(self.spec.inputs, self._session, self._new_directory(), self._shape)
        return self._screens.undecodable(inputs)

    def misplaced(self, source: str, streams: Mapping[int, pa.Table]) -> Misplaced | None:
        """As `first_misplaced`."""
        with self._lock:
            if self._looking is None:
                self._looking = session_beside(self._session)
        return first_misplaced(self._looking, self.spec.inputs[source], streams)

    def _portable(self, source: str, splits: Sequence[RecordSplit]) -> Sequence[RecordSplit]:
        """For executors that do not see what is on this machine's disks."""
        if is_beats(source) or self.spec.inputs[source].remote_readable:
            return splits
        return carried(splits, self.spec.inputs[source].schema)

    @contextmanager
    def _passing_directory(self) -> Iterator[Path]:
        """For a plan that is not to run."""
        with tempfile.TemporaryDirectory(dir=scratch_directory(), prefix="query-") as directory:
            yield Path(directory)

    def _new_directory(self) -> Path:
        return Path(tempfile.mkdtemp(dir=scratch_directory(), prefix="query-"))

    def _built(self, directory: Path, checkpoint: str = "") -> tuple[Built, UnionedOutputs, tuple[StateOperator, ...]]:
        """The DataFrames, what one query runs for all of them, and what of that keeps state. Raises as `check`."""
        state = self.spec.state
        assert state is not None, "a transformation with state has it in its specification"
        with nearest_named(), self._builder.planning():
            session = session_beside(self._session, query_settings(state, checkpoint))
            activate(session)
            session.dataSource.register(OfferedSource)
            inputs = {
                name: self._load(session, directory, name, _source_schema(one, state))
                for name, one in self.spec.inputs.items()
            }
            beats = {
                name: self._load(session, directory, beats_of(name), spark_schema(BEATS, name))
                for name, one in state.watermarks.items()
                if one.beats
            }
            built = self._builder.build(session, inputs, beats)
            refuse_unlike(built.inputs, self.spec.inputs, several=state.tasks > 1)
            for output, frame in built.encoded.items():
                refuse_unstreamable(frame, output)
            unioned = unite(built.encoded, self.spec.outputs)
            refuse_unread(unioned.frame, self.spec.inputs)
            if state.late is not None and built.late is not None:
                late = state.late.name
                unioned = unite({**built.encoded, late: built.late}, {**self.spec.outputs, late: state.late})
            unioned = replace(unioned, frame=with_nulls_apart(unioned.frame))
            divided = self.spec.inputs if state.tasks > 1 else None
            operators = state_operators(unioned.frame, directory / _PLANNED, divided)
            if state.tasks > 1:
                refuse_shared(built.given, self.spec.outputs, self.spec.inputs)
            refuse_unbounded(operators, ", ".join(built.encoded), state.unbounded)
        return built, unioned, operators

    def _load(self, session: SparkSession, directory: Path, source: str, schema: StructType) -> DataFrame:
        partitions = self._shape.partitions
        reader = session.readStream.format(FORMAT).schema(schema)
        return reader.options(directory=str(directory), source=source, partitions=partitions).load()


def _source_schema(spec: InputSpec, state: StateSpec) -> StructType:
    schema = placed(spark_schema(spec.schema, spec.name), spec, prefix_beside(spec))
    return schema if state.late_by(spec.name) is None else schema.add(WATERMARK, TimestampType())


_IN_MOUNTED_DIRECTORIES = {
    # For each file that a batch writes the default starts `readlink` several times, and this one does not. Both
    # write a file beside its name, look that there is none of that name yet, and rename; neither syncs. On HDFS the
    # default stays: there its rename is one transaction, and this one's is a look before it.
    f"{_STREAMING}.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def query_settings(state: StateSpec, checkpoint: str) -> dict[str, str]:
    """What must not be as it is by default: see each. A checkpoint keeps its formats for ever. `checkpoint` is the URL
    of its directory, or nothing: then no query is started."""
    return {
        **STORED_AS,
        **(_IN_MOUNTED_DIRECTORIES if checkpoint.startswith(_ON_DISK) else {}),
        # A bound for what of it is in memory: else it is unbounded, and native.
        f"{STATE_STORE}.rocksdb.boundedMemoryUsage": "true",
        f"{STATE_STORE}.rocksdb.maxMemoryUsageMB": str(state.memory_mb),
        # Snapshots go into the checkpoint that often. What was changed since the last one is done again by the next
        # owner, which takes it much longer than to load files.
        f"{STATE_STORE}.maintenanceInterval": _SNAPSHOTS_EVERY,
        PARTITIONS: str(state.partitions),
        # The earliest source counts, whatever `spark.conf` says: what is said of watermarks, and beats, go by that.
        # But a checkpoint keeps the policy that its first batch was planned with, and Spark takes that: one that began
        # with `max`, before this was set here, goes on with it. Its state begins anew with a rewind.
        f"{_STREAMING}.multipleWatermarkPolicy": "min",
        # Of operators that read the same, by the same key, Spark would have one read for all, and the others stand on
        # what it has read. To those no watermark came: they gave out nothing of what it closes, and kept it for ever.
        "spark.sql.exchange.reuse": "false",
    }
