"""Files as a sink: what stands on the disk, when it is merged, and what a second life on the same directory finds."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.connectors.contract import Attempt, SinkStreamDescriptor, SinkStreamWriter
from scribengin.connectors.files import FileSink, FileSinkConfig
from scribengin.dataflow.registry.paths import SINKS, STREAM_NODES
from scribengin.errors import ConfigInvalid, DataflowError, OutOfRoom, StaleOwner
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry


class Directory:
    """A sink's directory, with a clock that the test moves, and an owner for its first stream."""

    def __init__(self, registry: Registry, path: Path) -> None:
        self.registry = registry
        self.path = path
        self.later_s = 0.0
        self.epoch = 0

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms()

    def monotonic_s(self) -> float:
        return self.later_s

    def sink(self, **settings: Any) -> FileSink:
        value = {"kind": "hdfs", "path": str(self.path), "format": "json", **settings}
        sink = FileSink("out", FileSinkConfig.parse(value, source="a test"), self.registry, STREAM_NODES, self)
        sink.create(sink.streams(1))
        return sink

    def owner(self, sink: FileSink, committed: CommitDescriptor | None = None) -> SinkStreamWriter:
        self.epoch += 1
        writer = sink.open_writer(self.stream(sink), Attempt(f"owner-{self.epoch}", self.epoch, "/commit-log"))
        writer.recover(committed)
        return writer

    def stream(self, sink: FileSink) -> SinkStreamDescriptor:
        return sink.streams(1)[0]

    def visible(self, sink: FileSink) -> list[str]:
        batches = sink.committed(self.stream(sink))
        return [payload.decode() for batch in batches for payload in batch["payload"].to_pylist()]

    def finals(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.path.iterdir()) if not path.name.startswith("_")}

    def below(self, kind: str) -> list[str]:
        return sorted(path.name for path in (self.path / "_scribengin" / kind / "0").iterdir())


@pytest.fixture
def directory(registry: Registry, tmp_path: Path) -> Directory:
    return Directory(registry, tmp_path / "out")


def write(writer: SinkStreamWriter, *payloads: str) -> CommitDescriptor:
    """A round that was committed somewhere, and is completed."""
    prepared = stage(writer, *payloads)
    writer.complete_commit(prepared)
    return prepared


def stage(writer: SinkStreamWriter, *payloads: str) -> CommitDescriptor:
    writer.write(pa.record_batch({"payload": pa.array(payloads, pa.string())}))
    prepared = writer.prepare_commit()
    assert prepared is not None
    return prepared


def test_committed_segments_become_final_files_when_they_are_old(directory: Directory) -> None:
    sink = directory.sink(merge_age_s=5)
    writer = directory.owner(sink)
    write(writer, "1", "2")
    sink.maintain(directory.registry, idle=False)
    assert (directory.finals(), len(directory.below("committed"))) == ({}, 1)
    directory.later_s = 4
    write(writer, "3")
    sink.maintain(directory.registry, idle=False)
    assert (directory.finals(), directory.visible(sink)) == ({}, ["1", "2", "3"])
    directory.later_s = 5
    sink.maintain(directory.registry, idle=False)
    assert directory.finals() == {"part-00000-00000000.jsonl": "1\n2\n3\n"}
    assert [directory.below(kind) for kind in ("staged", "committed", "merging")] == [[], [], []]
    assert directory.visible(sink) == ["1", "2", "3"]


def test_committed_segments_become_final_files_when_they_are_large(directory: Directory) -> None:
    sink = directory.sink(merge_bytes=6, format="raw")
    writer = directory.owner(sink)
    for number in range(7):
        write(writer, str(number))
        sink.maintain(directory.registry, idle=False)
    assert directory.finals() == {"part-00000-00000000.txt": "0\n1\n2\n", "part-00000-00000001.txt": "3\n4\n5\n"}
    assert directory.visible(sink) == list("0123456")


