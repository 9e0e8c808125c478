"""Namespaces say which store they are bound to, and whoever opens one gets that."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.errors import ConfigInvalid, DescriptorUnreadable, NamespaceNotBound, RangeGone
from scribengin.log import DLSN, EntryRange, LogNamespace, NamespaceDescriptor
from scribengin.log.store import opening
from scribengin.log.store.contract import SegmentStore
from scribengin.log.store.file import FileSegmentStore
from scribengin.log.store.opening import StoreKind, add_store_kind, open_store
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry

TOKEN = "0" * 32


class Shelf(StoreKind):
    """A store of somebody else's: its places are numbers, and stand below a directory."""

    def __init__(self, below: Path) -> None:
        self.below = below

    def resolved(self, location: str) -> str:
        return location.strip()

    def check_location(self, location: str) -> None:
        if not location.isdigit():
            raise ValueError(f"'{location}' is no shelf")

    def prepare(self, location: str) -> str:
        return TOKEN

    def retire(self, location: str, token: str) -> None:
        raise AssertionError("nobody moves away from here")

    def open(self, location: str, token: str | None) -> SegmentStore:
        assert token in (None, TOKEN)
        return FileSegmentStore(self.below / location)


@pytest.fixture
def registry() -> Iterator[MemoryRegistry]:
    """A session of its own."""
    with MemoryEnsemble().connect() as session:
        yield session


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store `shelf`, there for one test: where it keeps what it keeps."""
    monkeypatch.setattr(opening, "_KINDS", dict(opening._KINDS))
    add_store_kind("shelf", Shelf(tmp_path))
    return tmp_path


def planned(namespace: LogNamespace) -> EntryRange:
    """All that the log holds."""
    with namespace.open_reader("words") as reader:
        plan = reader.plan(DLSN.INITIAL, records_max=10, bytes_max=10_000)
    assert plan is not None
    (split,) = plan.splits
    return split


def test_a_namespace_is_kept_where_it_is_bound_and_read_without_knowing_where(
    registry: MemoryRegistry, shelf: Path
) -> None:
    bound = LogNamespace.bind("/logs", " 7 ", registry=registry, store="shelf")
    assert (bound.store, bound.location, bound.directory) == ("shelf", "7", None)
    with LogNamespace.open("/logs", registry=registry) as namespace:
        namespace.create("words")
        with namespace.open_writer("words") as writer:
            writer.write(b"a").result()
        split = planned(namespace)
        with pytest.raises(ConfigInvalid, match="no directory of this machine"):
            _ = namespace.local_directory
    assert list((shelf / "7").glob("*/*.log"))
    elsewhere: EntryRange = pickle.loads(pickle.dumps(split))
    assert [batch.column("payload").to_pylist() for batch in elsewhere.read()] == [[b"a"]]


def test_a_range_whose_segment_is_gone_says_where_it_was(registry: MemoryRegistry, tmp_path: Path) -> None:
    LogNamespace.bind("/logs", tmp_path, registry=registry)
    with LogNamespace.open("/logs", registry=registry) as namespace:
        namespace.create("words")
        with namespace.open_writer("words") as writer:
            writer.write(b"a").result()
        split = planned(namespace)
        namespace.delete("words")
    with pytest.raises(RangeGone, match=str(split.location)):
        list(split.read())


def test_a_namespace_is_bound_to_one_store(registry: MemoryRegistry, shelf: Path) -> None:
    LogNamespace.bind("/logs", "7", registry=registry, store="shelf")
    assert LogNamespace.bind("/logs", "7", registry=registry, store="shelf").location == "7"
    for location, store in (("8", "shelf"), (str(shelf), "file"), (str(shelf), None)):
        with pytest.raises(NamespaceNotBound, match="bound to 7 already"):
            LogNamespace.bind("/logs", location, registry=registry, store=store)
    hosts = registry.hosts.partition("/")[0]
    LogNamespace.open(f"distributedlog-shelf://{hosts}/logs", registry=registry).close()
    with pytest.raises(NamespaceNotBound, match="bound to the store 'shelf', and not to 'file'"):
        LogNamespace.open(f"distributedlog-file://{hosts}/logs", registry=registry)
    with pytest.raises(ConfigInvalid, match="say one of them"):
        LogNamespace.bind(f"distributedlog-file://{hosts}/logs", "7", registry=registry, store="shelf")


def test_a_store_that_is_not_there_is_refused_by_name(registry: MemoryRegistry, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="there is no store 'tape' here, but file"):
        LogNamespace.bind("/logs", tmp_path, registry=registry, store="tape")
    with pytest.raises(ValueError, match="there is no store 'tape'"):
        open_store("tape", "/somewhere")
    registry.create("/other", b'{"store": "tape", "location": "/tapes", "token": "1"}')
    with pytest.raises(DescriptorUnreadable, match="there is no store 'tape' here"):
        LogNamespace.open("/other", registry=registry)


@pytest.mark.parametrize("location", ["relative", "/with/../detours", "", "//twice"])
def test_a_node_that_leads_astray_is_refused(location: str) -> None:
    node = NamespaceDescriptor.model_construct(store="file", location=location, token=TOKEN)
    with pytest.raises(DescriptorUnreadable, match="somebody has changed the node"):
        NamespaceDescriptor.from_bytes(node.to_bytes(), path="/logs")
