"""The conformance suites see what they are there for: each sink and source here breaks one promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitDescriptor
from scribengin.base.model import Position
from scribengin.connectors.contract import PlannedRange, RoundLimits
from scribengin.connectors.files import FileSink, FileSinkConfig, FileSource, FileSourceConfig
from scribengin.connectors.files.formats.growing import FileSplit
from scribengin.connectors.files.formats.lines import decode
from scribengin.connectors.files.sink.writer import FileSinkWriter
from scribengin.connectors.files.source.stream import FileStreamReader
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import ScribenginError
from scribengin.testing import check_sink, check_source
from scribengin_registry.contract import Registry

Broken = Callable[[pytest.MonkeyPatch], None]


def shows_in_prepare(patch: pytest.MonkeyPatch) -> None:
    prepare = FileSinkWriter.prepare_commit

    def prepare_commit(self: FileSinkWriter) -> CommitDescriptor | None:
        prepared = prepare(self)
        if prepared is not None:
            self.complete_commit(prepared)
        return prepared

    patch.setattr(FileSinkWriter, "prepare_commit", prepare_commit)


def shows_every_completion(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileSinkWriter, "rollback", lambda self: None)


def forgets_to_complete_in_recover(patch: pytest.MonkeyPatch) -> None:
    recover = FileSinkWriter.recover
    patch.setattr(FileSinkWriter, "recover", lambda self, committed: recover(self, None))


def leaves_what_the_dead_staged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileSinkWriter, "_drop", lambda self, name: None)


def swallows_a_late_completion(patch: pytest.MonkeyPatch) -> None:
    complete = FileSinkWriter.complete_commit

    def complete_commit(self: FileSinkWriter, committed: CommitDescriptor) -> None:
        try:
            complete(self, committed)
        except ScribenginError:
            return

    patch.setattr(FileSinkWriter, "complete_commit", complete_commit)


def lets_the_stale_delete(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileSinkWriter, "_refuse_if_stale", lambda self, known, incarnation: None)


def counts_wrongly(patch: pytest.MonkeyPatch) -> None:
    prepare = FileSinkWriter.prepare_commit

    def prepare_commit(self: FileSinkWriter) -> CommitDescriptor | None:
        prepared = prepare(self)
        return prepared and prepared.model_copy(update={"records": 1})

    patch.setattr(FileSinkWriter, "prepare_commit", prepare_commit)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (shows_in_prepare, r"after prepare_commit\(\)"),
        (shows_every_completion, r"records can be written after recover\(\)"),
        (forgets_to_complete_in_recover, "once another owner has recovered"),
        (leaves_what_the_dead_staged, r"complete_commit\(\) of a round that was rolled back"),
        (swallows_a_late_completion, r"complete_commit\(\) of a round that was rolled back"),
        (lets_the_stale_delete, "a late rollback of a stale owner destroys nothing; it raised DataflowError"),
        (counts_wrongly, "CommitDescriptor.records should be 1000, and is 1"),
    ],
)
def test_a_sink_that_breaks_a_promise_is_found(
    broken: Broken, said: str, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    config = FileSinkConfig(kind="hdfs", path=str(tmp_path / "out"))
    with pytest.raises(AssertionError, match=said):
        check_sink(lambda: FileSink("out", config, registry, STREAM_NODES, SYSTEM_CLOCK), registry)


def skips_a_record(patch: pytest.MonkeyPatch) -> None:
    plan = FileStreamReader.plan

    def shorter(self: FileStreamReader, position: Position, limits: RoundLimits) -> PlannedRange | None:
        planned = plan(self, position, limits)
        return planned and replace(planned, splits=planned.splits[1:])

    patch.setattr(FileStreamReader, "plan", shorter)


def ignores_its_limits(patch: pytest.MonkeyPatch) -> None:
    plan = FileStreamReader.plan
    everything = RoundLimits(10**6, 10**9)
    patch.setattr(FileStreamReader, "plan", lambda self, position, limits: plan(self, position, everything))


def goes_back_to_the_start(patch: pytest.MonkeyPatch) -> None:
    plan = FileStreamReader.plan

    def standing(self: FileStreamReader, position: Position, limits: RoundLimits) -> PlannedRange | None:
        planned = plan(self, position, limits)
        return planned and replace(planned, end=position)

    patch.setattr(FileStreamReader, "plan", standing)


def never_lags(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileStreamReader, "lag", lambda self, position: 0)


def ends_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileStreamReader, "ended", lambda self, position: True)


def reads_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    def read(self: FileSplit) -> Iterator[pa.RecordBatch]:
        yield decode(Path(self.path).read_bytes())

    patch.setattr(FileSplit, "read", read)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (skips_a_record, "the records of the range after an append"),
        (ignores_its_limits, "records_max=1 planned 23"),
        (goes_back_to_the_start, "ends behind its start"),
        (never_lags, r"lag\(\) after nine records"),
        (ends_at_once, "False for a stream that was not sealed"),
        (reads_whatever_is_there, "a range that is read again"),
    ],
)
def test_a_source_that_breaks_a_promise_is_found(
    broken: Broken, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    config = FileSourceConfig(kind="hdfs", path=str(tmp_path))

    def append(stream: str, payloads: Sequence[bytes]) -> None:
        with (tmp_path / f"{stream}.txt").open("ab") as file:
            file.write(b"".join(payload + b"\n" for payload in payloads))

    with pytest.raises(AssertionError, match=said):
        check_source(lambda: FileSource("in", config, SYSTEM_CLOCK), append)