def test_nothing_is_left_when_the_dataflow_is_drained(directory: Directory) -> None:
    sink = directory.sink(merge_bytes=4)
    writer = directory.owner(sink)
    for number in range(5):
        write(writer, str(number))
    sink.maintain(directory.registry, idle=True)
    assert "".join(directory.finals().values()) == "0\n1\n2\n3\n4\n"
    assert len(directory.finals()) == 3
    assert directory.below("committed") == []


def test_a_large_round_is_staged_in_several_parts(directory: Directory) -> None:
    sink = directory.sink(merge_bytes=10)
    writer = directory.owner(sink)
    for number in range(4):
        writer.write(pa.record_batch({"payload": [f"{number}" * 6]}))
    prepared = writer.prepare_commit()
    assert prepared is not None
    assert [segment["bytes"] for segment in prepared.data["segments"]] == [14, 14]
    writer.complete_commit(prepared)
    assert directory.visible(sink) == [f"{number}" * 6 for number in range(4)]


def test_whoever_reads_final_files_may_take_them_away(directory: Directory) -> None:
    sink = directory.sink()
    writer = directory.owner(sink)
    write(writer, "1")
    sink.maintain(directory.registry, idle=True)
    (directory.path / "part-00000-00000000.jsonl").unlink()
    last = write(writer, "2")
    sink.maintain(directory.registry, idle=True)
    assert directory.finals() == {"part-00000-00000001.jsonl": "2\n"}
    directory.owner(sink, last)
    assert directory.visible(sink) == ["2"]


def test_the_final_files_of_another_life_are_kept(directory: Directory) -> None:
    sink = directory.sink()
    write(directory.owner(sink), "1")
    sink.maintain(directory.registry, idle=True)
    directory.registry.delete(SINKS, recursive=True)
    directory.epoch = 0
    sink = directory.sink()
    write(directory.owner(sink), "2")
    sink.maintain(directory.registry, idle=True)
    assert directory.finals() == {"part-00000-00000000.jsonl": "1\n", "part-00000-00000001.jsonl": "2\n"}


def test_what_another_life_left_unmerged_comes_first_and_what_it_staged_is_dropped(directory: Directory) -> None:
    sink = directory.sink()
    directory.epoch = 7
    before = directory.owner(sink)
    write(before, "1")
    stage(before, "never committed")
    directory.registry.delete(SINKS, recursive=True)
    directory.epoch = 0
    sink = directory.sink()
    write(directory.owner(sink), "2")
    assert (directory.visible(sink), directory.below("staged")) == (["1", "2"], [])
    sink.maintain(directory.registry, idle=True)
    assert directory.finals() == {"part-00000-00000000.jsonl": "1\n2\n"}


def test_an_epoch_that_was_passed_may_not_write_again(directory: Directory) -> None:
    sink = directory.sink()
    directory.epoch = 7
    write(directory.owner(sink), "1")
    sink.maintain(directory.registry, idle=True)
    directory.epoch = 3
    with pytest.raises(StaleOwner, match="epoch 8 has written it, and owner-4 has epoch 4"):
        directory.owner(sink)


def test_segments_that_somebody_deletes_are_missed(directory: Directory) -> None:
    sink = directory.sink()
    writer = directory.owner(sink)
    log = CommitLog(dataflow="flow", task="task-0", owner="owner-1", generation=1, epoch=1, round=1)
    directory.registry.create("/commit-log", log.to_bytes())
    prepared = stage(writer, "1")
    (directory.path / "_scribengin" / "staged" / "0" / directory.below("staged")[0]).unlink()
    with pytest.raises(
        DataflowError, match="is gone, and nothing of it is visible; somebody else has deleted it"
    ) as seen:
        writer.complete_commit(prepared)
    assert not isinstance(seen.value, StaleOwner)
    directory.registry.set("/commit-log", log.model_copy(update={"epoch": 2}).to_bytes())
    with pytest.raises(StaleOwner, match="is gone, and nothing of it is visible; the stream has another owner now"):
        writer.complete_commit(prepared)


