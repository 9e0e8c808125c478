"""Every operator that keeps state against one batch job over the same records: with random lateness, order, cuts into
batches, and owners that leave or die. What has come out once the watermark is past everything is equal.

Records come as late as the watermark allows. With the last ones come some that are far too late: they change nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry
from tests.integration.processors import BUILT_IN, BY_FRAME, BY_RECORD, WINDOWS, transforming
from tests.integration.spark_samples import records
from tests.integration.state_batches import in_one_batch
from tests.integration.state_flow import FAR, Died, Event, StateFlow, die, drain, payloads_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DELAYS_S = {"src": 15, "other": 5}
"""By source: how late its records may be."""
RECORDS = 24
PARTS = 2
LEAVES = ("releases", "round.commit:before", "round.commit:after")
"""How an owner ends once it has run some parts of the records: at a failpoint it dies."""
Parts = list[list[Event]]


@dataclass(frozen=True)
class StateCase:
    """What one case runs."""

    does: str
    """A statement, or what a function over `src` returns."""
    bounded: bool = True
    """Whether records that come far too late are dropped."""
    unbounded: tuple[str, ...] = ()
    in_batch: str | None = None
    """What a batch job does instead, where Spark has the operator for streams alone."""
    repeats: bool = False
    """Whether records come again."""
    module: str = ""
    """What stands before the function."""

    def given(self, directory: Path) -> dict[str, Any]:
        """As a descriptor has it, which is in `directory`."""
        if self.does.startswith("SELECT"):
            return {"sql": self.does}
        (directory / "operator_case.py").write_text(transforming(self.does, self.module))
        return {"transformation": "operator_case:transform"}


def grouped(window: str, call: str) -> StateCase:
    """Counts and sums by a window of time, and who."""
    columns = f"{window}.start AS at, {window}.end AS upto, who, count(*) AS many, sum(n) AS total"
    return StateCase(f"SELECT {columns} FROM src GROUP BY {call}, who")


def joined(kind: str, columns: str = "l.at AS at, l.who AS who, l.n AS n, r.who AS met, r.n AS m") -> StateCase:
    return StateCase(
        f"SELECT {columns} FROM src l {kind} JOIN other r ON l.who = r.who "
        "AND r.at BETWEEN l.at AND l.at + INTERVAL 10 SECONDS"
    )


def counted(source: str) -> str:
    return f"SELECT window AS w, who, count(*) AS many FROM {source} GROUP BY window(at, '10 seconds'), who"


def processor(does: str) -> StateCase:
    return StateCase(does, unbounded=("processor",), in_batch=BUILT_IN, module=WINDOWS)


OPERATORS = {
    "tumbling": grouped("window", "window(at, '10 seconds')"),
    "sliding": grouped("window", "window(at, '10 seconds', '5 seconds')"),
    "session": grouped("session_window", "session_window(at, '4 seconds')"),
    "inner join": joined("INNER"),
    "left join": joined("LEFT"),
    "right join": joined("RIGHT"),
    "full join": joined("FULL"),
    "semi join": joined("LEFT SEMI", "l.at AS at, l.who AS who, l.n AS n"),
    "union": StateCase(
        "SELECT window.start AS at, who, count(*) AS many FROM "
        "(SELECT at, who FROM src UNION ALL SELECT at, who FROM other) GROUP BY window(at, '10 seconds'), who"
    ),
    "static join": StateCase(
        'inputs["src"].join(context.spark.createDataFrame([("a", "hall")], "who STRING, room STRING"), "who", "left")'
        '.select("at", "who", "n", "room")',
        bounded=False,
    ),
    "static join, grouped": StateCase(
        'inputs["src"].join(context.spark.createDataFrame([("a", "hall")], "who STRING, room STRING"), "who")'
        '.groupBy(__import__("pyspark").sql.functions.window("at", "10 seconds"), "room", "who").count()'
    ),
    "duplicates": StateCase('inputs["src"].select("at", "who", "n").dropDuplicates(["who", "at", "n"])', repeats=True),
    "duplicates for ever": StateCase(
        'inputs["src"].select("at", "who", "n").dropDuplicates(["who", "n"])',
        bounded=False,
        unbounded=("duplicates",),
        repeats=True,
    ),
    "duplicates within the watermark": StateCase(
        'inputs["src"].select("at", "who", "n").dropDuplicatesWithinWatermark(["who", "n"])',
        in_batch='inputs["src"].select("at", "who", "n").dropDuplicates(["who", "n"])',
        repeats=True,
    ),
    "windows of windows": StateCase(
        "SELECT window.start AS at, who, max(many) AS most, count(*) AS windows FROM "
        f"({counted('src')}) GROUP BY window(window_time(w), '40 seconds'), who"
    ),
    "windows joined": StateCase(
        f"SELECT l.w.start AS at, l.who AS who, l.many AS many, r.many AS others FROM ({counted('src')}) l "
        f"JOIN ({counted('other')}) r ON l.w = r.w AND l.who = r.who"
    ),
    "join, grouped": StateCase(
        "SELECT window.start AS at, who, count(*) AS many FROM (SELECT l.at AS at, l.who AS who FROM src l "
        "JOIN other r ON l.who = r.who AND r.at BETWEEN l.at AND l.at + INTERVAL 10 SECONDS) "
        "GROUP BY window(at, '10 seconds'), who"
    ),
    "processor by record": processor(BY_RECORD),
    "processor by frame": processor(BY_FRAME),
}


IN_FULL = {
    "sliding",
    "inner join",
    "left join",
    "right join",
    "union",
    "static join, grouped",
    "windows joined",
    "join, grouped",
    "processor by record",
}
"""Much alike others: a full join is all of the joins."""


def parts_of(chance: random.Random, source: str, operator: StateCase) -> Parts:
    """Records of a source in the order in which they come, cut: none is later than it may be."""
    events = [(chance.randrange(20, 90), chance.choice("ab"), n) for n in range(RECORDS)]
    if operator.repeats:
        events += chance.sample(events, RECORDS // 3)
    if source == "other":
        events = [(second, who, 100 + n) for second, who, n in events]
    events.sort(key=lambda event: event[0] + chance.randrange(DELAYS_S[source]))
    cuts = sorted(chance.sample(range(1, len(events)), PARTS - 1))
    return [events[start:end] for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True)]


def played(flow: StateFlow, chance: random.Random, parts: Mapping[str, Parts]) -> None:
    """Have owners run what comes part by part. One of them leaves early; at the end the watermark is past all."""
    leaves_after, leaves = chance.randrange(PARTS), chance.choice(LEAVES)
    with ExitStack() as owned:
        owner = owned.enter_context(flow.owner())
        owner.take_over()
        for index in range(PARTS + 1):
            for source, of_source in parts.items():
                append(flow, chance, source, of_source[index] if index < PARTS else [(FAR, "z", 0)])
            if index != leaves_after or leaves == "releases":
                drain(owner)
            else:
                with at_failpoint(leaves, die), pytest.raises(Died):
                    drain(owner)
            if index == leaves_after:
                if leaves == "releases":
                    owner.release()
                owned.close()
                owner = owned.enter_context(flow.owner())
                owner.take_over()
        owner.release()


def append(flow: StateFlow, chance: random.Random, source: str, events: Sequence[Event]) -> None:
    """To the logs of a source, at random."""
    if source == "other":
        flow.append("other", events)
        return
    logs = [chance.choice(("in/0", "in/1")) for _ in events]
    for log in sorted(set(logs)):
        flow.append(log, [event for event, of in zip(events, logs, strict=True) if of == log])


def in_order(payloads: Sequence[str]) -> list[str]:
    """The rows but those of the last records, whose watermark nothing has passed."""
    rows = (json.loads(payload) for payload in payloads)
    return sorted(json.dumps(row, sort_keys=True) for row in rows if "z" not in (row.get("who"), row.get("met")))


@pytest.mark.parametrize("seed", [1, *[pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 8)]])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in IN_FULL else ()) for name in OPERATORS]
)
def test_it_gives_out_what_one_batch_job_does(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, name: str, seed: int
) -> None:
    operator = OPERATORS[name]
    chance = random.Random(f"{name} {seed}")
    flow = StateFlow(
        memory_registry,
        spark,
        tmp_path,
        delay_s=DELAYS_S,
        round={"records_max": 100},
        state={"unbounded": operator.unbounded},
        **operator.given(tmp_path),
    )
    parts = {source: parts_of(chance, source, operator) for source in flow.config.sources}
    tables = {s: records(payloads_of([event for part in of for event in part])) for s, of in parts.items()}
    if operator.bounded:
        parts["src"][-1] += [(-FAR + second, "a", 1000 + second) for second in range(3)]
    played(flow, chance, parts)
    if operator.in_batch is not None:
        replace(operator, does=operator.in_batch).given(tmp_path)
    with flow.open() as resources:
        expected = in_one_batch(resources.transformation_spec(), spark, tables)
    found = [json.dumps(row) for row in flow.delivered()]
    assert in_order(found) == in_order([row[0] for row in expected])
    assert found, "nothing came out"
