"""Exactly once, with state: an owner is stopped before and after every effect of its rounds, of its take-over and of
its query. What comes out, and what the query has counted, must be as if nothing had happened.

Logs, Kafka and registry are in memory, checkpoints on disk, or in memory as on HDFS; the query is a small one
(counting_query.py). What it reads and writes are logs, or topics.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.round.stateful import StatefulRunner
from scribengin.errors import CheckpointMismatch, DataflowError, RecordMisplaced, TooManyBadRecords
from scribengin.log import LogNamespace
from scribengin.testing.failpoints import record_stops
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.worker.failures import Remedy, remedy_for
from scribengin_registry.contract import Registry
from tests.crash.counting_query import CountingQuery, CountingTransform
from tests.crash.passings import Died, Passing, at, die, first_and_last, lose_the_reply, numbered, stalled, where_last
from tests.integration.owners import owners_with_state

RECORDS = ("abacab", "bcd")
"""By source stream: a key a record."""
ROUND_RECORDS = 2
QUIET = 9
"""The number of a log without records."""


class Logs:
    """Where records come from and go to: logs."""

    by_clock = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._disk = MemoryDisk("")  # which is there for as long as somebody holds it
        LogNamespace.bind("/logs", self._disk.name, registry=registry, store=MEMORY_STORE)
        self.described: dict[str, Any] = {
            "sources": {"src": {"kind": "log", "logs": "in/*"}},
            "sinks": {"out": {"kind": "log", "log": "out"}},
        }

    def fill(self, number: int, keys: str) -> None:
        """Make the source's stream of that number, of one record a key."""
        with LogNamespace.open("/logs", registry=self._registry) as namespace:
            namespace.create(f"in/{number}")
            if not keys:
                return
            with namespace.open_writer(f"in/{number}") as writer:
                payloads = pa.array([key.encode() for key in keys], pa.binary())
                writer.write_bulk(pa.record_batch([payloads], names=["payload"])).result(120)

    def delivered(self, resources: OpenedDataflow) -> list[str]:
        streams = resources.sink_streams(resources.config.tasks or 1)["out"]
        batches = [batch for stream in streams for batch in resources.sinks["out"].committed(stream)]
        return [payload.decode() for batch in batches for payload in batch.column("payload").to_pylist()]


class Divided(Logs):
    """Logs among which keys are divided, and a task for each: a record is a key."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        source = {"kind": "log", "logs": "in/*", "streams": 2, "partition_by": ["payload"]}
        self.described = {**self.described, "sources": {"src": source}, "tasks": 2}


class Routed(Logs):
    """Logs, and one more for the keys that are none."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        sinks = {**self.described["sinks"], "bad": {"kind": "log", "log": "bad"}}
        errors = {"action": "route", "sink": "bad"}
        self.described = {**self.described, "sinks": sinks, "errors": errors, "sql": {"out": "SELECT payload FROM src"}}

    def delivered(self, resources: OpenedDataflow) -> list[str]:
        [stream] = resources.sink_streams(1)["bad"]
        payloads = [
            p for batch in resources.sinks["bad"].committed(stream) for p in batch.column("payload").to_pylist()
        ]
        bad = [json.loads(payload) for payload in payloads]
        return [*super().delivered(resources), *(f"{one['payload']} is bad: {one['reason']}" for one in bad)]


class Late(Logs):
    """Logs, and one more for keys that are late."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        sinks = {**self.described["sinks"], "late": {"kind": "log", "log": "late"}}
        state = {"watermarks": {"src": {"column": "at"}}, "late": {"sink": "late"}}
        self.described = {**self.described, "sinks": sinks, "state": state}

    def delivered(self, resources: OpenedDataflow) -> list[str]:
        [stream] = resources.sink_streams(1)["late"]
        batches = resources.sinks["late"].committed(stream)
        return [
            *super().delivered(resources),
            *(payload.decode() for batch in batches for payload in batch.column("payload").to_pylist()),
        ]


class LateOrBad(Late):
    """And one more for keys that are none."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        sinks = {**self.described["sinks"], "bad": {"kind": "log", "log": "bad"}}
        errors = {"action": "route", "sink": "bad"}
        self.described = {**self.described, "sinks": sinks, "errors": errors, "sql": {"out": "SELECT payload FROM src"}}


