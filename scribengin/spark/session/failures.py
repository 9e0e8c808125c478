"""What an exception from Spark means: their code or data, or Spark itself. Only the first says anything about records.

A wrong answer costs more one way than the other: infrastructure taken for data sends good records to the error route.
So only what Spark itself names as an error of data or code counts as one (`cause_of`, from the chain of Java causes).
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from scribengin.errors import SparkUnavailable, TransformationFailed
from scribengin.spark.worker_errors import WORKER_TROUBLE

SPARK_ERRORS = (PySparkException, Py4JError, OSError)
"""What a call into Spark raises: its own errors, the gateway's, and those of the connection."""

_COUNTS_TIMEOUT_MS = 2_000
_TASKS_MAX = 64
_CONDITION = re.compile(r"^\s*\[([A-Z][A-Z0-9_.]*)\]")
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+;?(?P<at> \(?line \d+,? pos \d+\)?)?;?\s*$")
"""A number of the standard's, which says nothing to users, and maybe where in a statement it is."""
_PYTHON = ("PYTHON_EXCEPTION", "STREAMING_PYTHON_RUNNER_INITIALIZATION_FAILURE")
_RAISED = "[USER_RAISED_EXCEPTION] "
_TRACEBACK = "Traceback (most recent call last):"
_WORKER_DIED = "Python worker exited unexpectedly"
_NOT_THEIRS = ("INTERNAL_ERROR", "SPARK_JOB_CANCELLED", "UNABLE_TO_ACQUIRE_MEMORY", "FAILED_READ_FILE")


@dataclass(frozen=True, slots=True)
class Cause:
    """One exception of a Java chain: its class without the package, and what it says."""

    kind: str
    message: str

    @property
    def condition(self) -> str:
        """Spark's name for the error, as in CAST_INVALID_INPUT; empty for other exceptions of Java."""
        found = _CONDITION.match(self.message)
        return found[1] if found else ""

    @property
    def line(self) -> str:
        """What it says, in one line; after its type where Spark has no name for it."""
        if self.condition in _PYTHON:
            return _exception_line(_python_text(self.message))
        first = _SQL_STATE.sub(r"\g<at>", self.message.strip().partition("\n")[0]).removeprefix(_RAISED)
        return first if self.condition else f"{self.kind}: {first}".removesuffix(": ")


def failure(error: Exception, doing: str) -> TransformationFailed | SparkUnavailable:
    """What to raise, `from error`, for one of SPARK_ERRORS that came up while `doing` something."""
    causes = told_causes(error)
    if not causes and isinstance(error, PySparkException):  # PySpark's own, from before anything reached the JVM
        return SparkUnavailable(f"Spark failed while {doing}: {one_line(error)}")
    return cause_of(causes, doing)


def records_read(context: SparkContext, group: str) -> int | None:
    """How many records the failed task of a job of `group` had read when it failed: of several the fewest, if it is
    known. Spark's own operators take them one by one, so the last was the one; Python's read ahead."""
    try:
        scala: Any = context._jsc.sc()
        scala.listenerBus().waitUntilEmpty(_COUNTS_TIMEOUT_MS)
        tracker = context.statusTracker()
        stages = [stage for job in tracker.getJobIdsForGroup(group) for stage in _stages(tracker.getJobInfo(job))]
        return min((read for stage in stages for read in _reads(scala.statusStore(), stage)), default=None)
    except (PySparkException, Py4JError, OSError):  # a guess is not worth an error
        return None


def _stages(job: Any) -> Sequence[int]:
    return [] if job is None else [int(stage) for stage in job.stageIds]


def _reads(store: Any, stage: int) -> Iterator[int]:
    tasks = store.taskList(stage, 0, _TASKS_MAX)
    for task in (tasks.apply(index) for index in range(tasks.size())):
        if str(task.status()) == "FAILED" and task.taskMetrics().isDefined():
            yield int(task.taskMetrics().get().inputMetrics().recordsRead())


