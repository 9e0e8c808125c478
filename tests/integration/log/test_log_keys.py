"""Lookups by key: every record of a key is found, whatever the order of keys, and whatever became of the index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.log.metadata.segments import LogMetadata
from scribengin.log.read import key_index as log_keys
from scribengin.log.read.catalog import LogCatalog
from scribengin.log.retention.compression import RAW_GRACE_MS
from scribengin.log.store.file import FileSegmentStore
from scribengin.testing.clocks import ManualClock
from scribengin_registry.contract import Registry

Open = Callable[[str], LogCatalog]


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    LogNamespace.bind("/keys", tmp_path / "logs", registry=registry)
    return LogNamespace.open("/keys", registry=registry)


@pytest.fixture
def catalog(namespace: LogNamespace, registry: Registry, tmp_path: Path) -> Open:
    def opened(log: str) -> LogCatalog:
        metadata = LogMetadata(registry, namespace.path, log)
        store = FileSegmentStore(tmp_path / "logs")
        return LogCatalog(metadata, store, metadata.descriptor(), SYSTEM_CLOCK, follow=False)

    return opened


def keyed(keys: list[bytes | None], payload_bytes: int = 100) -> pa.RecordBatch:
    return pa.record_batch(
        {"key": pa.array(keys, pa.binary()), "payload": pa.array([bytes(payload_bytes)] * len(keys), pa.binary())}
    )


def found(catalog: LogCatalog, key: bytes, *, newest_first: bool = False) -> list[DLSN]:
    return list(log_keys.positions_of_key(catalog, key, newest_first=newest_first))


def test_all_records_of_a_key_are_found_over_segments_in_both_orders(namespace: LogNamespace, catalog: Open) -> None:
    namespace.create("a", LogConfig(segment_bytes_max=60_000, entry_bytes_max=10_000))
    written: dict[bytes, list[DLSN]] = {}
    with namespace.open_writer("a") as writer:
        for number in range(900):
            key = b"%d" % (number % 7)
            written.setdefault(key, []).append(writer.write(bytes(300), key=key).result())
        segments = namespace.segments("a")
        assert len(segments) > 3
        assert segments[-1].in_progress, "the last one is looked at, too"
        opened = catalog("a")
        for key, places in written.items():
            assert found(opened, key) == places
            assert found(opened, key, newest_first=True) == places[::-1]
        assert found(opened, b"7") == found(opened, b"") == []


def test_a_lookup_reads_only_blocks_that_may_hold_the_key(
    namespace: LogNamespace, catalog: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace.create("a", LogConfig(entry_bytes_max=100_000))
    with namespace.open_writer("a") as writer:
        for start in range(0, 20_000, 1_000):
            writer.write_bulk(keyed([b"%08d" % number for number in range(start, start + 1_000)], 400))
    first = catalog("a")
    assert len(found(first, b"00012345")) == 1
    opened, looked_into = catalog("a"), []
    body = type(opened.reader(namespace.segments("a")[0])).body
    monkeypatch.setattr(
        "scribengin.log.read.catalog.SegmentReader.body",
        lambda self, place: looked_into.append(place) or body(self, place),
    )
    assert found(opened, b"00012345") == found(first, b"00012345")
    entries = namespace.segments("a")[0].entries
    assert 0 < len(looked_into) < entries / 10, "ascending keys: one block, of many"


@pytest.mark.parametrize("harm", ["missing", "short", "flipped", "of another segment"])
def test_an_index_that_is_not_right_is_made_again(
    namespace: LogNamespace, catalog: Open, tmp_path: Path, harm: str
) -> None:
    namespace.create("a")
    with namespace.open_writer("a") as writer:
        writer.write_bulk(keyed([b"x", None, b"y" * 300, b"z"]))
    assert found(catalog("a"), b"y" * 300) == [DLSN(1, 0, 2)]
    (kept,) = (tmp_path / "logs").rglob("*.keys")
    right = kept.read_bytes()
    harmed = {
        "missing": b"",
        "short": right[:-9],
        "flipped": right[:-60] + bytes([right[-60] ^ 1]) + right[-59:],
        "of another segment": log_keys.to_bytes([], 64),
    }
    kept.write_bytes(harmed[harm])
    assert found(catalog("a"), b"y" * 300) == [DLSN(1, 0, 2)]
    assert kept.read_bytes() == right


def test_a_namespace_finds_the_newest_record_of_a_key(namespace: LogNamespace) -> None:
    namespace.create("a")
    with namespace.open_writer("a") as writer:
        writer.write_bulk(keyed([b"x", b"y", b"x", b"z"])).result()
    assert next(namespace.positions_of_key("a", b"x", newest_first=True)) == DLSN(1, 0, 2)
    assert list(namespace.positions_of_key("a", b"x")) == [DLSN(1, 0, 0), DLSN(1, 0, 2)]


def test_compressed_copies_are_looked_into_once_the_raw_file_is_gone(registry: Registry, tmp_path: Path) -> None:
    clock = ManualClock()
    config = LogConfig(segment_bytes_max=4096, copy_codec="zstd", raw_retention_hours=1)
    LogNamespace.bind("/copied", tmp_path / "copied", registry=registry)
    namespace = LogNamespace.open("/copied", registry=registry, clock=clock)
    namespace.create("a", config)
    with namespace.open_writer("a") as writer:
        places = [writer.write(bytes(900), key=b"%d" % (n % 3)).result() for n in range(30)]
    namespace.compress("a")
    assert list(namespace.positions_of_key("a", b"1")) == places[1::3]
    clock.advance_s(7200)
    namespace.purge("a")
    clock.advance_s(RAW_GRACE_MS / 1000)
    namespace.purge("a")
    left = [path for path in (tmp_path / "copied").rglob("*.log") if path.name.count(".") == 1]
    assert not left, "the raw files are gone"
    for _made_then_kept in range(2):
        assert list(namespace.positions_of_key("a", b"1")) == places[1::3]


def test_truncated_records_and_staged_ones_are_not_found(namespace: LogNamespace, catalog: Open) -> None:
    namespace.create("a")
    with namespace.open_writer("a") as writer:
        writer.write_bulk(keyed([b"k"] * 5)).result()
        namespace.truncate("a", DLSN(1, 0, 3))
        assert found(catalog("a"), b"k") == [DLSN(1, 0, 3), DLSN(1, 0, 4)]


KEYS = st.one_of(st.none(), st.binary(max_size=3), st.binary(min_size=62, max_size=70).map(lambda end: b"p" * 60 + end))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(KEYS, min_size=1, max_size=30), min_size=1, max_size=4), data=st.data())
def test_lookups_agree_with_a_plain_list(
    namespace: LogNamespace, catalog: Open, batches: list[list[bytes | None]], data: st.DataObject
) -> None:
    name = f"plain/{len(namespace.names())}"
    namespace.create(name)
    with namespace.open_writer(name) as writer:
        for batch in batches:
            writer.write_bulk(keyed(batch, 10)).result()
    wanted = data.draw(st.sampled_from([key for batch in batches for key in batch if key is not None] or [b"none"]))
    expected = [
        DLSN(1, entry, slot) for entry, batch in enumerate(batches) for slot, key in enumerate(batch) if key == wanted
    ]
    for _made_then_kept in range(2):
        assert found(catalog(name), wanted) == expected