class Silent(Logs):
    """Logs, and a source that has no records and is silent at once."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.fill(QUIET, "")
        watermarks = {"src": {"column": "at"}, "quiet": {"column": "at", "idle_after_s": 1e-9}}
        self.described = {
            **self.described,
            "sources": {"src": {"kind": "log", "logs": "in/[01]"}, "quiet": {"kind": "log", "logs": f"in/{QUIET}"}},
            "state": {"watermarks": watermarks},
        }


class ByClock(Logs):
    """Logs, and a query that does not wait for an offer to run the batch that its state has due."""

    by_clock = True


class Files(Logs):
    """Files of lines, in one stream. Which one is next depends on what is there."""

    def __init__(self, registry: Registry, directory: Path) -> None:
        super().__init__(registry)
        self._directory = directory
        directory.mkdir(parents=True)
        source = {"kind": "hdfs", "path": str(directory), "settle_s": 0}
        self.described = {**self.described, "sources": {"src": source}}

    def fill(self, number: int, keys: str) -> None:
        with (self._directory / f"{number}.log").open("a") as file:
            file.writelines(f"{key}\n" for key in keys)

    def change(self) -> None:
        """One file grows, one is rotated, another one has its name, and one comes that sorts before all."""
        self.fill(1, "ea")
        (self._directory / "0.log").rename(self._directory / "0.log.1")
        self.fill(0, "gb")
        (self._directory / "+.log").write_text("h\na\n")


MORE = "eagbha"
"""What files have more then."""


class Topics:
    """The same with Kafka: what a round has read, counted and written is decided by a transaction of it."""

    by_clock = False

    def __init__(self, cluster: MemoryKafka) -> None:
        self._cluster = cluster
        where = {"kind": "kafka", "bootstrap": cluster.bootstrap}
        self.described: dict[str, Any] = {
            "sources": {"src": {**where, "pattern": "in-.*", "mirror_offsets": False}},
            "sinks": {"out": {**where, "topic": "out", "partition_by": "stream", "create": {"partitions": 1}}},
        }

    def fill(self, number: int, keys: str) -> None:
        self._cluster.create(f"in-{number}")
        self._cluster.send(f"in-{number}", [key.encode() for key in keys])

    def delivered(self, _resources: OpenedDataflow) -> list[str]:
        self._cluster.write_marks()
        return [(value or b"").decode() for value in self._cluster.visible("out", 0)]


class Case:
    """One registry, records and a directory of checkpoints, and the owners that run there, one after the other."""

    def __init__(
        self,
        directory: Path,
        places: Callable[[Registry], Logs | Topics],
        records: Sequence[str] = RECORDS,
        hdfs: MemoryFiles | None = None,
    ) -> None:
        """Checkpoints are on `hdfs`, if that is given."""
        self.hdfs = hdfs
        root = directory / "state" if hdfs is None else f"hdfs:/{directory}"
        self.registry = MemoryEnsemble().connect(dispatch=lambda tell: tell())
        self.ways_back: list[int | None] = []
        """What owners have told their query each time that it had to divide state."""
        self.places = places(self.registry)
        for number, keys in enumerate(records):
            self.places.fill(number, keys)
        self.config = DataflowConfig.parse(
            {
                "name": "counting",
                "sql": "SELECT payload FROM src",
                **self.places.described,
                "round": {"records_max": ROUND_RECORDS},
                "state": {"checkpoints": str(root), **self.places.described.get("state", {})},
            },
            source="the test",
        )

    def own_to_the_end(self, generation: int, ahead_ms: int = 0) -> None:
        """Take each task over, run rounds until there are none left, and give it back."""
        assert self.config.state is not None
        parts, by_clock = self.config.state.partitions or 1, self.places.by_clock
        transform = CountingTransform(self.hdfs, by_clock=by_clock, partitions=parts, ahead_ms=ahead_ms)
        transform.ways_back = self.ways_back
        with self.open() as resources:
            for runner in owners_with_state(self.registry, resources, transform, generation):
                with closing(runner):
                    runner.take_over()
                    idle = 0
                    while idle < 2:  # a round that was undone is None, too
                        idle = 0 if runner.run_round() is not None else idle + 1
                    runner.release()

    @contextmanager
    def idle_owner(self) -> Iterator[StatefulRunner]:
        """One of the first generation, of a single task, that has nothing left to do."""
        with self.open() as resources:
            [runner] = owners_with_state(self.registry, resources, CountingTransform(), 1)
            with closing(runner):
                runner.take_over()
                while runner.run_round() is not None:
                    pass
                yield runner

    def open(self) -> OpenedDataflow:
        return OpenedDataflow(self.config, Environment(registry=self.registry, dataflow="counting", nodes=STREAM_NODES))

    def delivered(self) -> list[str]:
        with self.open() as resources:
            return self.places.delivered(resources)

    def want(self, partitions: int | None) -> None:
        """Have the state in so many from the next owner on; None: in as many as it is."""
        assert self.config.state is not None
        state = self.config.state.model_copy(update={"partitions": partitions})
        self.config = self.config.model_copy(update={"state": state})


PLACES = ("logs", "topics", "hdfs")
ON_LOGS = pytest.mark.parametrize(
    "case",
    ["logs", *(pytest.param(place, marks=pytest.mark.full) for place in PLACES if place != "logs")],
    indirect=True,
)
"""In every run between logs, with checkpoints on this machine: elsewhere owners die at every effect, too, but once."""


@pytest.fixture(params=PLACES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Case]]:
    """Makes a new one: from logs to logs, from topics to topics, or from logs to logs with its checkpoints on an HDFS
    of its own. By then nobody uses the one before."""
    numbers = itertools.count()
    with ExitStack() as clusters, ExitStack() as hdfs_of_the_last:

        def places(registry: Registry) -> Logs | Topics:
            if request.param != "topics":
                return Logs(registry)
            bootstrap = f"in-memory-{uuid.uuid4().hex}:1"  # a consumer of another cluster's may be kept for its name
            return Topics(clusters.enter_context(MemoryKafka(bootstrap).serving()))

        def make() -> Case:
            directory = tmp_path / str(next(numbers))
            directory.mkdir()
            if request.param != "hdfs":
                return Case(directory, places)
            hdfs_of_the_last.close()
            hdfs = MemoryFiles()
            hdfs_of_the_last.enter_context(hdfs.opened_by("hdfs"))
            hdfs.make_directories(str(directory))
            return Case(directory, places, hdfs=hdfs)

        yield make


@pytest.fixture
def expected(case: Callable[[], Case]) -> list[str]:
    """What comes out when nothing happens."""
    undisturbed = case()
    undisturbed.own_to_the_end(1)
    keys = Counter("".join(RECORDS))
    counted = [f"{key} {number}" for key, many in keys.items() for number in range(1, many + 1)]
    assert sorted(undisturbed.delivered()) == sorted([*counted, f"closed {keys.total()}"])
    return undisturbed.delivered()


@pytest.fixture
def stops(case: Callable[[], Case]) -> list[Passing]:
    """All that a first owner passes."""
    return passed_by(case())


Thin = Callable[[list[Passing]], list[Passing]]


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.full)], ids=["first and last", "each"])
def thin(request: pytest.FixtureRequest) -> Thin:
    """Of stops that are passed in round after round: where they are passed first and last. In full runs, each time."""
    return first_and_last if request.param else list


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.full)], ids=["last", "each"])
def last(request: pytest.FixtureRequest) -> Thin:
    """Where they are passed last: for what differs from the plain case in the records that come, and not in the steps.
    In full runs, each time."""
    return where_last if request.param else list


def passed_by(first: Case) -> list[Passing]:
    """What an owner passes who takes over first, and ends."""
    with record_stops() as passed:
        first.own_to_the_end(1)
    assert {"query.write:before", "round.commit:after", "ownership.name_batch:before"} <= set(passed)
    return numbered(passed)


def test_a_killed_owner_is_taken_over_from_wherever_it_stopped(
    case: Callable[[], Case], stops: list[Passing], expected: list[str], thin: Thin
) -> None:
    expect_taken_over(case, thin(stops), expected)


def test_a_task_that_is_given_back_is_taken_over_with_its_state_and_nothing_runs_again(
    case: Callable[[], Case], expected: list[str]
) -> None:
    """As when a worker is scaled away."""
    place = case()
    place.own_to_the_end(1)
    with record_stops() as passed:
        place.own_to_the_end(2)
    assert "files.rename:after" in passed, "its checkpoint was moved"
    assert not {"query.write:before", "round.commit:before"} & set(passed)
    place.places.fill(2, "a")
    place.own_to_the_end(3)
    assert place.delivered() == [*expected, "a 4", "closed 10"]


def test_a_task_that_has_nothing_to_do_asks_nothing_of_its_query_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Case(tmp_path, Logs).idle_owner() as runner:
        monkeypatch.delattr(CountingQuery, "offer")
        with record_stops() as passed:
            assert [runner.run_round() for _ in range(3)] == [None] * 3
        assert passed == []


def expect_taken_over(case: Callable[[], Case], stops: Sequence[Passing], expected: Sequence[str]) -> None:
    """An owner dies at each of the stops, and the next one makes of it what comes out when nothing happens."""
    for stop in stops:
        place = case()
        with at(stop, die), pytest.raises(Died):
            place.own_to_the_end(1)
        place.own_to_the_end(2)
        assert place.delivered() == expected, stop


ON_TIME = ["a 1", "b 1", "b 2", "c 1", "d 1", "closed 5"]
"""What comes out of the records whose batch was planned before the watermark had passed them."""
LATE = ["a not after c", "c not after c", "a not after d", "b not after d"]


def test_late_records_are_in_their_sink_once_whoever_dies(tmp_path: Path, last: Thin) -> None:
    numbers = itertools.count()

    def case() -> Case:
        return Case(tmp_path / str(next(numbers)), Late, ("baca",))

    first = case()
    stops = passed_by(first)
    expected = ["b 1", "a 1", "c 1", "closed 3", "a not after b"]
    assert first.delivered() == expected
    nothing_is_late_before = stops.index(("round.commit:after", 1))
    expect_taken_over(case, last(stops[nothing_is_late_before:]), expected)


def test_the_beats_of_a_silent_source_are_the_same_whoever_dies(tmp_path: Path, last: Thin) -> None:
    numbers = itertools.count()

    def case() -> Case:
        directory = tmp_path / str(next(numbers))
        directory.mkdir()
        return Case(directory, Silent)

    undisturbed = case()
    undisturbed.own_to_the_end(1)
    expected = undisturbed.delivered()
    records = len("".join(RECORDS))
    assert expected[-1] == f"closed {records}, silent up to {records}"
    expect_taken_over(case, last(passed_by(case())), expected)


def test_a_batch_that_nobody_has_offered_is_committed_once_whoever_dies(tmp_path: Path, last: Thin) -> None:
    numbers = itertools.count()

    def case() -> Case:
        return Case(tmp_path / str(next(numbers)), ByClock, ("aba",))

    first = case()
    stops = passed_by(first)
    expected = first.delivered()
    assert expected == ["a 1", "b 1", "closed 2", "a 2", "closed 3"], "the clock does not wait for all that there is"
    expect_taken_over(case, last(stops), expected)


@ON_LOGS
def test_an_owner_that_is_killed_while_it_takes_over_from_a_killed_one_is_taken_over(
    case: Callable[[], Case], expected: list[str]
) -> None:
    """The first dies between its commit and its query's own, or before the commit; the second anywhere."""
    for first in (("round.commit:after", 2), ("round.commit:before", 2)):
        place = case()
        with at(first, die), pytest.raises(Died):
            place.own_to_the_end(1)
        with record_stops() as passed:
            place.own_to_the_end(2)
        assert {"files.rename:after", "checkpoint.take_schemas:after"} <= set(passed)
        for name in dict.fromkeys(passed):
            place = case()
            with at(first, die), pytest.raises(Died):
                place.own_to_the_end(1)
            with at((name, 1), die), pytest.raises(Died):
                place.own_to_the_end(2)
            place.own_to_the_end(3)
            assert place.delivered() == expected, (first, name)


