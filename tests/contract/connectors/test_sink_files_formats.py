"""The formats and partitions of a file sink, read back by programs that know nothing of us."""

from __future__ import annotations

import bz2
import errno
import gzip
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from scribengin.connectors import Environment, open_sink
from scribengin.connectors.contract import Attempt, Sink, SinkStreamWriter
from scribengin.connectors.files import FileSinkConfig
from scribengin.connectors.files.formats import parquet as parquet_writing
from scribengin.connectors.files.sink import merge as merge_module
from scribengin.connectors.files.sink import sink as sink_module
from scribengin.dataflow.registry.paths import SINKS, STREAM_NODES
from scribengin.errors import CommitTooLarge, ConfigInvalid, DataflowError, RecordTooLarge
from scribengin.filesystems.fsspec import FsspecDurableFileSystem
from scribengin.filesystems.local import LocalFileSystem
from scribengin.testing import check_sink
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry

RECORDS = [f"record {number} " + "-" * (number % 7) for number in range(300)]
CODECS = ["none", "gzip", "bz2", "zstd", "lz4"]
SUFFIXES = dict(zip(CODECS, ["", ".gz", ".bz2", ".zst", ".lz4"], strict=True))


class Output:
    """A sink in a directory, an owner of its first stream, and what it has written."""

    def __init__(self, registry: Registry, path: Path, **settings: Any) -> None:
        config = FileSinkConfig.parse({"kind": "hdfs", "path": str(path), **settings}, source="a test")
        self.registry = registry
        self.path = path
        self.sink: Sink = open_sink(
            "out", config, Environment(registry=registry, dataflow="formats", nodes=STREAM_NODES)
        )
        self.stream = self.sink.streams(1)[0]
        self.sink.create([self.stream])
        self.writer: SinkStreamWriter = self.sink.open_writer(self.stream, Attempt("owner", self._epoch(), "/log"))
        self.writer.recover(None)

    def _epoch(self) -> int:
        """Grows with every owner of the directory."""
        marker = self.path.parent / f"{self.path.name}-epochs"
        marker.write_text(marker.read_text() + "." if marker.exists() else ".")
        return len(marker.read_text())

    def round(self, *batches: pa.RecordBatch) -> None:
        for batch in batches:
            self.writer.write(batch)
        prepared = self.writer.prepare_commit()
        assert prepared is not None
        self.writer.complete_commit(prepared)

    def merge(self) -> None:
        self.sink.maintain(self.registry, idle=True)

    def seen(self) -> list[dict[str, Any]]:
        """What our own readers see."""
        return [row for batch in self.sink.committed(self.stream) for row in batch.to_pylist()]

    def payloads(self) -> list[str]:
        return [row["payload"].decode() for row in self.seen()]

    def committed_segments(self) -> list[Path]:
        return sorted((self.path / "_scribengin" / "committed" / "0").iterdir())

    def merging(self) -> list[Path]:
        return list((self.path / "_scribengin" / "merging" / "0").iterdir())

    def finals(self) -> dict[str, Path]:
        found = {str(path.relative_to(self.path)): path for path in self.path.rglob("part-*")}
        return {name: found[name] for name in sorted(found)}


def payloads(records: Sequence[str], **columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"payload": pa.array(records, pa.string()), **columns})


def in_three_rounds(output: Output) -> None:
    """Some of them are read before they are merged, and some after."""
    output.round(payloads(RECORDS[:100]))
    output.round(payloads(RECORDS[100:150]), payloads(RECORDS[150:200]))
    assert output.payloads() == RECORDS[:200]
    output.merge()
    output.round(payloads(RECORDS[200:]))
    assert output.payloads() == RECORDS
    output.merge()
    assert output.payloads() == RECORDS


