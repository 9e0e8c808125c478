"""What `log inspect` and `log verify` do: read whole logs, and take down all that is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from scribengin.errors import DescriptorUnreadable, InconsistentLog, LogNotFound
from scribengin.log import LogNamespace
from scribengin.log.inspect import Finding, MetadataCheck, SegmentReport
from scribengin_tools.rendering.text import console

_STEP_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogCheck:
    """What is known of one log. `metadata_check` is None if its metadata could not be read at all."""

    log: str
    metadata_check: MetadataCheck | None
    segments: tuple[SegmentReport, ...]
    findings: tuple[Finding, ...]
    strays: tuple[str, ...] = ()
    """Files that no segment names."""

    @property
    def records(self) -> int:
        """Records that could be read."""
        return sum(report.records for report in self.segments)

    @property
    def bytes(self) -> int:
        """Bytes that readers see."""
        return sum(report.end.end for report in self.segments)

    @property
    def checked_bytes(self) -> int:
        """Those, and the bytes of compressed copies beside them."""
        return sum(report.checked_bytes for report in self.segments)


class Course:
    """How far a check has come, drawn on a terminal while it works. It is told of every entry, and draws now and
    then."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._waiting = 0

    def begin(self, log: str, size: int) -> None:
        """`log`, of `size` bytes, is next."""
        self._waiting = 0
        if self._progress is not None:
            self._progress.add_task(log, total=size)
            self._progress.start()

    def advance(self, size: int) -> None:
        """So many bytes more."""
        self._waiting += size
        if self._progress is not None and self._waiting >= _STEP_BYTES:
            self._progress.advance(self._progress.task_ids[-1], self._waiting)
            self._waiting = 0

    def end(self) -> None:
        """Wipe what is drawn, so that something else can be printed. Idempotent."""
        if self._progress is not None:
            self._progress.stop()
            for task in self._progress.task_ids:
                self._progress.remove_task(task)


def course() -> Course:
    """A course that is drawn on stderr, if that is a terminal."""
    err = console(stderr=True)
    if not err.is_terminal:
        return Course(None)
    columns = (TextColumn("{task.description}"), BarColumn(20), DownloadColumn(True), TransferSpeedColumn())
    return Course(Progress(*columns, console=err, transient=True, redirect_stdout=False, redirect_stderr=False))


def checks(namespace: LogNamespace, logs: Sequence[str], prefix: str | None, *, bodies: bool) -> Iterator[LogCheck]:
    """Check the named logs, then those that begin with `prefix`, one after the other.

    Raises LogNotFound for one that was named; the others may go while they are looked for.
    """
    drawn = course()
    for log in dict.fromkeys(logs):
        yield _check(namespace, log, bodies, drawn)
    for log in namespace.names(prefix) if prefix is not None else ():
        if log not in logs:
            try:
                yield _check(namespace, log, bodies, drawn)
            except LogNotFound:
                continue  # deleted since the names were read


def _check(namespace: LogNamespace, log: str, bodies: bool, course: Course) -> LogCheck:
    try:
        inspection = namespace.inspect(log)
    except (DescriptorUnreadable, InconsistentLog) as error:
        return LogCheck(log, None, (), (Finding(str(error)),))
    course.begin(log, inspection.bytes)
    try:
        reports = tuple(inspection.segments(bodies=bodies, progress=course.advance))
    finally:
        course.end()
    found = [*inspection.metadata_check.findings]
    for report in reports:
        found.extend(report.findings)
    found.extend(inspection.out_of_place())
    return LogCheck(log, inspection.metadata_check, reports, tuple(found), tuple(map(str, inspection.strays())))
