"""Late records are in their sink once, whoever dies: where that is a topic, where several tasks share the keys, and
once state was divided anew. On the query and the places of test_stateful_crashes.py.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from scribengin.dataflow.opened import OpenedDataflow
from scribengin.testing.memory.kafka import MemoryKafka
from scribengin_registry.contract import Registry
from tests.crash.counting_query import CountingTransform
from tests.crash.passings import Died, at, die
from tests.crash.test_divided_state_crashes import begun, divided, stops_of_dividing
from tests.crash.test_stateful_crashes import (
    LATE,
    ON_TIME,
    RECORDS,
    Case,
    Divided,
    Late,
    LateOrBad,
    Logs,
    Thin,
    Topics,
    expect_taken_over,
    last,
    passed_by,
    thin,
)
from tests.integration.owners import owners_with_state

__all__ = ["last", "thin"]  # fixtures, used by name

STATE = {"watermarks": {"src": {"column": "at"}}, "late": {"sink": "late"}}


def topic_of_late_records(cluster: MemoryKafka) -> dict[str, Any]:
    where = {"kind": "kafka", "bootstrap": cluster.bootstrap}
    return {**where, "topic": "late", "partition_by": "stream", "create": {"partitions": 1}}


def in_topic(cluster: MemoryKafka) -> list[str]:
    cluster.write_marks()
    return [(value or b"").decode() for value in cluster.visible("late", 0)]


class LateTopics(Topics):
    """From topics to topics, one of which takes what is late."""

    def __init__(self, cluster: MemoryKafka) -> None:
        super().__init__(cluster)
        self._late_in = cluster
        sources = {"src": {**self.described["sources"]["src"], "tombstones": "drop"}}
        sinks = {**self.described["sinks"], "late": topic_of_late_records(cluster)}
        self.described = {"sources": sources, "sinks": sinks, "state": STATE}

    def delivered(self, resources: OpenedDataflow) -> list[str]:
        return [*super().delivered(resources), *in_topic(self._late_in)]


class LogsLateTopic(Logs):
    """From logs to a log, and what is late to a topic."""

    def __init__(self, registry: Registry, cluster: MemoryKafka) -> None:
        super().__init__(registry)
        self._late_in = cluster
        sinks = {**self.described["sinks"], "late": topic_of_late_records(cluster)}
        self.described = {**self.described, "sinks": sinks, "state": STATE}

    def delivered(self, resources: OpenedDataflow) -> list[str]:
        return [*super().delivered(resources), *in_topic(self._late_in)]


class LateDivided(Divided):
    """Two tasks, each with a watermark, and a log for late records, of its own."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        sinks = {**self.described["sinks"], "late": {"kind": "log", "log": "late"}}
        self.described = {**self.described, "sinks": sinks, "state": STATE}

    def delivered(self, resources: OpenedDataflow) -> list[str]:
        late = [
            [p.decode() for b in resources.sinks["late"].committed(stream) for p in b.column("payload").to_pylist()]
            for stream in resources.sink_streams(2)["late"]
        ]
        return [*super().delivered(resources), *itertools.chain.from_iterable(late)]


@pytest.fixture
def kafka() -> Iterator[Callable[[], MemoryKafka]]:
    """A cluster in memory, another one each time."""
    with ExitStack() as clusters:

        def make() -> MemoryKafka:
            return clusters.enter_context(MemoryKafka(f"in-memory-{uuid.uuid4().hex}:1").serving())

        yield make


def expect_once(case: Callable[[], Case], expected: list[str], thin: Thin = list) -> None:
    """Whoever dies, once something is late."""
    first = case()
    stops = passed_by(first)
    assert first.delivered() == expected
    expect_taken_over(case, thin(stops[stops.index(("round.commit:after", 1)) :]), expected)


@pytest.mark.parametrize("written", ["topics", "a log"])
def test_late_records_are_in_their_topic_once_whoever_dies(
    tmp_path: Path, kafka: Callable[[], MemoryKafka], written: str
) -> None:
    numbers = itertools.count()

    def case() -> Case:
        cluster = kafka()

        def places(registry: Registry) -> Logs | Topics:
            return LateTopics(cluster) if written == "topics" else LogsLateTopic(registry, cluster)

        return Case(tmp_path / str(next(numbers)), places, ("baca",))

    expect_once(case, ["b 1", "a 1", "c 1", "closed 3", "a not after b"])


@pytest.mark.full
def test_each_of_two_tasks_has_its_late_records_once_whoever_dies(tmp_path: Path, thin: Thin) -> None:
    numbers = itertools.count()

    def case() -> Case:
        return Case(tmp_path / str(next(numbers)), LateDivided, ("abac", "dfdf"))

    on_time = ["a 1", "b 1", "c 1", "closed 3", "d 1", "f 1", "closed 2"]
    expect_once(case, [*on_time, "a not after b", "d not after f", "f not after f"], thin)


def test_late_records_are_the_same_once_state_was_divided_anew_whoever_dies(tmp_path: Path, last: Thin) -> None:
    numbers = itertools.count()

    def case() -> Case:
        return Case(tmp_path / str(next(numbers)), Late, RECORDS)

    for stop in last(stops_of_dividing(case())):
        place = begun(case())
        with at(stop, die), pytest.raises(Died):
            place.own_to_the_end(2)
        place.own_to_the_end(3)
        assert place.delivered() == [*ON_TIME, *LATE], stop
        assert divided(place) == [2, 5], stop


def test_a_batch_that_runs_again_takes_the_same_records_for_late_wherever_the_watermark_is_by_then(
    tmp_path: Path,
) -> None:
    """The second batch is planned at c; whoever runs it again would say of its d, too, that it is late."""
    for number, stop in enumerate(("log.stage_sync:before", "round.commit:before", "round.commit:after")):
        place = Case(tmp_path / str(number), Late)
        with at((stop, 2), die), pytest.raises(Died):
            place.own_to_the_end(1)
        place.own_to_the_end(2, ahead_ms=9)
        assert place.delivered() == [*ON_TIME, *LATE[:2], "a not after m", "b not after m"], stop


def test_a_batch_that_runs_again_without_bad_records_takes_the_same_records_for_late(tmp_path: Path) -> None:
    for number, stop in enumerate((None, ("round.commit:before", 2), ("round.commit:after", 2))):
        place = Case(tmp_path / str(number), LateOrBad, ("ba!a",))
        if stop is not None:
            with at(stop, die), pytest.raises(Died):
                place.own_to_the_end(1)
        place.own_to_the_end(2)
        assert place.delivered() == ["b 1", "a 1", "closed 2", "a not after b"], stop


def test_late_records_are_counted_once_they_are_committed(tmp_path: Path) -> None:
    place = Case(tmp_path, Late)
    with place.open() as resources:
        [runner] = owners_with_state(place.registry, resources, CountingTransform(), 1)
        with closing(runner):
            runner.take_over()
            counted = []
            while (outcome := runner.run_round()) is not None:
                kept = runner.state()
                assert kept is not None
                counted.append((outcome.written.get("late", 0), kept.late_routed))
            assert counted == [(0, 0), (2, 2), (2, 4), (0, 4)]
            assert outcome is None