def test_a_commit_whose_reply_is_lost_happened_once_or_not_at_all(
    case: Callable[[], Case], stops: list[Passing], expected: list[str]
) -> None:
    for stop in stops:
        if stop[0].startswith("round.commit"):
            place = case()
            with at(stop, lose_the_reply):
                place.own_to_the_end(1)
            assert place.delivered() == expected, stop


@pytest.mark.parametrize("case", ["logs", "topics", pytest.param("hdfs", marks=pytest.mark.full)], indirect=True)
def test_an_owner_that_stalls_anywhere_changes_nothing_once_another_one_has_taken_over(
    case: Callable[[], Case], stops: list[Passing], expected: list[str], thin: Thin
) -> None:
    ends: dict[Passing, Remedy | None] = {}
    for stop in thin(stops):
        place = case()
        ends[stop] = stalled(stop, place.own_to_the_end, 1)
        place.own_to_the_end(3)
        assert place.delivered() == expected, stop
    # One that reported a failure would have the task fail in the hands of the next owner.
    assert set(ends.values()) <= {None, Remedy.DROP, Remedy.RETRY, Remedy.PATIENT}, ends


def test_a_bad_record_takes_its_route_once_wherever_an_owner_stops(tmp_path: Path, last: Thin) -> None:
    made = itertools.count()

    def case() -> Case:
        return Case(tmp_path / str(next(made)), Routed, ("a!!b",))

    first = case()
    stops = passed_by(first)
    expected = ["a 1", "b 1", "closed 2", *["! is bad: no key"] * 2]
    assert first.delivered() == expected
    expect_taken_over(case, last(stops), expected)


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.full)])
def test_files_are_read_again_as_they_were_whatever_has_come_when_an_owner_has_died(
    tmp_path: Path, again: bool, thin: Thin
) -> None:
    """Before the next owner, or before the one after that, who died where the first one had."""
    made = itertools.count()

    def case() -> Case:
        directory = tmp_path / str(next(made))
        return Case(directory, lambda registry: Files(registry, directory / "in"))

    for stop in thin(passed_by(case())):
        place = case()
        assert isinstance(place.places, Files)
        with at(stop, die), pytest.raises(Died):
            place.own_to_the_end(1)
        place.places.change()
        if again:
            with at(("checkpoint.take_schemas:after", 1), die), suppress(Died):
                place.own_to_the_end(2)
        place.own_to_the_end(3)
        *lines, closed = place.delivered()
        keys = Counter("".join((*RECORDS, MORE)))
        counted = [f"{key} {number}" for key, many in keys.items() for number in range(1, many + 1)]
        assert sorted(line for line in lines if "closed" not in line) == sorted(counted), stop
        assert closed == f"closed {keys.total()}", stop


