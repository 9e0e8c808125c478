"""What is done for a log beside its writer, after each segment that was completed: copies, cold storage, purging.

Each is tried whatever became of the ones before: cold storage that does not answer keeps no disk from being freed. The
first that failed is what is told, and all are tried again the next time.
"""

from __future__ import annotations

from scribengin.base.clock import Clock
from scribengin.log.config import LogConfig
from scribengin.log.metadata.segment_list import looking_again
from scribengin.log.metadata.segments import LogMetadata, LogState
from scribengin.log.metrics import LogMetrics
from scribengin.log.retention.compression import Stopping, compress_segments
from scribengin.log.retention.offloading import failures_counted, offload_segments, segments_placed
from scribengin.log.retention.truncation import OpenCatalog, all_tried, purge_log
from scribengin.log.store.contract import SegmentStore

_SWEPT_EVERY_S = 60.0
"""How often all files of a log are looked at: there may be very many."""


class LogMaintenance:
    """Keeps one log, for the one thread that has it."""

    def __init__(
        self,
        metadata: LogMetadata,
        store: SegmentStore,
        open_catalog: OpenCatalog,
        clock: Clock,
        metrics: LogMetrics | None = None,
    ) -> None:
        self._metadata = metadata
        self._store = store
        self._open_catalog = open_catalog
        self._clock = clock
        self._metrics = metrics
        self._known: LogState | None = None
        self._swept_s: float | None = None

    def run(self, stopping: Stopping) -> None:
        """Do it once. Raises DamagedEntry, LogWriteFailed, StoreUnreachable, LogNotFound, and what the registry
        raises."""
        looking_again(lambda: self._run(stopping))

    def _run(self, stopping: Stopping) -> None:
        config = self._metadata.descriptor().config
        all_tried(
            lambda: self._compress(config, stopping),
            lambda: self._offload(config, stopping),
            self._purge,
            lambda: self._tell(config),
        )

    def _state(self) -> LogState:
        self._known = state = self._metadata.state(self._known)
        return state

    def _compress(self, config: LogConfig, stopping: Stopping) -> None:
        if config.copy_codec is not None:
            store = self._store.for_log(config)
            compress_segments(self._metadata, store, self._state(), config.copy_codec, stopping)

    def _offload(self, config: LogConfig, stopping: Stopping) -> None:
        if config.cold_url is not None:
            with failures_counted(self._metrics):
                offload_segments(self._metadata, self._store, self._state(), config, stopping, self._metrics)

    def _purge(self) -> None:
        state = self._state()
        now_s = self._clock.monotonic_s()
        sweep = self._swept_s is None or now_s - self._swept_s >= _SWEPT_EVERY_S
        before_s, self._swept_s = self._swept_s, None  # a purge that fails leaves files to the next
        purge_log(
            *(self._metadata, self._store, self._open_catalog, self._clock, state), sweep=sweep, metrics=self._metrics
        )
        self._swept_s = now_s if sweep else before_s

    def _tell(self, config: LogConfig) -> None:
        """Where the segments are by now, of a log that has, or had, cold storage: all of its descriptors are read."""
        known = self._known
        if self._metrics is None or known is None:
            return
        if config.cold_url is not None or known.head.cold_places:
            self._metrics.placed(segments_placed(self._state(), config), self._clock.now_ms)