def opened(path: Path, codec: str) -> bytes:
    """A file as tools other than ours read it."""
    if codec == "gzip":
        return gzip.decompress(path.read_bytes())
    if codec == "bz2":
        return bz2.decompress(path.read_bytes())
    if codec == "none":
        return path.read_bytes()
    with pa.input_stream(path, compression=codec) as stream:
        return bytes(stream.read())


@pytest.mark.parametrize("codec", CODECS)
def test_lines_behind_a_codec_are_one_file_after_a_merge(registry: Registry, tmp_path: Path, codec: str) -> None:
    output = Output(registry, tmp_path / "out", codec=codec, format="json")
    in_three_rounds(output)
    assert list(output.finals()) == [f"part-00000-0000000{n}.jsonl{SUFFIXES[codec]}" for n in (0, 1)]
    assert b"".join(opened(path, codec) for path in output.finals().values()).decode().split("\n") == [*RECORDS, ""]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_frames_carry_any_bytes(registry: Registry, tmp_path: Path, codec: str) -> None:
    output = Output(registry, tmp_path / "out", file_format="binary", codec=codec)
    in_three_rounds(output)
    records = [b"a line\nand another", b"", b"\x00" * 70_000, b"\xff"]
    output.round(pa.record_batch({"payload": pa.array(records, pa.binary())}))
    assert [row["payload"] for row in output.seen()] == [record.encode() for record in RECORDS] + records
    output.merge()
    (*_, last) = output.finals().values()
    assert last.name == f"part-00000-00000002.bin{SUFFIXES[codec]}"
    assert opened(last, codec) == b"".join(struct.pack(">I", len(record)) + record for record in records)


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4"])
def test_parquet_files_have_the_outputs_columns_and_row_groups_of_several_segments(
    registry: Registry, tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_writing, "ROW_GROUP_BYTES", 2000)
    columns = {
        "id": pa.array(range(300)),
        "name": pa.array(RECORDS),
        "at": pa.array([datetime(2013, 1, 1, tzinfo=UTC)] * 300, pa.timestamp("us", "UTC")),
        "tags": pa.array([["a", None], []] * 150, pa.list_(pa.string())),
    }
    whole = pa.record_batch(columns)
    output = Output(registry, tmp_path / "out", file_format="parquet", codec=codec)
    for start in range(0, 300, 10):
        output.round(whole.slice(start, 10))
    assert output.seen() == whole.to_pylist()
    output.merge()
    assert output.seen() == whole.to_pylist()
    (path,) = output.finals().values()
    assert path.name == "part-00000-00000000.parquet"
    file = pq.ParquetFile(path)
    assert file.read() == pa.table(whole)
    assert 1 < file.num_row_groups < 30
    assert file.metadata.row_group(0).column(0).compression == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())


def test_a_column_more_is_another_parquet_file(registry: Registry, tmp_path: Path) -> None:
    output = Output(registry, tmp_path / "out", file_format="parquet")
    first, second = pa.record_batch({"id": [1, 2]}), pa.record_batch({"id": [3], "name": ["x"]})
    output.round(first, second, first)
    output.round(first)
    output.merge()
    found = [pq.read_table(path).to_pylist() for path in output.finals().values()]
    assert found == [first.to_pylist(), second.to_pylist(), first.to_pylist() * 2]
    with pytest.raises(ConfigInvalid, match="no columns beside those of its partitions"):
        output.writer.write(pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([]))))


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([]),
        pa.list_(pa.struct([("x", pa.struct([]))])),
        pa.map_(pa.string(), pa.struct([])),
        pa.month_day_nano_interval(),
        pa.dense_union([pa.field("x", pa.int32())]),
    ],
    ids=str,
)
def test_a_column_that_parquet_does_not_hold_is_refused_before_anything_is_staged(
    registry: Registry, tmp_path: Path, kind: pa.DataType
) -> None:
    output = Output(registry, tmp_path / "out", file_format="parquet")
    good = pa.record_batch({"id": [1]})
    output.writer.write(good)
    bad = pa.RecordBatch.from_arrays([pa.array([1]), pa.nulls(1, kind)], ["id", "odd"])
    said = re.escape(f"column 'odd' is {kind}, which Parquet does not hold: cast it, or leave it out")
    for take in (output.writer.check, output.writer.write):
        with pytest.raises(ConfigInvalid, match=said):
            take(bad)
    output.round(good)
    assert [row["id"] for row in output.seen()] == [1, 1]