def test_a_file_that_is_gone_when_a_batch_reads_it_again_is_named(tmp_path: Path) -> None:
    place = Case(tmp_path, lambda registry: Files(registry, tmp_path / "in"))
    with at(("round.commit:after", 3), die), pytest.raises(Died):
        place.own_to_the_end(1)
    (tmp_path / "in/0.log").rename(tmp_path / "kept")
    with pytest.raises(DataflowError, match=r"in/0[.]log is gone, .*: put it back to go on[.]") as found:
        place.own_to_the_end(2)
    assert remedy_for(found.value).remedy is Remedy.RETRY
    (tmp_path / "kept").rename(tmp_path / "in/0.log")
    place.own_to_the_end(3)
    assert len(place.delivered()) == len("".join(RECORDS)) + 1


def test_nothing_is_committed_once_the_checkpoint_is_gone(tmp_path: Path) -> None:
    """The query makes its directory anew, and would go on until somebody starts it again."""

    def lose() -> None:
        [first] = tmp_path.glob("state/**/offsets/0")
        first.unlink()

    place = Case(tmp_path, Logs)
    last_write_of_the_second_batch = ("query.write:after", 8)
    with at(last_write_of_the_second_batch, lose), pytest.raises(CheckpointMismatch, match="offsets/0 is not there"):
        place.own_to_the_end(1)
    assert len(place.delivered()) == ROUND_RECORDS * len(RECORDS)


