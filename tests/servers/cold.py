"""A log whose segments go to cold storage, all of it in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from scribengin.base.threads import BackgroundWork
from scribengin.filesystems import paths
from scribengin.log import LogConfig, LogNamespace
from scribengin.log.metadata.segments import LogOperator
from scribengin.log.metrics import exposition
from scribengin.log.retention.compression import RAW_GRACE_MS
from scribengin.log.store.cold import MARK, cold_names, look_into
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import bound_namespace, fill_log
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE

LOG = "flights/cold"
HOUR_S = 3600.0
GRACE_S = RAW_GRACE_MS / 1000


@dataclass
class ColdLog:
    """A log on a disk in memory, and its cold storage in memory."""

    registry: MemoryRegistry
    disk: MemoryDisk
    files: MemoryFiles
    clock: ManualClock
    namespace: LogNamespace
    url: str

    def config(self, **settings: object) -> LogConfig:
        """What lets segments of a log go cold after an hour."""
        return LogConfig.parse(
            {"segment_bytes_max": 4096, "cold_url": self.url, "hot_hours": 1, **settings}, source="test"
        )

    def hot(self) -> list[int]:
        """The numbers of the segments that have a file in the store."""
        return sorted({name.segment for name in self.namespace._store.names(self.directory())})

    def cold(self) -> list[int]:
        """The number of each file in cold storage."""
        return [name.segment for name in cold_names(self.place(), self.directory())]

    def place(self) -> str:
        """Where the log's files in cold storage are."""
        return f"{self.url}/{self.directory()}"

    def directory(self) -> str:
        """The log's."""
        return self.namespace.inspect(LOG).metadata_check.log.directory

    def drop_hot(self) -> None:
        """Wait until readers use cold storage alone, and the store has nothing any more."""
        self.clock.advance_s(2 * HOUR_S)
        self.namespace.purge(LOG)
        self.clock.advance_s(GRACE_S)
        self.namespace.purge(LOG)

    def findings(self) -> list[str]:
        """All that is wrong with the log, and its files that nobody names."""
        found = self.namespace.inspect(LOG)
        wrong = [*found.metadata_check.findings, *(one for report in found.segments() for one in report.findings)]
        return [*map(str, wrong), *map(str, found.out_of_place()), *map(str, found.strays())]

    def damage(self, number: int, at: int) -> None:
        """Change a byte of a cold segment."""
        inode = self.files._inode(self.path(number))
        inode.content[at] ^= 0xFF

    def path(self, number: int) -> str:
        """Of a cold segment, in its file system."""
        name = next(name for name in cold_names(self.place(), self.directory()) if name.segment == number)
        return f"/{str(name).partition('://')[2]}.log"

    @contextmanager
    def unmounted(self) -> Iterator[MemoryFiles]:
        """While the block lasts, an empty file system stands where cold storage was: this one."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(paths._LENT, "cold", MemoryFiles("what is below the mount"))
            yield paths._LENT["cold"]  # type: ignore[misc]

    def as_before_marks(self) -> None:
        """Let its cold storage be as an older version has left it: without a mark."""
        metadata = self.namespace._metadata(LOG)
        metadata.change(LogOperator(self.directory()), lambda head: (head.model_copy(update={"cold_tokens": {}}), []))
        for mark in self.marks():
            self.files.remove(f"{self.where()}/{MARK}{mark}")

    def where(self) -> str:
        """The log's place, in its file system."""
        return f"/{self.place().partition('://')[2]}"

    def marks(self) -> list[str]:
        """The tokens of the marks that stand there."""
        return list(look_into(self.place(), self.directory()).marks)

    def offloaded(self, entries: int = 9, rows: int = 1, **settings: object) -> list[bytes]:
        """The payloads of the log, which is in the store and in cold storage from now on."""
        payloads = fill_log(self.namespace, LOG, entries, rows)
        self.namespace.configure(LOG, self.config(**settings))
        assert self.namespace.offload(LOG) == entries // 3
        return payloads

    def more(self, count: int) -> list[bytes]:
        """Segments behind what is there, a record in each: their payloads."""
        payloads = [b"more %d" % n + bytes(5000) for n in range(count)]
        with self.namespace.open_writer(LOG) as writer:
            for payload in payloads:
                writer.write(payload).result(120)
        return payloads


@pytest.fixture
def cold_log(memory_registry: MemoryRegistry) -> Iterator[ColdLog]:
    """The log, empty. Its cold storage is at `cold://kept`."""
    disk, files, clock = MemoryDisk("disk of a test"), MemoryFiles("cold"), ManualClock()
    bound_namespace(memory_registry, disk.name, LOG, config=LogConfig(segment_bytes_max=4096), store=MEMORY_STORE)
    with files.opened_by("cold") as url:
        namespace = LogNamespace.open("/logs", registry=memory_registry, clock=clock)
        yield ColdLog(memory_registry, disk, files, clock, namespace, f"{url}kept")
    left = [line for line in exposition().decode().splitlines() if f'log="{LOG}"' in line]
    assert not left, "a reader or writer is open: what it counts would be counted for the next test's log, too"


@pytest.fixture
def unmaintained(monkeypatch: pytest.MonkeyPatch) -> None:
    """No writer maintains its log by itself: when that is done is the test's."""
    monkeypatch.setattr(BackgroundWork, "kick", lambda _work: None)
