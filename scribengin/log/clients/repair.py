"""Recovery on request: what the next writer of a log would do before it writes, done now, and told."""

from __future__ import annotations

from dataclasses import dataclass

from scribengin.base.names import log_command
from scribengin.errors import InconsistentLog
from scribengin.log.inspect.log import Remainder
from scribengin.log.metadata.segments import SegmentDescriptor
from scribengin.log.namespace import LogNamespace
from scribengin.log.write.restored import TakenBack


@dataclass(frozen=True, slots=True)
class Recovered:
    """What recovery made of a log: of the segment that was left unfinished (None: none was), whose `remainder` is what
    stood behind its tail, and of files that the registry did not name (`restored`)."""

    segment: SegmentDescriptor | None
    remainder: Remainder | None
    restored: TakenBack

    @property
    def taken_back(self) -> tuple[SegmentDescriptor, ...]:
        """The segments that are part of the log again."""
        return self.restored.segments

    @property
    def staged_committed(self) -> bool | None:
        """Whether the round that was staged had committed, and so is part of the log now; None: none was staged."""
        if self.remainder is None or self.segment is None or self.remainder.staged_entry is None:
            return None
        return self.remainder.staged_entry < self.segment.entries


def recover_log(namespace: LogNamespace, log: str, *, timeout_s: float = 10.0, steal: bool = False) -> Recovered | None:
    """Take the log, bring its unfinished segment to its end, take back the files that an older registry does not name,
    give it back. None: there was nothing to recover, or it has been removed since.

    Raises LogNotFound, OwnershipAcquireFailed (somebody writes it; `steal` would fence them), RecoveryRefused (it is
    damaged: nothing was changed but the epoch), InconsistentLog.
    """
    inspection = namespace.inspect(log)
    metadata_check = inspection.metadata_check
    unfinished = metadata_check.in_progress
    if metadata_check.findings:
        raise InconsistentLog(
            f"log '{log}': {metadata_check.findings[0]}; look at all of it with "
            f"{log_command(namespace.path, 'inspect', log)}"
        )
    gone = inspection.unnamed() or inspection.missing() or inspection.copies_alone()
    if unfinished is None and not gone:
        return None
    restored = namespace.recover(log, timeout_s=timeout_s, steal=steal)
    inspection = namespace.inspect(log)
    number = None if unfinished is None else unfinished.segment
    segment = next((found for found in inspection.metadata_check.segments if found.segment == number), None)
    remainder = None if segment is None else inspection.remainder(segment.segment)
    if remainder is None and not restored:
        return None
    return Recovered(segment, remainder, restored)