@pytest.mark.long
def test_each_of_two_tasks_counts_its_keys_once_wherever_an_owner_stops(tmp_path: Path, thin: Thin) -> None:
    made = itertools.count()

    def case() -> Case:
        return Case(tmp_path / str(next(made)), Divided, ("abacb", "dfdf"))

    first = case()
    stops = passed_by(first)
    expected = ["a 1", "b 1", "a 2", "c 1", "b 2", "closed 5", "d 1", "f 1", "d 2", "f 2", "closed 4"]
    assert first.delivered() == expected
    expect_taken_over(case, thin(stops), expected)


def test_a_key_in_a_wrong_stream_stops_its_task_before_it_is_counted(tmp_path: Path) -> None:
    place = Case(tmp_path, Divided, ("ad", "f"))
    said = "^log in/0, DLSN 1/0/1, of src/in/0, has the key 'd', which belongs to stream 1 of sources[.]src and"
    for generation in (1, 2):
        with pytest.raises(RecordMisplaced, match=said) as found:
            place.own_to_the_end(generation)
        assert remedy_for(found.value).remedy is Remedy.FAIL
    assert place.delivered() == []


def test_more_bad_records_than_the_route_takes_stop_the_task_and_nothing_is_committed(tmp_path: Path) -> None:
    place = Case(tmp_path, Routed, ("!!",))
    place.config = place.config.model_copy(update={"errors": place.config.errors.model_copy(update={"records_max": 1})})
    with pytest.raises(TooManyBadRecords, match=r"more than errors.records_max = 1 of the 2 records .*: no key"):
        place.own_to_the_end(1)
    assert place.delivered() == []


def test_a_log_that_comes_later_is_read_from_its_start(case: Callable[[], Case], expected: list[str]) -> None:
    for stop in (None, ("round.commit:after", 1), ("query.write:after", 1)):
        place = case()
        place.own_to_the_end(1)
        place.places.fill(2, "az")
        if stop is not None:
            with at(stop, die), pytest.raises(Died):
                place.own_to_the_end(2)
        place.own_to_the_end(3)
        assert place.delivered() == [*expected, "a 4", "z 1", "closed 11"], stop
