"""A transformation built once and executed round after round: its own session, inputs, DataFrame and way out."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from scribengin.connectors.contract import RecordSplit
from scribengin.errors import SparkUnavailable, TransformationFailed
from scribengin.spark.session.failures import SPARK_ERRORS, failure, records_read
from scribengin.spark.session.session import activate, session_beside
from scribengin.spark.transform.input import FORMAT, InputBinding, RoundSource, carried, spark_schema
from scribengin.spark.transform.output import (
    FileCollector,
    MemoryCollector,
    OutputCollector,
    UnionedOutputs,
    outputs_of,
    unite,
)
from scribengin.spark.transform.plan_builder import Built, PlanBuilder


@dataclass(frozen=True, slots=True)
class Shape:
    """How a plan works: into how many partitions an input is read, and whether output comes back through files."""

    partitions: int
    through_files: bool
    remote: bool = False
    """Whether executors are on other machines: then nothing goes through files, and every round is planned anew."""


class CompiledPlan:
    """Used by one thread at a time. Building it costs a second, executing it some milliseconds."""

    def __init__(self, builder: PlanBuilder, session: SparkSession, shape: Shape, directory: Path) -> None:
        """`directory` is empty and this plan's own. Raises what `PlanBuilder.build` and `PlanBuilder.check` raise."""
        self._builder = builder
        self._shape = shape
        self._directory = directory
        self._bindings = {name: self._binding(index) for index, name in enumerate(builder.spec.inputs)}
        with builder.planning():
            self._session = session_beside(session)
            activate(self._session)
            self._session.dataSource.register(RoundSource)
            self._inputs = {name: self._load(name) for name in builder.spec.inputs}
            self.built = builder.build(self._session, self._inputs)
            self.operators = builder.check(self.built)
            unioned = self._unioned(self.built)
            self._outputs = unioned.outputs
            self._collector = self._collector_of(unioned) if self.built.repeatable and not shape.remote else None

    def run(self, splits: Mapping[str, Sequence[RecordSplit]]) -> dict[str, list[pa.RecordBatch]]:
        """Execute it over `splits`. Raises TransformationFailed, SparkUnavailable, and what reading a split raises."""
        for name, binding in self._bindings.items():
            binding.bind(self._portable(name, splits.get(name, ())))
        group = f"scribengin-{uuid.uuid4().hex}"
        try:
            collector = self._collector or self._new_collector()
            self._session.sparkContext.setJobGroup(group, "a round")
            batches = collector.execute()
        except SPARK_ERRORS as error:
            raise self._failure(error, splits, group) from error
        finally:
            for binding in self._bindings.values():
                binding.unbind()
        return outputs_of(batches, self._outputs)

    def run_tables(self, tables: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        """The same over records in hand."""
        return self.run({name: self._bindings[name].write(table) for name, table in tables.items()})

    def _new_collector(self) -> OutputCollector:
        """For one round: where the time, a seed or the records themselves are part of the plan."""
        with self._builder.planning():
            activate(self._session)
            if self._shape.remote:
                self._inputs = {name: self._load(name) for name in self._inputs}
            return self._collector_of(self._unioned(self._builder.build(self._session, self._inputs)))

    def _portable(self, name: str, splits: Sequence[RecordSplit]) -> Sequence[RecordSplit]:
        """The same records where executors can read them. Raises what reading a split raises."""
        if not self._shape.remote or self._builder.spec.inputs[name].remote_readable:
            return splits
        return carried(splits, self._builder.spec.inputs[name].schema)

    def _binding(self, index: int) -> InputBinding:
        directory = self._directory / f"input-{index}"
        directory.mkdir()
        return InputBinding(directory, self._shape.partitions, self._shape.remote)

    def _load(self, name: str) -> DataFrame:
        binding = self._bindings[name]
        schema = spark_schema(self._builder.spec.inputs[name].schema, name)
        reader = self._session.read.format(FORMAT).schema(schema)
        return reader.options(
            directory=str(binding.directory), partitions=binding.partitions, embedded=binding.embedded
        ).load()

    def _unioned(self, built: Built) -> UnionedOutputs:
        return unite(built.encoded, self._builder.spec.outputs)

    def _collector_of(self, unioned: UnionedOutputs) -> OutputCollector:
        if not self._shape.through_files:
            return MemoryCollector(unioned.frame)
        directory = self._directory / "output"
        directory.mkdir(exist_ok=True)
        return FileCollector(unioned.frame, directory)

    def _failure(
        self, error: Exception, splits: Mapping[str, Sequence[RecordSplit]], group: str
    ) -> TransformationFailed | SparkUnavailable:
        resolved = failure(error, f"running the transformation of {self._builder.spec.dataflow}")
        if isinstance(resolved, SparkUnavailable):
            # If it was the reading, its own exception says more than what a worker's traceback tells of it.
            for split in (split for of_input in splits.values() for split in of_input):
                for _ in split.read():
                    pass
        else:
            resolved.row = self._stopped_at(splits, group)
        return resolved

    def _stopped_at(self, splits: Mapping[str, Sequence[RecordSplit]], group: str) -> int | None:
        """The record of its only source at which a job stopped that read it in one partition, as far as one can see."""
        counts = [sum(split.records for split in of_input) for of_input in splits.values()]
        read = [count for count in counts if count]
        if self._shape.partitions > 1 or len(read) != 1:
            return None
        done = records_read(self._session.sparkContext, group)
        return done - 1 if done is not None and 0 < done < read[0] else None


class PlanPool:
    """The idle plans of one transformation: a thread takes one, and makes one when there is none."""

    def __init__(self, builder: PlanBuilder, session: SparkSession, directory: Path) -> None:
        self._builder = builder
        self._session = session
        self._directory = directory
        self._lock = threading.Lock()
        self._idle: dict[Shape, list[CompiledPlan]] = {}
        self._made = 0

    @contextmanager
    def take(self, shape: Shape) -> Iterator[CompiledPlan]:
        """A plan of that shape, while the block lasts. After an error that is not the records', it is dropped."""
        with self._lock:
            idle = self._idle.setdefault(shape, [])
            plan = idle.pop() if idle else None
        if plan is None:
            plan = self._make(shape)
        try:
            yield plan
        except TransformationFailed:
            self._give_back(shape, plan)
            raise
        self._give_back(shape, plan)

    def _make(self, shape: Shape) -> CompiledPlan:
        with self._lock:
            self._made += 1
            directory = self._directory / str(self._made)
        directory.mkdir()
        return CompiledPlan(self._builder, self._session, shape, directory)

    def _give_back(self, shape: Shape, plan: CompiledPlan) -> None:
        with self._lock:
            self._idle[shape].append(plan)
