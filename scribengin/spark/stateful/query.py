"""A streaming query whose batches its owner commits: what Spark's thread makes of one is handed over, and no more.

    owner's thread                                 Spark's thread, in foreachBatch
    offer(offsets)
    next_batch()          <- the batch's output -  execute, hand over, wait
    (stage, commit, complete)
    finish(batch)         -  the verdict ->        return: Spark writes down that the batch is done
    stop()                -  or an exception ->    raise: Spark does not, and the query ends

A batch is executed by one action, which reads all of it: two would keep state twice, and less would lose some.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from scribengin.base.threads import pause
from scribengin.errors import CheckpointMismatch, OutOfRoom, SparkUnavailable
from scribengin.spark.session.failures import SPARK_ERRORS, failure, java_causes, told_causes
from scribengin.spark.session.source_monitors import end_monitors
from scribengin.spark.stateful.fitting import OTHER_COLUMNS, WAY_OUT, trouble_with_state
from scribengin.spark.stateful.offers import BoundRange, Offset, QueryOffers
from scribengin.spark.stateful.progress import QueryProgress
from scribengin.spark.transform.output import UnionedOutputs, outputs_of
from scribengin.spark.transform.spec import StateReport

# What foreachBatch raises reaches us as the query's failure. Py4J would write it down with all stacks at every stop.
logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)

_POLL_S = 0.01
_POLLS_PER_LOOK = 20
"""After so many polls without a batch it is looked whether the query still runs."""
_DOES_NOT_FIT = (*OTHER_COLUMNS, "STREAMING_STATEFUL_OPERATOR_NOT_MATCH")
_SETTLE_S = 10.0
"""So long a query that is stopped may take to write down that its last batch is done; else that is run again."""


@dataclass(frozen=True, slots=True)
class ExecutedBatch:
    """What came of one batch. Spark's thread waits until its owner has finished it, or stops the query."""

    number: int
    outputs: Mapping[str, Sequence[pa.RecordBatch]]
    """By sink."""
    verdict: Future[None] = field(default_factory=Future)


class QueryStopped(Exception):
    """Raised in Spark's thread alone: the batch it waits with has no owner any more."""


