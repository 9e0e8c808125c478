"""Merging under crashes: a master is stopped at every step, or another one does all of it meanwhile; each record once.

Every case looks through both kinds of eyes: our readers, who see everything committed at every moment, and programs
that read final files, who see nothing twice, and in the end everything.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitDescriptor
from scribengin.connectors.contract import Attempt
from scribengin.connectors.files import FileSink, FileSinkConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import DataflowError
from scribengin.testing.failpoints import at_failpoint, kill_this_process, record_stops
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown
from scribengin_registry.opening import connect
from tests.dying import Died, die

WANTED = [f"{number}" for number in range(12)]
MERGE_BYTES = 8


class Case:
    """A directory with twelve records of four rounds, committed and not merged: more than one merge's worth."""

    def __init__(self, registry: Registry, path: Path) -> None:
        self.registry = registry
        self.path = path
        sink = self.sink()
        self.stream = sink.streams(1)[0]
        sink.create([self.stream])
        writer = sink.open_writer(self.stream, Attempt("owner", 1, "/commit-log"))
        writer.recover(None)
        self.last: CommitDescriptor | None = None
        for start in range(0, len(WANTED), 3):
            writer.write(pa.record_batch({"payload": WANTED[start : start + 3]}))
            self.last = writer.prepare_commit()
            assert self.last is not None
            writer.complete_commit(self.last)
        writer.close()

    def sink(self) -> FileSink:
        """As a process of its own opens it."""
        return open_sink(self.registry, self.path)

    def merge(self) -> None:
        """What a master does."""
        self.sink().maintain(self.registry, idle=True)

    def seen_by_us(self) -> list[str]:
        batches = self.sink().committed(self.stream)
        return [payload.decode() for batch in batches for payload in batch["payload"].to_pylist()]

    def seen_by_others(self) -> list[str]:
        return [line for path in sorted(self.path.glob("part-*")) for line in path.read_text().splitlines()]

    def check(self, when: str) -> None:
        assert self.seen_by_us() == WANTED, when
        others = self.seen_by_others()
        assert others == WANTED[: len(others)], when

    def check_finished(self, when: str) -> None:
        self.check(when)
        assert self.seen_by_others() == WANTED, when
        for kind in ("committed", "merging"):
            assert list((self.path / "_scribengin" / kind / "0").iterdir()) == [], when

    def check_recovery(self, when: str) -> None:
        """A new owner completes the last round again, and finds that it was merged."""
        writer = self.sink().open_writer(self.stream, Attempt("next", 2, "/commit-log"))
        writer.recover(self.last)
        writer.close()
        self.check_finished(when)


def open_sink(registry: Registry, path: Path) -> FileSink:
    config = FileSinkConfig(kind="hdfs", path=str(path), merge_bytes=MERGE_BYTES)
    return FileSink("out", config, registry, STREAM_NODES, SYSTEM_CLOCK)


def passings(case: Case) -> Iterator[tuple[str, int]]:
    """Every stop that an undisturbed merge passes, each as often as it is passed."""
    with record_stops() as stops:
        case.merge()
    case.check_finished("undisturbed")
    return ((stop, stops[: at + 1].count(stop)) for at, stop in enumerate(stops))


@pytest.fixture
def cases(registry: Registry, tmp_path: Path) -> Iterator[Case]:
    return (Case(registry, tmp_path / f"out-{number}") for number in range(1_000))


@pytest.mark.long
def test_a_master_that_stops_anywhere_is_replaced(cases: Iterator[Case]) -> None:
    for stop, passing in passings(next(cases)):
        case, when = next(cases), f"stopped at {stop}, passing {passing}"
        with at_failpoint(stop, die, occurrence=passing), pytest.raises(Died):
            case.merge()
        case.check(when)
        case.merge()
        case.check_finished(when)
        case.check_recovery(when)