def test_a_writer_opened_twice_under_one_epoch_never_uses_a_name_twice(directory: Directory) -> None:
    sink = directory.sink()
    last = write(directory.owner(sink), "1")
    sink.maintain(directory.registry, idle=True)
    directory.epoch -= 1
    write(directory.owner(sink, last), "2")
    sink.maintain(directory.registry, idle=True)
    assert directory.visible(sink) == ["1", "2"]


def test_a_committed_segment_that_the_disk_changed_is_an_error(directory: Directory) -> None:
    sink = directory.sink()
    prepared = stage(directory.owner(sink), "12345")
    staged = directory.path / "_scribengin" / "staged" / "0" / directory.below("staged")[0]
    staged.write_text("12845\n")
    with pytest.raises(DataflowError, match="is not what was committed: 6 bytes with checksum"):
        directory.owner(sink, prepared)


def test_a_rename_that_the_disk_forgot_is_made_again_or_dropped(directory: Directory) -> None:
    sink = directory.sink()
    writer = directory.owner(sink)
    prepared = stage(writer, "1")
    staged = directory.path / "_scribengin" / "staged" / "0" / directory.below("staged")[0]
    content = staged.read_bytes()
    writer.complete_commit(prepared)
    sink.maintain(directory.registry, idle=True)
    staged.write_bytes(content)  # as after a power failure, with the commit log still naming the round
    directory.owner(sink, prepared)
    assert (directory.visible(sink), directory.below("staged")) == (["1"], [])


@pytest.mark.parametrize(
    ("prepare", "settings", "said"),
    [
        (lambda path: path.write_text(""), {}, "is a file, and a sink writes several: name a directory"),
        (lambda path: None, {"path": "data://out"}, "cannot be a sink: data:// can be read, and nothing is known"),
    ],
)
def test_a_path_that_cannot_be_a_sink_is_refused(
    directory: Directory, prepare: Callable[[Path], object], settings: dict[str, str], said: str
) -> None:
    prepare(directory.path)
    with pytest.raises(ConfigInvalid, match=said):
        directory.sink(**settings)


def test_a_stream_that_was_not_created_says_so(directory: Directory) -> None:
    config = FileSinkConfig(kind="hdfs", path=str(directory.path))
    sink = FileSink("out", config, directory.registry, STREAM_NODES, SYSTEM_CLOCK)
    with pytest.raises(DataflowError, match="submit the dataflow, which creates the streams"):
        directory.owner(sink)
    sink.maintain(directory.registry, idle=True)
    assert not directory.path.exists()


@pytest.mark.parametrize("stop", ["files.append:before", "files.sync:before", "files.sync_directory:before"])
def test_a_disk_that_is_full_is_told_in_one_line_and_leaves_nothing(directory: Directory, stop: str) -> None:
    sink = directory.sink()
    writer = directory.owner(sink)
    last = write(writer, "1")

    def full(_stop: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with (
        at_failpoint(stop, full),
        pytest.raises(OutOfRoom, match=r"cannot [a-z ]+ /.*: No space left on device; it goes on when there is room"),
    ):
        stage(writer, "2")
    writer.close()
    write(directory.owner(sink, last), "3")
    assert directory.visible(sink) == ["1", "3"]


def test_a_merge_that_finds_no_room_leaves_nothing_and_is_made_when_there_is(directory: Directory) -> None:
    sink = directory.sink()
    write(directory.owner(sink), "1")

    def full(_stop: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for _ in range(3):
        with at_failpoint("files.sync:before", full), pytest.raises(OutOfRoom):
            sink.maintain(directory.registry, idle=True)
        assert directory.below("merging") == []
    sink.maintain(directory.registry, idle=True)
    assert directory.finals() == {"part-00000-00000000.jsonl": "1\n"}
