"""A writer that is made by hand, for what a namespace does not let a test choose."""

from __future__ import annotations

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.threads import BackgroundWork
from scribengin.log import LogNamespace, LogWriter, WriteLimiter
from scribengin.log.metadata.segments import LogMetadata
from scribengin.log.metadata.writer_lock import acquire
from scribengin.log.store.file import FileSegmentStore
from scribengin.log.write.segment_chain import SegmentChain
from scribengin_registry.contract import Registry


def handmade_writer(
    registry: Registry,
    namespace: LogNamespace,
    log: str,
    *,
    clock: Clock = SYSTEM_CLOCK,
    limiter: WriteLimiter | None = None,
    maintenance: BackgroundWork | None = None,
) -> LogWriter:
    """The writer of a log that was never written."""
    metadata = LogMetadata(registry, namespace.path, log)
    descriptor, (head, _version) = metadata.descriptor(), metadata.head()
    owner = acquire(metadata, clock, timeout_s=0, steal=False)
    store = FileSegmentStore(namespace.descriptor.location)
    chain = SegmentChain(metadata, store, owner, descriptor, head, commit_log=None, clock=clock)
    config = descriptor.config
    return LogWriter(
        metadata, owner, chain, config, stages=False, clock=clock, limiter=limiter, maintenance=maintenance
    )
