"""Every operator that keeps state against one batch job over the same records: with random lateness, order, cuts into
batches, and owners that leave or die. What has come out once the watermark is past everything is equal.

All of them are outputs of one dataflow, so that a history costs one run. Where late records have no sink, those of a
history come as late as the watermark allows, and some far too late: these change nothing. Where they have one, records
are as late as they like: each is in the results or there, and it is known which.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from pyspark.sql import SparkSession

from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.memory.registry import MemoryEnsemble
from tests.integration.spark.operator_cases import ALIKE, OPERATORS, module_of, unbounded
from tests.integration.spark.state_histories import DELAYS_S, History, histories, late_in
from tests.integration.spark_samples import records
from tests.integration.state_batches import each_in_one_batch
from tests.integration.state_flow import FAR, Died, Event, StateFlow, die, drain, payloads_of
from tests.temporary import temporary_directory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]  # a history that fails is made smaller, run by run

Rows = Mapping[str, Sequence[str]]
"""By output, as JSON, in order."""
IN_TIME = histories(DELAYS_S, too_late=True)
LATE = histories(dict.fromkeys(DELAYS_S, 60))
OF_EACH_KIND = ["tumbling", "full_join", "duplicates_within_the_watermark", "windows_of_windows"]


@contextmanager
def flow_of(names: Sequence[str], spark: SparkSession, *, late_sink: bool) -> Iterator[StateFlow]:
    """A dataflow whose outputs are these operators; the sink `late` takes late records, or nobody does."""
    with temporary_directory() as place, MemoryEnsemble().connect() as registry:
        directory = Path(place)
        (directory / "operator_cases.py").write_text(module_of(names))
        sinks = [*names, *(["late"] if late_sink else [])]
        yield StateFlow(
            registry,
            spark,
            directory,
            delay_s=DELAYS_S,
            reads=list(DELAYS_S),
            round={"records_max": 100},
            sinks={name: {"kind": "log", "log": name, "format": "json"} for name in sinks},
            state={"partitions": 1, "unbounded": unbounded(names), **({"late": {"sink": "late"}} if late_sink else {})},
            transformation="operator_cases:transform",
        )


def play(flow: StateFlow, history: History) -> None:
    """Have owners run what comes, batch by batch. At the end the watermark is past all."""
    with ExitStack() as owned:
        owner = owned.enter_context(flow.owner())
        owner.take_over()
        for batch in history.batches:
            for log in dict.fromkeys(record.log for record in batch.records):
                flow.append(log, [record.event for record in batch.records if record.log == log])
            if batch.dies:
                with at_failpoint(batch.ends, die), pytest.raises(Died):
                    drain(owner)
            else:
                drain(owner)
            if batch.leaves:
                owner.release()
            if batch.leaves or batch.dies:
                owned.close()
                owner = owned.enter_context(flow.owner())
                owner.take_over()
        for log in ("in/0", "other"):
            flow.append(log, [(FAR, "z", 0)])
        drain(owner)
        owner.release()


def delivered(flow: StateFlow) -> Rows:
    """But what is late."""
    return {name: in_order(flow.delivered(name)) for name in flow.config.sinks if name in OPERATORS}


def in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Without those of the last records, whose watermark nothing has passed."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows if "z" not in (row.get("who"), row.get("met")))


def at_once(flow: StateFlow, events: Mapping[str, Sequence[Event]]) -> Rows:
    """What one batch job makes of these records."""
    with flow.open() as resources:
        spec = replace(resources.transformation_spec(), function="operator_cases:at_once", state=None)
    tables = {source: records(payloads_of(of)) for source, of in events.items()}
    found = each_in_one_batch(spec, flow.spark, tables)
    return {name: in_order(json.loads(row[0]) for row in rows) for name, rows in found.items()}


def refuse_differences(found: Rows, expected: Rows) -> None:
    """Of the first output that has one."""
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert found[name] == rows, name


def eventful(history: History) -> bool:
    """Whether it is worth its run: of two batches, the owner of one ends, something is late, and both have what can
    meet. Each further owner, and each further batch, would cost as much as those."""
    ends = [batch.ends for batch in history.batches]
    late = any(record.late_s != 0 for batch in history.batches for record in batch.records)
    meet = all(
        {one.source for one in batch.records if one.late_s is not None} == set(DELAYS_S) for batch in history.batches
    )
    return late and meet and len(ends) == 2 and ends.count("goes on") == 1


def dies(history: History) -> bool:
    return any(batch.dies for batch in history.batches)


def leaves(history: History) -> bool:
    return any(batch.leaves for batch in history.batches)


def second_of(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp())


def gives_out_what_one_batch_job_does(names: Sequence[str], spark: SparkSession, history: History) -> None:
    with flow_of(names, spark, late_sink=False) as flow:
        play(flow, history)
        refuse_differences(delivered(flow), at_once(flow, {source: history.events(source) for source in DELAYS_S}))


def routes_what_is_late(names: Sequence[str], spark: SparkSession, history: History) -> None:
    late = late_in(history)
    with flow_of(names, spark, late_sink=True) as flow:
        play(flow, history)
        told = [
            (one["late_source"], second_of(one["at"]), one["who"], second_of(one["late_watermark"]))
            for one in flow.delivered("late")
        ]
        assert sorted(told) == sorted((one.source, *one.event[:2], one.watermark_s) for one in late)
        in_time = {source: history.events(source) for source in DELAYS_S}
        for one in late:
            in_time[one.source].remove(one.event)
        refuse_differences(delivered(flow), at_once(flow, in_time))


@settings(max_examples=1, derandomize=True)
@given(IN_TIME.filter(lambda history: eventful(history) and dies(history)))
def test_it_gives_out_what_one_batch_job_does(spark: SparkSession, history: History) -> None:
    gives_out_what_one_batch_job_does([name for name in OPERATORS if name not in ALIKE], spark, history)


@settings(max_examples=1, derandomize=True)
@given(IN_TIME.filter(lambda history: eventful(history) and leaves(history)))
def test_so_does_what_is_much_like_another_operator(spark: SparkSession, history: History) -> None:
    gives_out_what_one_batch_job_does([name for name in OPERATORS if name in ALIKE], spark, history)


@pytest.mark.full
@settings(max_examples=1, derandomize=True)
@given(LATE.filter(lambda history: eventful(history) and dies(history) and late_in(history)))
def test_with_a_sink_for_late_records_each_is_in_the_results_or_there(spark: SparkSession, history: History) -> None:
    routes_what_is_late(OF_EACH_KIND, spark, history)


@pytest.mark.full
@settings(max_examples=6)
@given(IN_TIME)
def test_in_more_histories_it_gives_out_what_one_batch_job_does(spark: SparkSession, history: History) -> None:
    gives_out_what_one_batch_job_does(list(OPERATORS), spark, history)


@pytest.mark.full
@settings(max_examples=6)
@given(LATE)
def test_in_more_histories_each_record_is_in_the_results_or_late(spark: SparkSession, history: History) -> None:
    routes_what_is_late(list(OPERATORS), spark, history)