@pytest.mark.long
def test_a_master_that_stalls_anywhere_while_another_does_it_all_changes_nothing(cases: Iterator[Case]) -> None:
    for stop, passing in passings(next(cases)):
        case, when = next(cases), f"stalled at {stop}, passing {passing}"

        def other_master(_stop: str, case: Case = case, when: str = when) -> None:
            case.check(f"{when}, before the other master")
            case.merge()
            case.check_finished(f"{when}, after the other master")

        with at_failpoint(stop, other_master, occurrence=passing):
            case.merge()
        case.check_recovery(when)


def test_two_masters_that_stop_one_after_the_other_are_replaced(cases: Iterator[Case]) -> None:
    for stop, passing in list(passings(next(cases)))[::3]:
        case, when = next(cases), f"two stopped at {stop}, passing {passing}"
        for _master in range(2):
            try:
                with at_failpoint(stop, die, occurrence=passing):
                    case.merge()
            except Died:
                case.check(when)
        case.merge()
        case.check_recovery(when)


@pytest.mark.parametrize("effect", ["files.merge_decide", "files.merge_finish"])
@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_reply_of_the_registry_is_settled(cases: Iterator[Case], effect: str, applied: bool) -> None:
    case = next(cases)

    def lose(_stop: str) -> None:
        raise OutcomeUnknown("the connection broke")

    with at_failpoint(f"{effect}:{'after' if applied else 'before'}", lose):
        case.merge()
    case.check_recovery("a reply was lost")


def test_consumers_that_take_final_files_away_at_once_disturb_nothing(cases: Iterator[Case]) -> None:
    case, taken = next(cases), []

    def take(_stop: str) -> None:
        for path in sorted(case.path.glob("part-*")):
            taken.extend(path.read_text().splitlines())
            path.unlink()

    for number in range(1, 20):
        try:
            with at_failpoint("files.merge_place:after", lambda stop: (take(stop), die(stop)), occurrence=1):
                case.merge()
        except Died:
            assert case.seen_by_us() == WANTED[len(taken) :], number
            continue
        break
    assert taken == WANTED


KILLED_AT = [
    "files.merge_write:after",
    "files.merge_decide:after",
    "files.merge_place:after",
    "files.merge_remove:after",
    "files.merge_finish:after",
]


def merge_in_a_process(hosts: str, path: str, stop: str) -> None:
    """A master that is killed where it stops."""
    with connect(hosts) as registry, at_failpoint(stop, kill_this_process):
        open_sink(registry, Path(path)).maintain(registry, idle=True)


@pytest.mark.parametrize("stop", KILLED_AT)
def test_a_killed_master_is_replaced(cases: Iterator[Case], registry_hosts: str, stop: str) -> None:
    case = next(cases)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=merge_in_a_process, args=(registry_hosts, str(case.path), stop))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    case.check(f"killed at {stop}")
    case.merge()
    case.check_recovery(f"killed at {stop}")


def test_a_stream_that_cannot_be_merged_keeps_no_other_one_from_it(registry: Registry, tmp_path: Path) -> None:
    """And it is said of which one it is, until somebody has mended it."""
    sink = open_sink(registry, tmp_path)
    streams = sink.streams(3)
    sink.create(streams)
    for stream in streams:
        writer = sink.open_writer(stream, Attempt("owner", 1, "/commit-log"))
        writer.recover(None)
        writer.write(pa.record_batch({"payload": [stream.name]}))
        committed = writer.prepare_commit()
        assert committed is not None
        writer.complete_commit(committed)
        writer.close()
    for name in ("0", "1"):  # where their final files are made
        (tmp_path / "_scribengin" / "merging" / name).rmdir()
    for _ in range(2):
        with pytest.raises(DataflowError, match=r"merging/0/.* is gone"):
            sink.maintain(registry, idle=True)
        assert [path.name[:10] for path in sorted(tmp_path.glob("part-*"))] == ["part-00002"]
    sink.create(streams)
    sink.maintain(registry, idle=True)
    assert [path.name[:10] for path in sorted(tmp_path.glob("part-*"))] == ["part-00000", "part-00001", "part-00002"]