class TransformationQuery:
    """A started query, in the hands of one thread."""

    def __init__(
        self,
        unioned: UnionedOutputs,
        collect: Callable[[DataFrame], Sequence[pa.RecordBatch]],
        offers: QueryOffers,
        checkpoint: str,
        doing: str,
        *,
        by_clock: bool = False,
    ) -> None:
        """Starts it in the directory `checkpoint`. `collect` executes a batch of the frame; `doing` is for errors;
        `by_clock`: it runs batches as time goes by, too, which nobody has offered."""
        self.by_clock = by_clock
        self._outputs = unioned.outputs
        self._collect = collect
        self._offers = offers
        self._checkpoint = checkpoint
        self._jvm = unioned.frame.sparkSession._jvm
        self._doing = doing
        self._handed: queue.SimpleQueue[ExecutedBatch | Exception] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: ExecutedBatch | None = None
        self._stopping = False
        self._finished = False
        writer = unioned.frame.writeStream.foreachBatch(self._execute).outputMode("append")
        try:
            self._query = writer.option("checkpointLocation", checkpoint).start()
            self._progress = QueryProgress(unioned.frame, self._query._jsq)
        except SPARK_ERRORS as error:
            raise failure(error, doing) from error

    def bind(self, bound: BoundRange) -> None:
        """What a batch reads that begins and ends there."""
        self._offers.bind(bound)

    def offer(self, offsets: Mapping[str, Offset]) -> None:
        """Have it run a batch up to these offsets, by source; where they are as before: one that state needs."""
        self._offers.offer(offsets)

    def next_batch(self) -> ExecutedBatch | None:
        """The next batch, executed, or None when nothing came of the last offer, nor will.

        Raises TransformationFailed, SparkUnavailable, CheckpointMismatch, OutOfRoom: then the query has ended.
        """
        for polls in itertools.count():
            if (handed := self._next_handed()) is not None:
                break
            idle = self._offers.idle()
            if idle or polls % _POLLS_PER_LOOK == 0:  # a look is a call into the JVM, which has the batch to execute
                self._refuse_ended()
            if idle:
                return None
        if isinstance(handed, Exception):
            raise handed
        return handed

    def _refuse_ended(self) -> None:
        """Raises as `next_batch` once the query has ended."""
        try:
            if not self._query.isActive:
                last = self._next_handed()  # it may have told just before it ended
                raise last if isinstance(last, Exception) else self._failure()
        except SPARK_ERRORS as error:
            raise failure(error, self._doing) from error

    def has_batch(self) -> bool:
        """Whether `next_batch` has something to return, or to raise, already."""
        return not self._handed.empty()

    def _next_handed(self) -> ExecutedBatch | Exception | None:
        try:
            return self._handed.get(timeout=_POLL_S)
        except queue.Empty:
            return None

    def finish(self, batch: ExecutedBatch) -> None:
        """The batch is committed: Spark may write down that it is done."""
        self._finished = True
        batch.verdict.set_result(None)

    def state(self) -> StateReport:
        """How much state it has, as of the last batch that is done. Raises SparkUnavailable, TransformationFailed."""
        try:
            return self._progress.report()
        except SPARK_ERRORS as error:
            raise failure(error, self._doing) from error

    def watermark(self) -> int:
        """How far the watermark is behind all batches that are finished, in milliseconds; 0: there is none yet. Waits
        until Spark has written down that they are done. Raises as `state`.

        No batch that is offered now drops anything by a later one: Spark drops by that of the batch before.
        """
        try:
            while not (self.has_batch() or self._offers.waits() or not self._query.isActive):
                pause(_POLL_S)
            return self._progress.watermark()
        except SPARK_ERRORS as error:
            raise failure(error, self._doing) from error

    def watermarks(self) -> Mapping[str, int | None]:
        """How far the watermark of each source is, as of the last batch that is done. Raises as `state`."""
        try:
            return self._progress.watermarks()
        except SPARK_ERRORS as error:
            raise failure(error, self._doing) from error

    def stop(self) -> None:
        """End it, once, and for good. A batch that is not finished was not done: whoever has the checkpoint next runs
        it again."""
        self._settle()
        with self._lock:
            self._stopping = True
            handed = self._open
        if handed is not None and not handed.verdict.done():
            handed.verdict.set_exception(QueryStopped("the task was given up while this batch waited for its commit"))
        self._offers.stop()
        with suppress(*SPARK_ERRORS):  # its JVM is gone, and with it the query
            self._query.stop()
            end_monitors(self._jvm)
        self._offers.remove()
        # The JVM keeps what it may call here, which is this, for as long as it has the query; and it has the query for
        # as long as it is known here. No collector sees both: the query and its plan would stay until the process ends.
        del self._query, self._progress

    def _settle(self) -> None:
        """Wait until Spark has written down that the last finished batch is done."""
        for _ in range(round(_SETTLE_S / _POLL_S)):
            if not self._finished or self._offers.waits() or not self._query.isActive:
                return
            pause(_POLL_S)

    def _failure(self) -> SparkUnavailable | CheckpointMismatch | OutOfRoom:
        """Why the query has ended by itself. It was no record: those are read where a batch is executed."""
        error = self._query._jsq.exception()
        causes = list(java_causes(error.get())) if error.isDefined() else []
        for cause in causes:
            if cause.condition.startswith(_DOES_NOT_FIT):
                return CheckpointMismatch(
                    f"the transformation does not fit its checkpoint any more ({cause.line}): {WAY_OUT}"
                )
        told = causes[-1].line if causes else "it said nothing"
        trouble = trouble_with_state(causes, self._doing, self._checkpoint)
        return trouble or SparkUnavailable(f"Spark failed while {self._doing}: {told}")

    # -- on Spark's thread

    def _execute(self, frame: DataFrame, number: int) -> None:
        try:
            batches = self._collect(frame)
        except SPARK_ERRORS as error:
            trouble = trouble_with_state(told_causes(error), self._doing, self._checkpoint)
            self._handed.put(trouble or failure(error, self._doing))
            raise
        batch = ExecutedBatch(number, outputs_of(batches, self._outputs))
        with self._lock:
            if self._stopping:
                raise QueryStopped("the task was given up while this batch was executed")
            self._open = batch
        self._finished = False
        self._handed.put(batch)
        batch.verdict.result()
