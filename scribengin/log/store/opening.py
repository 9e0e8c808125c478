"""Which stores there are: the one place that names them. Everybody else opens what a namespace's node says.

A kind is what the node says in `store`, and what stands in a URI behind `distributedlog-`.
"""

from __future__ import annotations

import posixpath
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from scribengin.base.jvm import JvmUse
from scribengin.base.model import absolute_path
from scribengin.errors import ConfigInvalid
from scribengin.log.store.contract import SegmentStore
from scribengin.log.store.file import FileSegmentStore
from scribengin.log.store.mark import mark_directory, unmark_directory
from scribengin.log.store.tiered import TieredStore

if TYPE_CHECKING:
    from scribengin.log.store.hdfs import HdfsSegmentStore

_HDFS_LOCATION = re.compile(r"hdfs://[^/\s]*/+[^/\s][^\s]*")
DEFAULT_STORE = "file"
"""What a namespace is bound to where nobody says otherwise."""


class StoreKind(ABC):
    """How a namespace gets a place in one kind of store, and how that is opened."""

    on_one_machine: ClassVar[bool] = False
    """Whether a location means another place on every machine, as a path does."""
    jvm_a_process: ClassVar[JvmUse | None] = None
    """What each process that reads or writes there has a JVM for; None: it has none."""

    @abstractmethod
    def resolved(self, location: str) -> str:
        """The location as a node names it, for whoever reads that from anywhere. Raises ConfigInvalid."""

    @abstractmethod
    def check_location(self, location: str) -> None:
        """Raises ValueError for what no node of such a namespace says."""

    @abstractmethod
    def prepare(self, location: str) -> str:
        """Make the place, and return its token: 32 hexadecimal digits, the same however often and by whomever it is
        asked for. Raises LogWriteFailed."""

    @abstractmethod
    def retire(self, location: str, token: str) -> None:
        """Let the place hold that token no more: whoever opened it with that makes nothing there from now on.
        Idempotent. What is kept there stays. Raises LogWriteFailed."""

    @abstractmethod
    def open(self, location: str, token: str | None) -> SegmentStore:
        """The store at that place, which holds that token. Does not look: see `SegmentStore.check_mounted`."""


class _FileKind(StoreKind):
    on_one_machine = True

    def resolved(self, location: str) -> str:
        if not location:  # which Path takes for the directory that this process is in
            raise ConfigInvalid("a namespace is bound to a directory, and its name is empty: name one, or `.`")
        if "://" in location:
            raise ConfigInvalid(f"'{location}' is no place for logs: name a directory, hdfs://... or bk://...")
        return str(Path(location).resolve())

    def check_location(self, location: str) -> None:
        absolute_path(location)

    def prepare(self, location: str) -> str:
        return mark_directory(Path(location))

    def retire(self, location: str, token: str) -> None:
        unmark_directory(Path(location), token)

    def open(self, location: str, token: str | None) -> SegmentStore:
        return FileSegmentStore(location, token)


class _HdfsKind(StoreKind):
    """Its clients are loaded when it is used: not everybody has them."""

    jvm_a_process = "open"

    def resolved(self, location: str) -> str:
        from scribengin.filesystems.hdfs import canonical_cluster, site_settings

        try:
            self.check_location(location)
        except ValueError as error:
            raise ConfigInvalid(str(error)) from None
        cluster, path = location.removeprefix("hdfs://").split("/", 1)
        settings = site_settings()
        url = f"hdfs://{cluster}" if cluster else settings.get("fs.defaultFS", "")
        return f"{canonical_cluster(url, settings)}/{posixpath.normpath(path).strip('/')}"

    def check_location(self, location: str) -> None:
        if _HDFS_LOCATION.fullmatch(location) is None:
            raise ValueError(f"'{location}' is no directory of HDFS: write hdfs://<namenode>:<port>/<path>")

    def prepare(self, location: str) -> str:
        return self._store(location, None).mark()

    def retire(self, location: str, token: str) -> None:
        self._store(location, token).unmark()

    def open(self, location: str, token: str | None) -> SegmentStore:
        return self._store(location, token)

    def _store(self, location: str, token: str | None) -> HdfsSegmentStore:
        try:
            from scribengin.log.store.hdfs import HdfsSegmentStore
        except ImportError:
            raise ConfigInvalid("logs on HDFS need two clients: pip install 'scribengin[hdfs,yarn]'") from None
        return HdfsSegmentStore(location, token)


class _BookKeeperKind(StoreKind):
    """Its client is loaded when it is used: not everybody has it."""

    jvm_a_process = "all"

    def resolved(self, location: str) -> str:
        from scribengin.log.store.bookkeeper.store import BookKeeperPlace

        try:
            return str(BookKeeperPlace.parse(location))
        except ValueError as error:
            raise ConfigInvalid(str(error)) from None

    def check_location(self, location: str) -> None:
        from scribengin.log.store.bookkeeper.store import BookKeeperPlace

        BookKeeperPlace.parse(location)

    def prepare(self, location: str) -> str:
        from scribengin.log.store.bookkeeper.store import BookKeeperSegmentStore

        return BookKeeperSegmentStore(location).mark()

    def retire(self, location: str, token: str) -> None:
        from scribengin.log.store.bookkeeper.store import BookKeeperSegmentStore

        BookKeeperSegmentStore(location, token).unmark()

    def open(self, location: str, token: str | None) -> SegmentStore:
        from scribengin.log.store.bookkeeper.store import BookKeeperSegmentStore

        return BookKeeperSegmentStore(location, token)


_KINDS: dict[str, StoreKind] = {DEFAULT_STORE: _FileKind(), "hdfs": _HdfsKind(), "bk": _BookKeeperKind()}


def add_store_kind(name: str, kind: StoreKind) -> None:
    """Let namespaces of this process be bound to a store of somebody else's, as to one in memory in a test."""
    _KINDS[name] = kind


def store_kind(name: str) -> StoreKind:
    """The kind of that name. Raises ValueError if there is none."""
    if name not in _KINDS:
        raise ValueError(f"there is no store '{name}' here, but {', '.join(_KINDS)}")
    return _KINDS[name]


def open_store(kind: str, location: str, token: str | None = None) -> SegmentStore:
    """The store of that kind at that place, with the cold storage of its logs; with a `token`, only while that stands
    there. Raises ValueError."""
    return TieredStore(store_kind(kind).open(location, token))
