"""Files as a source: what is followed, what waits, and what is an error. On real files, with a clock that is moved."""

from __future__ import annotations

import itertools
import os
import zlib
from pathlib import Path
from typing import Any

import fsspec
import pytest

from scribengin.base.model import Position
from scribengin.connectors.contract import PlannedAgain, PlannedRange, RoundLimits, SourceStreamReader
from scribengin.connectors.files import FileSource, FileSourceConfig
from scribengin.connectors.files.formats import reading
from scribengin.connectors.files.source import stream as module
from scribengin.errors import ConfigInvalid, DataflowError, SourceMissing
from tests.contract.connectors.clocks import LaterClock

ALL = RoundLimits(10**6, 10**9)


@pytest.fixture
def clock() -> LaterClock:
    return LaterClock()


def open_files(path: Path | str, clock: LaterClock, **settings: Any) -> FileSource:
    config = FileSourceConfig.parse({"kind": "hdfs", "path": str(path), **settings}, source="a test")
    return FileSource("in", config, clock)


def reader_of(source: FileSource, stream: int = 0) -> SourceStreamReader:
    return source.open_reader(source.streams()[stream])


def lines(plan: PlannedRange | None) -> list[str]:
    assert plan is not None, "there is nothing to read"
    batches = [batch for split in plan.splits for batch in split.read()]
    return [payload.decode() for batch in batches for payload in batch["payload"].to_pylist()]


def read(reader: SourceStreamReader, position: Position) -> tuple[list[str], Position]:
    plan = reader.plan(position, ALL)
    return ([], position) if plan is None else (lines(plan), plan.end)


def read_of(position: Position, kind: str) -> dict[str, int]:
    """What was read of its files of that kind."""
    return {name: seen[0] for name, seen in position[kind].items()}


def test_a_late_file_that_sorts_early_is_not_missed(tmp_path: Path, clock: LaterClock) -> None:
    reader = reader_of(open_files(tmp_path, clock))
    (tmp_path / "b").write_text("b1\n")
    found, position = read(reader, reader.initial_position())
    (tmp_path / "a").write_text("a1\n")
    (tmp_path / "c").write_text("c1\n")
    late, _ = read(reader, position)
    assert (found, late) == (["b1"], ["a1", "c1"])


def test_directories_are_read_whole_but_for_what_is_hidden(tmp_path: Path, clock: LaterClock) -> None:
    for name in ("a/b/c.txt", "a/.part", "_scribengin/committed/0/x", "a/_tmp/x", ".x/y", "d.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    reader = reader_of(open_files(tmp_path, clock))
    assert read(reader, reader.initial_position())[0] == ["a/b/c.txt", "d.txt"]


def test_links_that_lead_nowhere_are_passed_over(tmp_path: Path, clock: LaterClock) -> None:
    data = tmp_path / "data"
    (data / "deeper").mkdir(parents=True)
    (data / "a.txt").write_text("a\n")
    (data / "deeper" / "b.txt").write_text("b\n")
    links = {"itself": "itself", "to": "fro", "fro": "to", "gone": "nothing", "below": "a.txt/x", "good": "a.txt"}
    for name, target in links.items():
        (data / name).symlink_to(target)
        (data / "deeper" / name).symlink_to(f"../{target}")
    reader = reader_of(open_files(data, clock))
    found, position = read(reader, reader.initial_position())
    assert sorted(found) == ["a", "a", "a", "b"]
    assert list(position["finished"]) == ["a.txt", "deeper/b.txt", "deeper/good", "good"]


def test_what_cannot_be_looked_at_is_told_by_its_name(tmp_path: Path, clock: LaterClock) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "link").symlink_to("x" * 300)  # which no name can be
    reader = reader_of(open_files(tmp_path, clock))
    said = f"^cannot look for files in {tmp_path}: {tmp_path}/deeper/link: File name too long; make that possible"
    with pytest.raises(DataflowError, match=said):
        reader.plan(reader.initial_position(), ALL)