def test_another_format_in_the_same_directory_begins_a_file_of_its_own(registry: Registry, tmp_path: Path) -> None:
    Output(registry, tmp_path / "out").round(payloads(["a"]))
    Output(registry, tmp_path / "out", codec="gzip").round(payloads(["b"]))
    output = Output(registry, tmp_path / "out", file_format="parquet")
    output.round(pa.record_batch({"payload": pa.array(["c"], pa.binary())}))
    assert output.payloads() == ["a", "b", "c"]
    output.merge()
    names = ["part-00000-00000000.txt", "part-00000-00000001.txt.gz", "part-00000-00000002.parquet"]
    assert (list(output.finals()), output.payloads()) == (names, ["a", "b", "c"])


def test_columns_are_partitions_and_each_is_merged_for_itself(registry: Registry, tmp_path: Path) -> None:
    output = Output(registry, tmp_path / "out", partition={"columns": ["carrier"]}, format="json")
    assert output.sink.side_columns.field("carrier").type == pa.string()
    output.round(payloads(["1", "2", "3"], carrier=["AA", "UA", "AA"]))
    output.round(payloads(["4", "5"], carrier=["U/A", None]))
    assert sorted(output.payloads()) == ["1", "2", "3", "4", "5"]
    output.merge()
    output.round(payloads(["6"], carrier=["AA"]))
    output.merge()
    assert {name: path.read_text() for name, path in output.finals().items()} == {
        "carrier=AA/part-00000-00000000.jsonl": "1\n3\n",
        "carrier=AA/part-00000-00000004.jsonl": "6\n",
        "carrier=UA/part-00000-00000001.jsonl": "2\n",
        "carrier=U%2FA/part-00000-00000002.jsonl": "4\n",
        "carrier=__HIVE_DEFAULT_PARTITION__/part-00000-00000003.jsonl": "5\n",
    }
    assert sorted(output.payloads()) == ["1", "2", "3", "4", "5", "6"]


