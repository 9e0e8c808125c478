"""A store with the cold storage of its logs beside it: whoever has a segment's name opens it, wherever it is.

What names a place in cold storage (`SegmentName.place`) is read and removed there, everything else is the store's.
Segments are written, fenced and listed in the store alone: retention/offloading.py makes the cold ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from scribengin.log.config import LogConfig
from scribengin.log.store.cold import (
    ColdLocation,
    ColdView,
    check_cold_url,
    load_cold_index,
    remove_cold,
    save_cold_index,
)
from scribengin.log.store.contract import (
    Announced,
    IndexKind,
    SegmentAppender,
    SegmentLocation,
    SegmentName,
    SegmentStore,
    SegmentView,
)


class TieredStore(SegmentStore):
    """The store `hot`, and what cold storage has of its logs."""

    def __init__(self, hot: SegmentStore) -> None:
        self.hot = hot

    def for_log(self, config: LogConfig) -> SegmentStore:
        if config.cold_url is not None:
            check_cold_url(config.cold_url)
        return TieredStore(self.hot.for_log(config))

    # -- wherever it is

    def open(self, name: SegmentName, *, from_disk: bool = False) -> SegmentView:
        return ColdView(name) if name.place else self.hot.open(name, from_disk=from_disk)

    def location(self, name: SegmentName) -> SegmentLocation:
        return ColdLocation(name) if name.place else self.hot.location(name)

    def machines(self, name: SegmentName) -> Sequence[str]:
        return () if name.place else self.hot.machines(name)

    def repair(self, name: SegmentName) -> int:
        return 0 if name.place else self.hot.repair(name)

    def load_index(self, name: SegmentName, kind: IndexKind = "positions") -> bytes:
        return load_cold_index(name, kind) if name.place else self.hot.load_index(name, kind)

    def save_index(self, name: SegmentName, index: bytes, kind: IndexKind = "positions") -> bool:
        return save_cold_index(name, index, kind) if name.place else self.hot.save_index(name, index, kind)

    def remove(self, name: SegmentName) -> int:
        return remove_cold(name) if name.place else self.hot.remove(name)

    # -- in the store alone

    def check_mounted(self) -> None:
        self.hot.check_mounted()

    def why_unwritable(self) -> str | None:
        return self.hot.why_unwritable()

    def create_log(self, directory: str) -> None:
        self.hot.create_log(directory)

    def delete_log(self, directory: str) -> None:
        self.hot.delete_log(directory)

    def create(self, name: SegmentName, *, fsync: bool) -> SegmentAppender:
        return self.hot.create(name, fsync=fsync)

    def fence(self, name: SegmentName) -> None:
        self.hot.fence(name)

    def make_durable(self, name: SegmentName) -> None:
        self.hot.make_durable(name)

    def names(self, directory: str) -> list[SegmentName]:
        return self.hot.names(directory)

    def announce(self, name: SegmentName) -> None:
        self.hot.announce(name)

    def announced(self, directory: str) -> Announced:
        return self.hot.announced(directory)

    def move(self, name: SegmentName, to: SegmentName) -> None:
        self.hot.move(name, to)
