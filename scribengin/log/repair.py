"""Recovery on request: what the next writer of a log would do before it writes, done now, and told."""

from __future__ import annotations

from dataclasses import dataclass

from scribengin.errors import InconsistentLog
from scribengin.log.inspection import Remainder
from scribengin.log.metadata import SegmentDescriptor
from scribengin.log.namespace import LogNamespace


@dataclass(frozen=True, slots=True)
class Recovered:
    """What recovery made of the segment that was left unfinished. `remainder` is what stood behind its tail."""

    segment: SegmentDescriptor
    remainder: Remainder

    @property
    def staged_committed(self) -> bool | None:
        """Whether the round that was staged had committed, and so is part of the log now; None: none was staged."""
        first = self.remainder.staged_entry
        return None if first is None else first < self.segment.entries


def recover_log(namespace: LogNamespace, log: str, *, timeout_s: float = 10.0, steal: bool = False) -> Recovered | None:
    """Take the log, bring its unfinished segment to its end, give it back. None: there was nothing to recover,
    or it has been removed since.

    Raises LogNotFound, OwnershipAcquireFailed (somebody writes it; `steal` would fence them), RecoveryRefused (it is
    damaged: nothing was changed but the epoch), InconsistentLog.
    """
    survey = namespace.inspect(log).survey
    unfinished = survey.in_progress
    if survey.findings:
        raise InconsistentLog(f"log '{log}': {survey.findings[0]}; look at all of it with `scribengin log inspect`")
    if unfinished is None:
        return None
    namespace.open_writer(log, timeout_s=timeout_s, steal=steal).close()
    inspection = namespace.inspect(log)
    segment = next((found for found in inspection.survey.segments if found.segment == unfinished.segment), None)
    remainder = inspection.remainder(unfinished.segment)
    return None if segment is None or remainder is None else Recovered(segment, remainder)