def test_hours_of_an_event_time_are_partitions_that_others_discover(registry: Registry, tmp_path: Path) -> None:
    pattern = {"time": "at", "pattern": "dt=%Y-%m-%d/hour=%H"}
    output = Output(registry, tmp_path / "out", file_format="parquet", partition=pattern)
    times = [datetime(2013, 1, 1 + number // 4, 6 * (number % 4), 59, tzinfo=UTC) for number in range(8)]
    for start in range(2):
        at = pa.array(times[start::2], pa.timestamp("us", "UTC"))
        output.round(pa.record_batch({"id": pa.array(range(start, 8, 2)), "at": at}))
    output.merge()
    assert len(output.finals()) == 8
    hive = ds.partitioning(flavor="hive", schema=pa.schema({"dt": pa.string(), "hour": pa.string()}))
    found = ds.dataset(tmp_path / "out", partitioning=hive, format="parquet").to_table().sort_by("id").to_pylist()
    assert found == [
        {"id": n, "at": at, "dt": f"2013-01-0{1 + n // 4}", "hour": f"{6 * (n % 4):02d}"} for n, at in enumerate(times)
    ]


def test_a_sink_below_another_ones_directory_is_not_seen_by_that(registry: Registry, tmp_path: Path) -> None:
    outer = Output(registry, tmp_path / "out", partition={"columns": ["a"]})
    inner = Output(registry, tmp_path / "out" / "b=1")
    plain = Output(registry, tmp_path / "out" / "plain")
    outer.round(payloads(["outer"], a=["1"]))
    inner.round(payloads(["inner"]))
    plain.round(payloads(["plain"]))
    for output in (outer, inner, plain):
        output.merge()
    assert [output.payloads() for output in (outer, inner, plain)] == [["outer"], ["inner"], ["plain"]]


def test_a_round_for_too_many_partitions_is_refused_before_anything_of_the_batch_is_staged(
    registry: Registry, tmp_path: Path
) -> None:
    output = Output(registry, tmp_path / "out", partition={"columns": ["a"], "round_max": 3})
    output.writer.write(payloads(["1", "2"], a=["x", "y"]))
    with pytest.raises(CommitTooLarge, match="one round writes to 4 partitions, and 3 are allowed"):
        output.writer.write(payloads(["3", "4"], a=["z", "0"]))
    with pytest.raises(RecordTooLarge, match="is too long for a partition's name; shorten it"):
        output.writer.write(payloads(["5"], a=["n" * 250]))
    output.round(payloads(["6"], a=["z"]))
    assert sorted(output.payloads()) == ["1", "2", "6"]


def everywhere(data: bytes) -> bytes:
    """Not a file of the kind at all."""
    return b"?" * len(data)


def in_its_middle(data: bytes) -> bytes:
    """Damage within a row group: the footer is as it was."""
    middle = len(data) // 2
    return data[:middle] + bytes(byte ^ 0xFF for byte in data[middle : middle + 400]) + data[middle + 400 :]


def in_its_footer(data: bytes) -> bytes:
    """Damage of what says where everything is."""
    return data[:-40] + b"\xff" * 32 + data[-8:]


def in_a_name(data: bytes) -> bytes:
    """A name of a column is no text any more, wherever it stands."""
    (kept,) = re.findall(rb"[A-Za-z0-9+/=]{100,}", data)  # Arrow's own copy of the schema
    damaged = b64encode(b64decode(kept).replace(b"inner", b"i\xffner"))
    return data.replace(kept, damaged).replace(b"inner", b"i\xffner")


def cut_short(data: bytes) -> bytes:
    """What a disk that lost its end gives, at the same size, so that its size does not tell."""
    return data[: len(data) // 2] + bytes(len(data) - len(data) // 2)


@pytest.mark.parametrize("ahead_max", [None, 0])
def test_a_damaged_segment_holds_up_its_own_partition_and_no_other_one(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_max: int | None
) -> None:
    """But where the merge node would have to name too many that are ahead of it."""
    if ahead_max is not None:
        monkeypatch.setattr(merge_module, "AHEAD_MAX", ahead_max)
    output = Output(registry, tmp_path / "out", file_format="parquet", partition={"columns": ["key"]})
    for keys in ("ab", "bc"):
        output.round(pa.record_batch({"key": list(keys), "payload": list(keys)}))
    segment, *_ = output.committed_segments()
    assert segment.name.endswith("@key=a")
    whole = segment.read_bytes()
    segment.write_bytes(everywhere(whole))
    for _ in range(2):
        with pytest.raises(DataflowError, match=rf"^{segment}: damaged Parquet"):
            output.merge()
        merged = [name.partition("/")[0] for name in output.finals()]
        assert merged == (["key=b", "key=c"] if ahead_max is None else [])
    segment.write_bytes(whole)
    output.merge()
    assert [name.partition("/")[0] for name in output.finals()] == ["key=a", "key=b", "key=c"]
    assert sorted(row["payload"] for row in output.seen()) == ["a", "b", "b", "c"]


@pytest.mark.parametrize("damage", [everywhere, in_its_middle, in_its_footer, in_a_name])
def test_a_damaged_segment_is_never_merged_and_leaves_nothing_behind(
    registry: Registry, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    output = Output(registry, tmp_path / "out", file_format="parquet")
    inner = pa.array([{"inner": f"{number}"} for number in range(20_000)])
    rounds = [pa.record_batch({"payload": inner}), pa.record_batch({"payload": inner.slice(7)})]
    output.round(rounds[0])
    output.round(rounds[1])
    *_, segment = output.committed_segments()
    whole = segment.read_bytes()
    segment.write_bytes(damage(whole))
    for _ in range(2):
        with pytest.raises(DataflowError, match=rf"^{segment}: damaged Parquet.*; restore the file$"):
            output.merge()
        with pytest.raises(DataflowError, match=rf"^{segment}: damaged Parquet.*; restore the file$"):
            output.seen()
    assert output.merging() == []
    segment.write_bytes(whole)
    output.merge()
    assert [pq.read_table(path) for path in output.finals().values()] == [pa.Table.from_batches(rounds)]


@pytest.mark.parametrize(
    ("stop", "occurrence"),
    [
        ("files.append", 1),
        ("files.append", 2),
        ("files.sync", 1),
        ("files.close", 1),
        ("files.sync_directory", 1),
        ("files.sync_directory", 2),
    ],
)
def test_a_merge_that_fails_in_whatever_way_leaves_nothing_behind(
    registry: Registry, tmp_path: Path, stop: str, occurrence: int
) -> None:
    output = Output(registry, tmp_path / "out")
    in_three_rounds(output)
    output.round(payloads(["one more"]))
    output.round(payloads(["and another"]))

    def no_memory(_stop: str) -> None:
        raise MemoryError

    with at_failpoint(f"{stop}:before", no_memory, occurrence=occurrence), pytest.raises(MemoryError):
        output.merge()
    assert output.merging() == []
    output.merge()
    assert output.payloads() == [*RECORDS, "one more", "and another"]


@pytest.mark.parametrize("file_format", ["text", "binary"])
@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("damage", [everywhere, cut_short])
def test_whoever_reads_a_damaged_file_is_told_which_it_is(
    registry: Registry, tmp_path: Path, codec: str, file_format: str, damage: Callable[[bytes], bytes]
) -> None:
    output = Output(registry, tmp_path / "out", codec=codec, file_format=file_format)
    output.round(payloads([f"{number * 7919}" for number in range(5_000)]))
    for look in (output.committed_segments, lambda: list(output.finals().values())):
        (file,) = look()
        whole = file.read_bytes()
        file.write_bytes(damage(whole))
        with pytest.raises(DataflowError, match=rf"^{file}: damaged {codec}.*; restore the file$"):
            output.seen()
        file.write_bytes(whole)
        output.merge()
        assert len(output.seen()) == 5_000


@pytest.mark.parametrize("settings", [{}, {"codec": "gzip"}, {"codec": "bz2"}, {"file_format": "parquet"}])
def test_a_final_file_that_its_system_drops_under_a_reader_is_told_as_taken_away(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """As HDFS does."""
    output = Output(registry, tmp_path / "out", **settings)
    output.round(payloads(RECORDS))
    output.merge()
    (final,) = output.finals().values()

    def dropped(_files: LocalFileSystem, paths: Sequence[str]) -> list[Iterator[bytes]]:
        def blocks(path: str) -> Iterator[bytes]:
            yield Path(path).read_bytes()[:100]
            raise FileNotFoundError(errno.ENOENT, "was removed while it was read", path)

        return [blocks(path) for path in paths]

    monkeypatch.setattr(LocalFileSystem, "snapshots", dropped)
    with pytest.raises(DataflowError, match=rf"^{final} was taken away while the stream was read; read it again$"):
        output.seen()


def test_frames_that_are_cut_off_are_told_with_their_file(registry: Registry, tmp_path: Path) -> None:
    output = Output(registry, tmp_path / "out", file_format="binary")
    output.round(payloads(["whole", "cut"]))
    (segment,) = output.committed_segments()
    segment.write_bytes(segment.read_bytes()[:-1])
    with pytest.raises(DataflowError, match=rf"^{segment} ends in the middle of a frame: 6 bytes are left"):
        output.seen()
    segment.write_bytes(b"\xff" * 5)
    with pytest.raises(DataflowError, match=rf"^{segment}: the frame at byte 0 says that it is 4,294,967,295 bytes"):
        output.seen()


def test_many_slow_partitions_beside_a_busy_one_leave_a_small_manifest(registry: Registry, tmp_path: Path) -> None:
    output = Output(registry, tmp_path / "out", partition={"columns": ["a"]}, merge_bytes=20, merge_age_s=3600)
    for number in range(40):
        output.round(payloads(["x" * 12, f"{number}"], a=["busy", f"slow-{number % 5}"]))
        output.sink.maintain(registry, idle=False)
    node = next(registry.get(path) for path in manifests(registry))
    assert len(node.data) < 1500
    assert len([name for name in output.finals() if name.startswith("a=busy/")]) == 20
    assert sorted(output.payloads()) == sorted(["x" * 12] * 40 + [f"{number}" for number in range(40)])


def manifests(registry: Registry) -> list[str]:
    """The `merge` nodes of all streams."""
    resources = [f"{SINKS}/{resource}" for resource in registry.children(SINKS)]
    return [f"{resource}/{stream}/merge" for resource in resources for stream in registry.children(resource)]


@pytest.mark.parametrize(
    "settings",
    [
        {"file_format": "parquet", "merge_bytes": 1000, "merge_age_s": 0},
        {"file_format": "binary", "codec": "zstd", "merge_bytes": 100, "merge_age_s": 0},
        {"codec": "gzip"},
    ],
    ids=["parquet", "frames", "gzip"],
)
def test_every_format_keeps_what_a_sink_promises(registry: Registry, tmp_path: Path, settings: dict[str, Any]) -> None:
    config = FileSinkConfig.parse({"kind": "hdfs", "path": str(tmp_path / "out"), **settings}, source="a test")
    environment = Environment(registry=registry, dataflow="formats", nodes=STREAM_NODES)
    check_sink(lambda: open_sink("out", config, environment), registry, of_columns=config.format == "columns")


@pytest.mark.parametrize(
    ("protocol", "name"),
    [("memory", "out"), ("memory", "out::zip"), ("memory", "out[1]?*"), ("file", "out"), ("file", "out[1]?*")],
)
def test_what_fsspec_opens_keeps_what_a_sink_promises(
    registry: Registry, tmp_path: Path, protocol: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if protocol == "file":  # which a path or URL opens with plain system calls
        files = FsspecDurableFileSystem(fsspec.filesystem("file"))
        monkeypatch.setattr(sink_module, "durable_file_system", lambda path: (files, path))
    url = str(tmp_path / name) if protocol == "file" else f"memory://{tmp_path.name}/{name}"
    config = FileSinkConfig(kind="hdfs", path=url, merge_bytes=100, merge_age_s=0)
    environment = Environment(registry=registry, dataflow="formats", nodes=STREAM_NODES)
    check_sink(lambda: open_sink("out", config, environment), registry)
    finals = fsspec.filesystem(protocol).glob(f"{url.rpartition('/')[0]}/*/part-*")
    assert {path.split("/")[-2] for path in finals} == {name}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"format": "columns"}, "format: columns goes with file_format: parquet, and only with it"),
        ({"format": "json", "file_format": "parquet"}, "format: columns goes with file_format: parquet"),
        ({"codec": "bz2", "file_format": "parquet"}, "codec: bz2 cannot be had with file_format: parquet"),
        ({"codec": "snappy"}, "codec: snappy cannot be had with file_format: text"),
        ({"codec": "rar"}, "codec: 'rar' is none of none, gzip"),
        ({"partition": {"colums": ["a"]}}, "unknown key 'partition.colums'"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        FileSinkConfig.parse({"kind": "hdfs", "path": "out", **settings}, source="a test")