def test_names_on_their_way_are_not_there_yet(tmp_path: Path, clock: LaterClock) -> None:
    """As `hdfs dfs -put`, Hadoop's committers, Flume and Flink have them."""
    ways = ("x._COPYING_", "y.tmp", "z.inprogress", "part-0.inprogress.4f2a", "_temporary/0/part-0", "day.tmp/a")
    for name in (*ways, "tmp", "a.tmpl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    for settings, more in (({}, []), ({"on_their_way": ["*.tmpl"]}, [*ways[:4], "day.tmp/a"])):
        reader = reader_of(open_files(tmp_path, clock, **settings))
        found, position = read(reader, reader.initial_position())
        assert found == sorted(["tmp", *(more or ["a.tmpl"])])
    reader = reader_of(open_files(tmp_path, clock))
    _, position = read(reader, reader.initial_position())
    os.rename(tmp_path / "x._COPYING_", tmp_path / "x")
    assert read(reader, position)[0] == ["x._COPYING_"]
    assert reader.lag(position) == 1
    named = reader_of(open_files(tmp_path / "y.tmp", clock))
    assert read(named, named.initial_position())[0] == ["y.tmp"]


def test_a_glob_matches_names_and_double_stars_match_directories(tmp_path: Path, clock: LaterClock) -> None:
    for name in ("1.txt", "a/2.txt", "a/b/3.txt", "a/b/4.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    expected = {"*.txt": ["1.txt"], "**/*.txt": ["1.txt", "a/2.txt", "a/b/3.txt"], "*/[12].txt": ["a/2.txt"]}
    for pattern, names in expected.items():
        reader = reader_of(open_files(f"{tmp_path}/{pattern}", clock))
        assert read(reader, reader.initial_position())[0] == names


def test_a_single_file_is_followed(tmp_path: Path, clock: LaterClock) -> None:
    path = tmp_path / "one.log"
    path.write_text("1\n")
    reader = reader_of(open_files(path, clock))
    found, position = read(reader, reader.initial_position())
    with path.open("a") as file:
        file.write("2\n")
    assert (found, read(reader, position)[0]) == (["1"], ["2"])


def test_files_are_spread_over_streams_by_name(tmp_path: Path, clock: LaterClock) -> None:
    names = [f"file-{n}" for n in range(20)]
    for name in names:
        (tmp_path / name).write_text(f"{name}\n")
    source = open_files(tmp_path, clock, streams=3)
    found = [read(reader, reader.initial_position())[0] for reader in map(source.open_reader, source.streams())]
    assert [{zlib.crc32(name.encode()) % 3 for name in stream} for stream in found] == [{0}, {1}, {2}]
    assert sorted(itertools.chain(*found)) == sorted(names)


def test_half_a_line_waits_for_its_end(tmp_path: Path, clock: LaterClock) -> None:
    reader = reader_of(open_files(tmp_path, clock, settle_s=60))
    (tmp_path / "a").write_text("1\nhal")
    found, position = read(reader, reader.initial_position())
    assert (found, reader.plan(position, ALL), reader.lag(position)) == (["1"], None, 0)
    assert not reader.wait(position, 0.0)
    with (tmp_path / "a").open("a") as file:
        file.write("f\n")
    assert read(reader, position)[0] == ["half"]


def test_a_last_line_without_a_newline_is_a_record_once_nobody_writes(tmp_path: Path, clock: LaterClock) -> None:
    reader = reader_of(open_files(tmp_path, clock, settle_s=60))
    (tmp_path / "a").write_text("1\nlast")
    clock.later_s = 61
    assert reader.lag(reader.initial_position()) == 2
    found, position = read(reader, reader.initial_position())
    assert (found, reader.plan(position, ALL)) == (["1", "last"], None)
    with (tmp_path / "a").open("a") as file:
        file.write("\nnext\n")
    assert read(reader, position)[0] == ["next"]


def test_a_line_that_grows_after_it_was_read_is_an_error(tmp_path: Path, clock: LaterClock) -> None:
    reader = reader_of(open_files(tmp_path, clock, settle_s=60))
    (tmp_path / "a").write_text("1\nhal")
    clock.later_s = 61
    _, position = read(reader, reader.initial_position())
    with (tmp_path / "a").open("a") as file:
        file.write("f\n")
    with pytest.raises(DataflowError, match=r"a: the line that ended at byte 5 was read as complete .* raise settle_s"):
        reader.plan(position, ALL)


def test_limits_hold_over_several_files(tmp_path: Path, clock: LaterClock) -> None:
    for name in "abc":
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    reader = reader_of(open_files(tmp_path, clock))
    first = reader.plan(reader.initial_position(), RoundLimits(3, 10**9))
    assert lines(first) == ["a1", "a2", "b1"]
    assert first is not None
    assert (read_of(first.end, "finished"), read_of(first.end, "open")) == ({"a": 6}, {"b": 3})
    assert lines(reader.plan(first.end, RoundLimits(10, 6))) == ["b2", "c1"]


def test_large_files_are_read_in_several_splits(
    tmp_path: Path, clock: LaterClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SPLIT_BYTES", 1024 * 1024)
    wanted = [f"{n:09d}" for n in range(500_000)]
    (tmp_path / "large").write_text("\n".join(wanted) + "\n")
    reader = reader_of(open_files(tmp_path, clock))
    plan = reader.plan(reader.initial_position(), ALL)
    assert plan is not None
    assert len(plan.splits) >= 3
    assert sum(split.records for split in plan.splits) == plan.records == len(wanted)
    assert lines(plan) == wanted


def test_lag_beyond_what_is_counted_is_estimated(
    tmp_path: Path, clock: LaterClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAG_BYTES_MAX", 1000)
    (tmp_path / "a").write_text("123456789\n" * 1000)
    reader = reader_of(open_files(tmp_path, clock))
    assert reader.lag(reader.initial_position()) == 1000


def test_what_changes_after_it_was_planned_is_an_error(tmp_path: Path, clock: LaterClock) -> None:
    path = tmp_path / "a"
    path.write_text("1\n2\n")
    reader = reader_of(open_files(tmp_path, clock))
    plan = reader.plan(reader.initial_position(), ALL)
    path.write_text("1\n")
    with pytest.raises(DataflowError, match="a changed after it was planned: bytes 0 to 4 held 2 lines"):
        lines(plan)
    path.unlink()
    with pytest.raises(DataflowError, match="a was deleted after it was planned"):
        lines(plan)


def test_read_files_may_be_moved_away_and_unread_ones_may_not(tmp_path: Path, clock: LaterClock) -> None:
    reader = reader_of(open_files(tmp_path, clock))
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("3\n")
    half = reader.plan(reader.initial_position(), RoundLimits(1, 10**9))
    assert half is not None
    os.rename(tmp_path / "a", tmp_path / ".moved")
    with pytest.raises(DataflowError, match="a is gone, and only 2 bytes of it were read"):
        reader.plan(half.end, ALL)
    os.rename(tmp_path / ".moved", tmp_path / "a")
    _, position = read(reader, half.end)
    (tmp_path / "a").unlink()
    (tmp_path / "c").write_text("4\n")
    found, position = read(reader, position)
    assert found == ["4"]
    assert "a" in read_of(position, "finished"), "it may come back"
    clock.later_s += module.GONE_S
    (tmp_path / "d").write_text("5\n")
    found, position = read(reader, position)
    assert (found, read_of(position, "finished")) == (["5"], {"b": 2, "c": 2, "d": 2})


def test_a_name_that_no_position_can_hold_is_an_error(tmp_path: Path, clock: LaterClock) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("1\n")
    reader = reader_of(open_files(tmp_path, clock))
    with pytest.raises(DataflowError, match=r"the name 'caf\\udce9\.txt' is not UTF-8"):
        reader.plan(reader.initial_position(), ALL)


def test_a_path_that_is_not_there_is_named(tmp_path: Path, clock: LaterClock) -> None:
    for path in (tmp_path / "nothing", tmp_path / "nothing" / "*.txt"):
        with pytest.raises(SourceMissing, match=r"there is no file or directory .*/nothing: create it, or correct"):
            open_files(path, clock).streams()
    assert len(open_files(f"{tmp_path}/*.txt", clock).streams()) == 1


def test_other_file_systems_are_read_through_fsspec(clock: LaterClock) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/source-test/a.txt", b"1\n2\n")
    memory.pipe("/source-test/_hidden", b"3\n")
    try:
        reader = reader_of(open_files("memory://source-test", clock))
        found, position = read(reader, reader.initial_position())
        memory.pipe("/source-test/b.txt", b"4\n")
        assert (found, read(reader, position)[0]) == (["1", "2"], ["4"])
    finally:
        memory.rm("/source-test", recursive=True)


ODD_NAMES = ["a::b.txt", "zip::c", "memory::memory", "d/e::f/::", "a%20b", "a#b", "a?b", "[a]", "a*b", "~a", "a@b:c"]


@pytest.mark.parametrize("opened", ["memory://odd-names", "simplecache::memory://odd-names", "memory://odd::names/in"])
def test_a_name_of_an_object_is_what_it_is_whatever_stands_in_it(clock: LaterClock, opened: str) -> None:
    """`::` joins URLs for fsspec, where somebody writes one, and may stand in any name."""
    memory = fsspec.filesystem("memory")
    folder = f"/{opened.partition('://')[2]}"
    for name in ODD_NAMES:
        memory.pipe(f"{folder}/{name}", f"{name}\n".encode())
    try:
        reader = reader_of(open_files(opened, clock))
        start = reader.initial_position()
        assert reader.lag(start) == len(ODD_NAMES)
        plan = reader.plan(start, ALL)
        assert sorted(lines(plan)) == sorted(ODD_NAMES)
        assert plan is not None
        again = reader_of(open_files(opened, clock)).plan_again(
            PlannedAgain(plan.start, plan.end, plan.records, plan.again)
        )
        assert sorted(lines(again)) == sorted(ODD_NAMES)
        memory.pipe(f"{folder}/c::d", b"more\n")
        assert read(reader, plan.end)[0] == ["more"]
        one = reader_of(open_files(f"{opened}/zip::c", clock))
        assert read(one, one.initial_position())[0] == ["zip::c"]
    finally:
        memory.rm(folder, recursive=True)


def test_a_url_within_another_one_is_refused(clock: LaterClock) -> None:
    url = "zip://inner.txt::memory://outer.zip"
    with pytest.raises(ConfigInvalid, match=f"^{url} is a URL within another one.*name files that are not packed"):
        open_files(url, clock)


def test_an_unknown_file_system_is_refused(clock: LaterClock) -> None:
    with pytest.raises(ConfigInvalid, match="'nosuch://' cannot be opened here"):
        open_files("nosuch://host/x", clock)


def test_relative_paths_are_made_absolute_when_the_config_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = FileSourceConfig.parse({"kind": "hdfs", "path": "in/*.txt"}, source="a test")
    assert config.path == f"{tmp_path}/in/*.txt"
    assert FileSourceConfig.parse(config.model_dump(), source="a test") == config