def one_line(error: BaseException) -> str:
    """What an exception says, in one line, without the JVM's stack."""
    if isinstance(error, SPARK_ERRORS):
        causes = list(causes_behind(error))
        if causes:
            return next((cause for cause in causes if cause.condition), causes[-1]).line
    return traceback.format_exception_only(error)[-1].strip().partition("\n")[0]


def java_kinds(error: Exception) -> list[str]:
    """The classes of the Java exceptions behind one of SPARK_ERRORS, without their packages, outermost first."""
    return [cause.kind for cause in told_causes(error)]


def refuses_plan(error: Exception) -> bool:
    """Whether it is Spark's word on a plan, before anything ran: it has no name for some of what it refuses."""
    return any(kind.endswith("AnalysisException") for kind in java_kinds(error))


def told_causes(error: Exception) -> list[Cause]:
    """As `causes_behind`; none where the JVM, asked what happened, does not answer."""
    try:
        return list(causes_behind(error))
    except (Py4JError, OSError):
        return []


def cause_of(causes: Sequence[Cause], doing: str) -> TransformationFailed | SparkUnavailable:
    """The same for a chain of causes, outermost first. An empty one: the JVM itself is gone."""
    if not causes:
        return SparkUnavailable(f"Spark's JVM went away while {doing}: see Spark's log, and start this process again")
    if any(cause.kind.endswith("OutOfMemoryError") for cause in causes):
        return SparkUnavailable(
            f"Spark ran out of memory while {doing}: give the container more, or make rounds smaller"
        )
    for cause in causes:
        if cause.condition in _PYTHON:
            return _of_python(cause.message, doing)
    if any(_WORKER_DIED in cause.message for cause in causes):
        reason = "a Python worker of Spark died (it was killed, ran out of memory, or native code crashed)"
        return TransformationFailed(reason, reason=reason)
    for cause in causes:
        if cause.condition and not cause.condition.startswith(_NOT_THEIRS):
            reason = _malformed(causes[-1]) if cause.condition.startswith("MALFORMED_RECORD") else cause.line
            return TransformationFailed(reason, reason=reason)
    return SparkUnavailable(f"Spark failed while {doing}: {causes[-1].line}")


def causes_behind(error: BaseException) -> Iterator[Cause]:
    """The Java exceptions behind one of SPARK_ERRORS, outermost first; none where it was PySpark's own."""
    yield from java_causes(getattr(error, "java_exception", None) or getattr(error, "_origin", None))


def java_causes(java: Any) -> Iterator[Cause]:
    """An exception of Java and its causes, outermost first; none for None."""
    while java is not None:
        yield Cause(java.getClass().getSimpleName(), java.getMessage() or "")
        java = java.getCause()


def _of_python(message: str, doing: str) -> TransformationFailed | SparkUnavailable:
    text = _python_text(message)
    reason = _exception_line(text)
    if reason.startswith(WORKER_TROUBLE):
        return SparkUnavailable(f"a Python worker failed while {doing}: {reason.partition(': ')[2]}")
    return TransformationFailed(text, reason=reason)


def _python_text(message: str) -> str:
    """The traceback of a worker: Spark puts words of its own before and behind it."""
    at = message.find(_TRACEBACK)
    return _SQL_STATE.sub("", message[max(at, 0) :]).rstrip()


def _exception_line(text: str) -> str:
    """The line of a traceback that names the exception: the first after the last frame (a message may have more)."""
    lines = text.splitlines()
    last_frame = max((n for n, line in enumerate(lines) if line.startswith("  ")), default=-1)
    return lines[min(last_frame + 1, len(lines) - 1)]


def _malformed(root: Cause) -> str:
    first = root.message.strip().partition("\n")[0]
    return f"malformed JSON: {_SQL_STATE.sub('', first) or 'not an object of the schema'}"
