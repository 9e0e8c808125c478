"""Files of every format as a source: what is read of them, when, and how damage is told."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.model import Position
from scribengin.connectors.contract import RECORD_SCHEMA, PlannedRange, RoundLimits, SourceStreamReader
from scribengin.connectors.files import FileSource, FileSourceConfig
from scribengin.connectors.files.formats import compression as compressed
from scribengin.connectors.files.formats import lines as line_module
from scribengin.connectors.files.formats import reading
from scribengin.connectors.files.formats.kinds import writing_of
from scribengin.connectors.files.formats.reading import FileToRead
from scribengin.connectors.files.formats.writing import WrittenFile
from scribengin.connectors.files.source import stream as module
from scribengin.connectors.odd_records import LongSplit
from scribengin.dataflow.round.bad_records import Piece
from scribengin.errors import ConfigInvalid, DataflowError, RecordTooLarge, SourceMissing, TransformationFailed
from scribengin.filesystems.local import LocalFileSystem

ALL = RoundLimits(10**6, 10**9)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": lambda data: bytes(_framed(data, "zstd")),
    "lz4": lambda data: bytes(_framed(data, "lz4")),
}


def _framed(data: bytes, codec: str) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue()


def frames(payloads: list[bytes]) -> bytes:
    return b"".join(struct.pack(">I", len(payload)) + payload for payload in payloads)


def lines(payloads: list[bytes]) -> bytes:
    return b"".join(payload + b"\n" for payload in payloads)


def open_reader(path: Path, **settings: Any) -> SourceStreamReader:
    config = {"kind": "hdfs", "path": str(path), "settle_s": 0, **settings}
    source = FileSource("in", FileSourceConfig.parse(config, source="a test"), SYSTEM_CLOCK)
    return source.open_reader(source.streams()[0])


def rows(plan: PlannedRange | None, column: str = "payload") -> list[Any]:
    assert plan is not None, "there is nothing to read"
    found = [value for split in plan.splits for batch in split.read() for value in batch[column].to_pylist()]
    assert len(found) == plan.records == sum(split.records for split in plan.splits)
    return found


def read_all(reader: SourceStreamReader, limits: RoundLimits, column: str = "payload") -> list[Any]:
    """All there is, in rounds, every position having been JSON in between."""
    found: list[Any] = []
    position: Position = reader.initial_position()
    while (plan := reader.plan(json.loads(json.dumps(position)), limits)) is not None:
        assert plan.records <= limits.records_max
        found += rows(plan, column)
        position = plan.end
    assert reader.lag(position) == 0
    return found


# -- frames


def test_frames_are_read_in_rounds_and_as_they_grow(tmp_path: Path) -> None:
    payloads = [b"", b"one", b"two\nlines", b"\x00" * 300, *(b"%d" % n for n in range(50))]
    data = frames(payloads)
    path = tmp_path / "f.bin"
    path.write_bytes(data[:17])  # 4 + 7 + half of the next
    reader = open_reader(tmp_path, file_format="binary", settle_s=60)
    first = reader.plan(reader.initial_position(), ALL)
    assert rows(first) == [b"", b"one"]
    assert first is not None
    assert first.end["open"]["f.bin"][0] == 11
    path.write_bytes(data)
    assert rows(reader.plan(first.end, ALL)) == payloads[2:]
    for limits in (RoundLimits(7, 10**9), RoundLimits(10**6, 50), RoundLimits(1, 1)):
        assert read_all(reader, limits) == payloads


def test_a_frame_larger_than_a_block_and_many_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SPLIT_BYTES", 64 * 1024)
    payloads = [b"a" * 3_000_000, *(b"%06d" % n for n in range(200_000)), b"z" * 1_500_000]
    (tmp_path / "f.bin").write_bytes(frames(payloads))
    reader = open_reader(tmp_path, file_format="binary")
    plan = reader.plan(reader.initial_position(), ALL)
    assert plan is not None
    assert len(plan.splits) > 3
    assert rows(plan) == payloads
    assert reader.lag(reader.initial_position()) == len(payloads)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"\xff\xff\xff\xff....", r"f\.bin: the frame at byte 7 says that it is 4,294,967,295 bytes long"),
        (b"\x00\x00\x00\x09half", r"f\.bin: the frame at byte 7 is cut off: it has 8 bytes of 13"),
        (b"\x00\x00", r"f\.bin: the frame at byte 7 is cut off: it has 2 bytes of at least 4"),
    ],
)
def test_damaged_frames_are_named_with_their_place(tmp_path: Path, damage: bytes, message: str) -> None:
    (tmp_path / "f.bin").write_bytes(frames([b"one"]) + damage)
    reader = open_reader(tmp_path, file_format="binary")
    with pytest.raises(DataflowError, match=message):
        reader.plan(reader.initial_position(), ALL)


# -- compressed files


@pytest.mark.parametrize("suffix", list(COMPRESS))
@pytest.mark.parametrize("file_format", ["text", "binary"])
def test_compressed_files_are_read_in_rounds(tmp_path: Path, suffix: str, file_format: str) -> None:
    payloads = [b"%d-%s" % (n, random.Random(n).randbytes(8).hex().encode()) for n in range(2_000)]
    whole = (frames if file_format == "binary" else lines)(payloads)
    compress = COMPRESS[suffix]
    (tmp_path / f"a.{suffix}").write_bytes(compress(whole[:10_000]) + compress(whole[10_000:]))  # two members
    reader = open_reader(tmp_path, file_format=file_format)
    assert reader.lag(reader.initial_position()) == len(payloads)
    for limits in (ALL, RoundLimits(300, 10**9), RoundLimits(10**6, 5_000)):
        assert read_all(reader, limits) == payloads


@pytest.mark.parametrize("file_format", ["text", "binary"])
@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_a_record_that_is_too_long_is_named_and_not_held(tmp_path: Path, suffix: str, file_format: str) -> None:
    """200 MiB of zeros are 200 kB of gzip; and what just fits is read."""
    make = frames if file_format == "binary" else lines
    every = bytes(byte for byte in range(256) if byte not in b"\r\n")
    compress = COMPRESS.get(suffix, bytes)
    (tmp_path / f"a.{suffix}").write_bytes(compress(make([every, b"", b"z" * 300])))
    assert read_all(open_reader(tmp_path, file_format=file_format, record_bytes_max=300), ALL) == [
        every,
        b"",
        b"z" * 300,
    ]
    long = [b"\0" * 8_000_000, every * 3_000, every * 5]
    payloads = [long[0], b"1", b"", long[1], long[2], b"z" * 300, long[0], b"2", long[2]]
    (tmp_path / f"a.{suffix}").write_bytes(compress(make(payloads)))
    for limits in (ALL, RoundLimits(2, 10**9), RoundLimits(10**6, 50)):
        reader = open_reader(tmp_path, file_format=file_format, record_bytes_max=300)
        assert reader.lag(reader.initial_position()) > 0
        found = pieces(reader, limits)
        assert [one for piece in found for one in told(piece)] == [
            (len(p), hashlib.sha256(p).hexdigest()) if p in long else p for p in payloads
        ]
        last = found[-1]
        called = "frame" if file_format == "binary" else "line"
        assert last.places([last.rows.num_rows - 1]) == [f"{tmp_path}/a.{suffix}, {called} {len(payloads)}"]
    position: Position = reader.initial_position()
    for count in range(1, len(payloads)):  # a new process begins behind any of them
        plan = open_reader(tmp_path, file_format=file_format, record_bytes_max=300).plan(position, RoundLimits(1, 1))
        assert plan is not None
        assert plan.records == 1, count
        position = plan.end


def pieces(reader: SourceStreamReader, limits: RoundLimits) -> list[Piece]:
    """All rounds, read as the search for bad records does."""
    found, position = [], reader.initial_position()
    while (plan := reader.plan(json.loads(json.dumps(position)), limits)) is not None:
        long = [split for split in pickle.loads(pickle.dumps(plan.splits)) if isinstance(split, LongSplit)]
        for split in long:
            with pytest.raises(TransformationFailed, match="is longer than 300 bytes, the source's record_bytes_max"):
                next(split.read())
        found.append(Piece.read("in", "0", plan, RECORD_SCHEMA))
        assert len(found[-1].cut) == len(long)
        position = plan.end
    assert reader.lag(position) == 0
    return found


def told(piece: Piece) -> list[Any]:
    """The payloads, but of records that are too long their length and checksum."""
    found = piece.rows.column("payload").to_pylist()
    for row, record in piece.cut.items():
        assert record.beginning == found[row]
        assert 300 < len(record.beginning) <= 64 * 1024
        assert f"a record of {record.size_bytes:,} bytes, and the source takes 300" in piece.unfit[row]
        found[row] = (record.size_bytes, record.sha256)
    return found


@pytest.mark.parametrize("file_format", ["text", "binary"])
def test_a_record_that_is_too_long_and_still_being_written_is_waited_for(tmp_path: Path, file_format: str) -> None:
    make = frames if file_format == "binary" else lines
    whole = make([b"1", b"x" * 5_000])
    path = tmp_path / "a"
    path.write_bytes(whole[:3_000])
    reader = open_reader(tmp_path, file_format=file_format, record_bytes_max=300, settle_s=60)
    first = reader.plan(reader.initial_position(), ALL)
    assert rows(first) == [b"1"]
    assert first is not None
    assert reader.plan(first.end, ALL) is None
    path.write_bytes(whole)
    second = reader.plan(first.end, ALL)
    assert second is not None
    assert told(Piece.read("in", "0", second, RECORD_SCHEMA)) == [(5_000, hashlib.sha256(b"x" * 5_000).hexdigest())]
    assert reader.plan(second.end, ALL) is None


def test_a_line_that_no_source_takes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for reading_module in (line_module, compressed):
        monkeypatch.setattr(reading_module, "LINE_BYTES_MAX", 2_000_000)
    for name, compress in (("a.txt", bytes), ("a.gz", gzip.compress)):
        directory = tmp_path / name.replace(".", "-")
        directory.mkdir()
        (directory / name).write_bytes(compress(b"\0" * 9_000_000))
        reader = open_reader(directory, record_bytes_max=300)
        with pytest.raises(RecordTooLarge, match="the line at byte 0 is longer than 2000000 bytes, and no source"):
            reader.plan(reader.initial_position(), ALL)


def test_compressed_and_plain_files_stand_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"a1\na2"))
    (tmp_path / "b.jsonl").write_bytes(b"b1\n")
    (tmp_path / "c.gz").write_bytes(gzip.compress(b""))
    reader = open_reader(tmp_path)
    plan = reader.plan(reader.initial_position(), ALL)
    assert rows(plan) == [b"a1", b"a2", b"b1"]
    assert plan is not None
    sizes = {name: (tmp_path / name).stat().st_size for name in ("a.jsonl.gz", "b.jsonl", "c.gz")}
    assert {name: seen[0] for name, seen in plan.end["finished"].items()} == sizes
    assert plan.end["open"] == {}
    with (tmp_path / "b.jsonl").open("ab") as file:
        file.write(b"b2\n")
    assert rows(reader.plan(plan.end, ALL)) == [b"b2"]


def test_a_codec_that_is_configured_goes_before_the_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b"1\n"))
    assert read_all(open_reader(tmp_path, codec="gzip"), ALL) == [b"1"]
    (tmp_path / "a").rename(tmp_path / ".a")
    (tmp_path / "b.gz").write_bytes(b"no gzip\n")
    assert read_all(open_reader(tmp_path, codec="none"), ALL) == [b"no gzip"]


def test_an_empty_compressed_file_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.gz").write_bytes(gzip.compress(b""))
    reader = open_reader(tmp_path)
    position = reader.initial_position()
    assert reader.plan(position, ALL) is None
    (tmp_path / "a").write_bytes(b"1\n")
    plan = reader.plan(position, ALL)
    assert plan is not None
    assert list(plan.end["finished"]) == ["a", "c.gz"]


def test_a_compressed_file_waits_until_nobody_writes(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"1\n"))
    reader = open_reader(tmp_path, settle_s=3600)
    assert reader.plan(reader.initial_position(), ALL) is None
    assert reader.lag(reader.initial_position()) == 0


def test_another_process_goes_on_in_the_middle_of_a_compressed_file(tmp_path: Path) -> None:
    payloads = [b"%d" % n for n in range(1000)]
    (tmp_path / "a.gz").write_bytes(gzip.compress(lines(payloads)))
    reader = open_reader(tmp_path)
    first = reader.plan(reader.initial_position(), RoundLimits(400, 10**9))
    assert first is not None
    size, *_, records = first.end["open"]["a.gz"]
    assert (size, records) == ((tmp_path / "a.gz").stat().st_size, 400)
    assert rows(open_reader(tmp_path).plan(first.end, ALL)) == payloads[400:]
    assert reader.wait(first.end, 0.0)
    assert rows(reader.plan(reader.initial_position(), RoundLimits(3, 10**9))) == payloads[:3]
    assert rows(reader.plan(first.end, ALL)) == payloads[400:]


@pytest.mark.parametrize("suffix", list(COMPRESS))
def test_damaged_and_cut_compressed_files_are_named_with_their_place(tmp_path: Path, suffix: str) -> None:
    codec, path = compressed.CODEC_OF_SUFFIX[suffix], tmp_path / f"a.{suffix}"
    whole = COMPRESS[suffix](lines([b"%d" % n for n in range(100_000)]))
    place = (
        rf"a\.{suffix}: damaged {codec}, or not complete, near byte \d+ of \d+, after \d+ good records: "
        r"\w.*; restore the file"
    )
    cut = (whole[:-9], whole[: len(whole) // 2], whole[:8], whole + whole[: len(whole) // 2])
    overwritten = whole[:5000] + bytes(100) + whole[5100:] if suffix in ("gz", "bz2") else whole[:-1]
    for data in (*cut, overwritten, b"not compressed at all\n", whole + b"garbage"):
        path.write_bytes(data)
        reader = open_reader(tmp_path)
        with pytest.raises(DataflowError, match=place):
            reader.plan(reader.initial_position(), ALL)
    path.write_bytes(whole)
    assert len(rows(reader.plan(reader.initial_position(), ALL))) == 100_000


@pytest.mark.parametrize("suffix", list(COMPRESS))
def test_zeros_behind_a_compressed_file_are_told_for_they_may_be_padding_or_lost_records(
    tmp_path: Path, suffix: str
) -> None:
    whole = COMPRESS[suffix](b"1\n")
    (tmp_path / f"a.{suffix}").write_bytes(whole + bytes(1000))
    reader = open_reader(tmp_path)
    with pytest.raises(DataflowError, match=rf"a\.{suffix}: .* it ends in zeros: cut them off if they are padding"):
        reader.plan(reader.initial_position(), ALL)


@pytest.mark.parametrize("suffix", list(COMPRESS))
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([b"", b"a\n"], id="first"),
        pytest.param([b"a\n", b"", b"b\n"], id="between"),
        pytest.param([b"a\n", *[b""] * 2000, b"b\n"], id="many"),
        pytest.param([b"a\n", b""], id="last"),
        pytest.param([b"", b"", b""], id="alone"),
        pytest.param([b"x" * (1024 * 1024 - 1) + b"\n", b"", b"b\n"], id="behind a block"),
        pytest.param([lines([b"%d" % n for n in range(300_000)]), b"", b"half a ", b"", b"line\n"], id="behind much"),
        pytest.param([b"%d\n" % n for n in range(500)], id="none"),
    ],
)
def test_streams_without_content_stand_anywhere_in_a_compressed_file(
    tmp_path: Path, suffix: str, parts: list[bytes]
) -> None:
    """As `cat` joins what writers have begun and left."""
    (tmp_path / f"a.{suffix}").write_bytes(b"".join(map(COMPRESS[suffix], parts)))
    wanted = b"".join(parts).splitlines()
    assert read_all(open_reader(tmp_path), RoundLimits(250_000, 10**9)) == wanted
    file = WrittenFile("a file", iter([(tmp_path / f"a.{suffix}").read_bytes()]))
    batches = list(writing_of(f"txt.{suffix}").batches(file))
    assert [payload for batch in batches for payload in batch["payload"].to_pylist()] == wanted


def test_what_is_known_of_files_without_records_goes_with_the_files(tmp_path: Path) -> None:
    reader = open_reader(tmp_path)
    assert isinstance(reader, module.FileStreamReader)
    position = reader.initial_position()
    for number in range(5):
        (tmp_path / f"{number}.gz").write_bytes(gzip.compress(b""))
        assert reader.plan(position, ALL) is None
        assert len(reader._empty) == 1
        (tmp_path / f"{number}.gz").unlink()
        assert reader.plan(position, ALL) is None
    for number in range(5):
        (tmp_path / f"{number}.gz").write_bytes(gzip.compress(b""))
        (tmp_path / f"{number}.txt").write_bytes(b"1\n")
        plan = reader.plan(position, ALL)
        assert rows(plan) == [b"1"]
        assert plan is not None
        position = plan.end
    assert reader.plan(position, ALL) is None
    assert reader._empty == set()


def test_a_compressed_file_that_changes_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"1\n2\n"))
    reader = open_reader(tmp_path)
    half = reader.plan(reader.initial_position(), RoundLimits(1, 10**9))
    plan = reader.plan(reader.initial_position(), ALL)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"1\n2\n3\n4\n5\n6\n7\n"))
    for before in (half, plan):
        assert before is not None
        with pytest.raises(DataflowError, match=r"a\.gz has \d+ bytes, and had \d+ .* may not change"):
            open_reader(tmp_path).plan(before.end, ALL)


def test_lag_of_much_compressed_data_is_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAG_BYTES_MAX", 3_000_000)
    for name in ("a.gz", "b.gz"):
        noise = random.Random(name).randbytes(2_400_000).hex().encode()
        (tmp_path / name).write_bytes(gzip.compress(lines([noise[at : at + 16] for at in range(0, len(noise), 16)]), 1))
    reader = open_reader(tmp_path)
    assert 300_000 < reader.lag(reader.initial_position()) < 900_000


# -- Parquet


def table(first: int, count: int) -> pa.Table:
    numbers = list(range(first, first + count))
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": [f"n{n}" for n in numbers]})


def test_parquet_rows_are_read_in_rounds_across_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SPLIT_BYTES", 2_000)
    pq.write_table(table(0, 1000), tmp_path / "a.parquet", row_group_size=300)
    pq.write_table(table(1000, 7), tmp_path / "b.parquet")
    reader = open_reader(tmp_path, file_format="parquet")
    assert reader.lag(reader.initial_position()) == 1007
    for limits in (ALL, RoundLimits(333, 10**9), RoundLimits(10**6, 3_000), RoundLimits(10, 1)):
        assert read_all(reader, limits, "id") == list(range(1007))
    plan = reader.plan(reader.initial_position(), ALL)
    assert plan is not None
    assert len(plan.splits) > 4
    assert rows(plan, "name")[-1] == "n1006"


def test_the_columns_are_those_of_the_first_file_or_of_the_one_that_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    settings = {"kind": "hdfs", "path": str(data), "file_format": "parquet"}
    source = FileSource("in", FileSourceConfig.parse(settings, source="a test"), SYSTEM_CLOCK)
    with pytest.raises(SourceMissing, match=r"there is no complete Parquet file in .* name one .* in schema_file"):
        _ = source.schema
    pq.write_table(table(0, 1), tmp_path / "like.parquet")
    settings["schema_file"] = str(tmp_path / "like.parquet")
    named = FileSource("in", FileSourceConfig.parse(settings, source="a test"), SYSTEM_CLOCK)
    dictionary = pa.table({"name": pa.array(["x"], pa.large_string()).dictionary_encode(), "id": pa.array([5])})
    pq.write_table(dictionary, data / "a.parquet")
    assert source.schema == pa.schema({"name": pa.string(), "id": pa.int64()})
    assert named.schema == pa.schema({"id": pa.int64(), "name": pa.string()})
    for opened in (source, named):
        reader = opened.open_reader(opened.streams()[0])
        plan = reader.plan(reader.initial_position(), ALL)
        assert plan is not None
        assert pa.Table.from_batches(plan.splits[0].read()).schema == opened.schema
    settings["schema_file"] = str(tmp_path / "none.parquet")
    missing = FileSource("in", FileSourceConfig.parse(settings, source="a test"), SYSTEM_CLOCK)
    with pytest.raises(SourceMissing, match=r"there is no .*none\.parquet: correct the source's schema_file"):
        _ = missing.schema


def test_a_file_of_other_columns_is_an_error_that_says_which(tmp_path: Path) -> None:
    pq.write_table(table(0, 1), tmp_path / "a.parquet")
    other = pa.table({"id": ["x"], "more": [1]})
    pq.write_table(other, tmp_path / "b.parquet")
    reader = open_reader(tmp_path, file_format="parquet")
    with pytest.raises(
        DataflowError,
        match=r"b\.parquet has other columns .*: name is missing, more is too many, id is string and not int64",
    ):
        reader.plan(reader.initial_position(), ALL)


def doubled_in_a_struct() -> pa.Table:
    inner = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["twin", "twin"])
    return pa.table({"id": pa.ListArray.from_arrays([0, 1], inner)})


@pytest.mark.parametrize(
    "doubled",
    [pa.table([[1], [2], ["x"]], names=["twin", "twin", "id"]), doubled_in_a_struct()],
    ids=["plain", "struct"],
)
def test_a_file_with_two_columns_of_one_name_is_refused(tmp_path: Path, doubled: pa.Table) -> None:
    said = (
        rf"^{tmp_path}/a\.parquet has two columns named 'twin', and columns are told by their names: give one another"
    )
    pq.write_table(doubled, tmp_path / "a.parquet")
    settings = {"kind": "hdfs", "path": str(tmp_path), "file_format": "parquet"}
    source = FileSource("in", FileSourceConfig.parse(settings, source="a test"), SYSTEM_CLOCK)
    with pytest.raises(DataflowError, match=said):
        _ = source.schema
    pq.write_table(table(0, 1), tmp_path / "like.parquet")
    reader = open_reader(tmp_path, file_format="parquet", schema_file=str(tmp_path / "like.parquet"))
    with pytest.raises(DataflowError, match=said):
        reader.plan(reader.initial_position(), ALL)


def test_the_file_whose_columns_are_the_sources_may_be_damaged_or_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(table(0, 1), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(data[:-40] + b"\xff" * 32 + data[-8:])
    settings = {"kind": "hdfs", "path": str(tmp_path), "file_format": "parquet"}
    source = FileSource("in", FileSourceConfig.parse(settings, source="a test"), SYSTEM_CLOCK)
    with pytest.raises(DataflowError, match=rf"^{tmp_path}/a\.parquet: damaged Parquet in the footer"):
        _ = source.schema
    pq.write_table(table(0, 1), tmp_path / "b.parquet")
    read = LocalFileSystem.read

    def deleted(files: LocalFileSystem, path: str, start: int, end: int) -> bytes:
        (tmp_path / "a.parquet").unlink(missing_ok=True)  # since it was found
        return read(files, path, start, end)

    monkeypatch.setattr(LocalFileSystem, "read", deleted)
    assert source.schema == table(0, 1).schema


def test_a_parquet_file_waits_for_its_end_and_one_without_is_an_error(tmp_path: Path) -> None:
    pq.write_table(table(0, 10), tmp_path / ".a")
    data = (tmp_path / ".a").read_bytes()
    pq.write_table(table(0, 1), tmp_path / "first.parquet")
    (tmp_path / "half.parquet").write_bytes(data[:-20])
    waiting = open_reader(tmp_path, file_format="parquet", settle_s=3600)
    assert rows(waiting.plan(waiting.initial_position(), ALL), "id") == [0]
    settled = open_reader(tmp_path, file_format="parquet")
    with pytest.raises(DataflowError, match=r"half\.parquet does not end as a Parquet file, at byte \d+: it is none"):
        settled.plan(settled.initial_position(), ALL)
    (tmp_path / "half.parquet").write_bytes(data)
    waiting = open_reader(tmp_path, file_format="parquet", settle_s=3600)
    assert rows(waiting.plan(waiting.initial_position(), ALL), "id") == [0, *range(10)]


def test_damaged_parquet_is_named_with_its_place(tmp_path: Path) -> None:
    pq.write_table(table(0, 10_000), tmp_path / "a.parquet", compression="zstd")
    data = (tmp_path / "a.parquet").read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    (tmp_path / "b.parquet").write_bytes(data[:footer] + b"\xff" * 50 + data[footer + 50 :])
    reader = open_reader(tmp_path, file_format="parquet")
    with pytest.raises(DataflowError, match=r"b\.parquet: damaged Parquet in the footer that ends at byte \d+"):
        reader.plan(reader.initial_position(), ALL)
    (tmp_path / "b.parquet").unlink()
    (tmp_path / "a.parquet").write_bytes(data[:30] + bytes(2000) + data[2030:])
    plan = open_reader(tmp_path, file_format="parquet").plan(reader.initial_position(), ALL)
    with pytest.raises(DataflowError, match=r"a\.parquet: damaged Parquet in rows 0 to 10000: "):
        rows(plan, "id")


def test_a_parquet_file_that_is_deleted_or_replaced_after_it_was_planned_is_an_error(tmp_path: Path) -> None:
    pq.write_table(table(0, 10), tmp_path / "a.parquet")
    reader = open_reader(tmp_path, file_format="parquet")
    plan = reader.plan(reader.initial_position(), ALL)
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(DataflowError, match=r"a\.parquet was deleted after it was planned"):
        rows(plan, "id")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"file_format": "parquet", "format": "json", "schema_ddl": "a INT"}, "goes with format: raw"),
        ({"file_format": "parquet", "codec": "gzip"}, "leave codec out"),
        ({"schema_file": "/x"}, "schema_file goes with file_format: parquet"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        FileSourceConfig.parse({"kind": "hdfs", "path": "/x", **settings}, source="a test")


def test_counting_what_is_unread_does_not_begin_the_open_file_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    class Counting(compressed._Stream):
        def __init__(self, file: FileToRead, *rest: Any) -> None:
            begun.append(file.url.rpartition("/")[2])
            super().__init__(file, *rest)

    monkeypatch.setattr(compressed, "_Stream", Counting)
    for name in ("a.gz", "b.gz", "c.gz"):
        (tmp_path / name).write_bytes(gzip.compress(lines([b"%d" % n for n in range(10)])))
    reader = open_reader(tmp_path)
    position = reader.initial_position()
    found: list[bytes] = []
    while (plan := reader.plan(position, RoundLimits(4, 10**9))) is not None:
        assert reader.lag(plan.end) == 30 - len(found) - plan.records
        found += rows(plan)
        position = plan.end
    assert found == [b"%d" % n for n in range(10)] * 3
    assert begun.count("a.gz") == 1
    assert len(begun) <= 5  # b and c are counted once, and read once
