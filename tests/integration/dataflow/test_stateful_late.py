"""Records that come later than the watermark, and have a sink: on Spark each record is in a window or there, once, also
when the owner dies at any of a round's effects. Spark itself then drops none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from scribengin.errors import TransformationFailed
from scribengin.log import LogConfig
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry
from tests.integration.state_flow import FAR, Died, Event, StateFlow, at, die, drain, own_to_the_end, payloads_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNTS = """
    SELECT window.start AS start, who, collect_list(n) AS numbers
    FROM src GROUP BY window(at, '10 seconds'), who
"""
MEETINGS = (
    "SELECT src.n AS n, other.n AS m FROM src JOIN other ON src.who = other.who "
    "AND other.at BETWEEN src.at AND src.at + INTERVAL 10 SECONDS"
)
STOPS = ("round.commit:before", "round.commit:after", "log.round_show:after")
A_FEW = ("round.commit:before", "round.commit:after")
EVENTS: list[Event] = [(second - (second % 7) * 9, "ab"[second % 2], second) for second in range(100, 148)]
"""Every second one is later than all before it, or up to 54 seconds earlier."""
END: list[Event] = [(FAR, "z", 0)]


def flow_with_late(
    registry: Registry, spark: SparkSession, directory: Path, sql: str, sink: dict[str, Any], **more: Any
) -> StateFlow:
    out = {"kind": "log", "log": "out", "format": "json"}
    late = {"kind": "log", "log": "late", **sink}
    state = {"late": {"sink": "late"}, **more.pop("state", {})}
    return StateFlow(
        registry, spark, directory, sql={"out": sql}, sinks={"out": out, "late": late}, state=state, **more
    )


def second_of(text: str) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


def windows(events: Sequence[Event]) -> dict[tuple[int, str], list[int]]:
    """What COUNTS makes of all of them at once."""
    groups: dict[tuple[int, str], list[int]] = {}
    for second, who, n in events:
        groups.setdefault((second // 10 * 10, who), []).append(n)
    return {key: sorted(numbers) for key, numbers in groups.items()}


@pytest.mark.parametrize("stops", [A_FEW, pytest.param(STOPS, marks=pytest.mark.full)], ids=["a few", "all"])
def test_each_record_is_in_a_window_or_in_the_sink_for_late_ones_once_whoever_dies(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path, stops: Sequence[str]
) -> None:
    flow = flow_with_late(
        memory_registry, spark, tmp_path, COUNTS, {"format": "json"}, delay_s=20, round={"records_max": 12}
    )
    flow.append("in/0", EVENTS)
    for stop in stops:
        with flow.owner() as owner, at_failpoint(stop, die), pytest.raises(Died):
            own_to_the_end(owner)
    with flow.owner() as owner:
        own_to_the_end(owner)
        flow.append("in/0", END)
        drain(owner)
        kept = owner.state()
        assert kept is not None
        assert kept.late == 0, "nobody but the owner drops anything"
        owner.release()
    late = flow.delivered("late")
    numbers = {one["n"] for one in late}
    assert len(late) == len(numbers) > 0, "a late record is there twice, or none is late"
    assert all(second_of(one["at"]) <= second_of(one["late_watermark"]) for one in late)
    assert Counter(one["late_source"] for one in late).keys() == {"src"}
    delivered = flow.delivered()
    found = {(int(second_of(one["start"])), one["who"]): sorted(one["numbers"]) for one in delivered}
    assert len(found) == len(delivered), "a window was given out twice"
    assert found == windows([event for event in EVENTS if event[2] not in numbers])


def test_what_is_late_depends_on_the_earliest_source_and_goes_out_as_it_was_read(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    flow = flow_with_late(memory_registry, spark, tmp_path, MEETINGS, {})
    flow.append("in/0", [(100, "a", 1), (200, "a", 2)])
    flow.append("other", [(150, "b", 1)])
    with flow.owner() as owner:
        own_to_the_end(owner)
        flow.append("in/0", [(110, "a", 3), (150, "a", 4), (151, "a", 5)])
        flow.append("other", [(155, "a", 6), (300, "b", 7)])
        drain(owner)
        assert flow.delivered() == [{"n": 5, "m": 6}], "it is behind its own source, and `other` may still meet it"
        assert flow.delivered("late") == [{"at": at(110), "who": "a", "n": 3}, {"at": at(150), "who": "a", "n": 4}]
        kept = owner.state()
        assert kept is not None
        assert (kept.late, kept.late_routed, kept.watermark_ms) == (0, 2, 200_000)
        owner.release()
    with flow.owner() as second:
        second.take_over()
        flow.append("in/1", [(199, "a", 8), (210, "b", 9)])
        drain(second)
        assert flow.delivered("late")[2:] == [{"at": at(199), "who": "a", "n": 8}], "the watermark outlives its owner"
        second.release()


def test_late_records_leave_their_transaction_ids_and_one_that_is_too_large_names_the_setting(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    """Those of two logs cross, within a batch and from one to the next, and a log takes none that goes back."""
    flow = flow_with_late(memory_registry, spark, tmp_path, COUNTS, {"format": "json"})
    flow.namespace.create("late/0", LogConfig(record_bytes_max=200))

    def append(log: str, event: Event, txid: int) -> None:
        columns = [pa.array(payloads_of([event]), pa.binary()), pa.array([txid], pa.int64())]
        with flow.namespace.open_writer(log) as writer:
            writer.write_bulk(pa.record_batch(columns, names=["payload", "txid"])).result(120)

    with flow.owner() as owner:
        owner.take_over()
        for round_ in ([("in/0", 200, 10)], [("in/0", 100, 50), ("in/1", 101, 20)], [("in/1", 102, 30)]):
            for log, second, txid in round_:
                append(log, (second, "a", second), txid)
            drain(owner)
        late = {one["n"]: one["_txid"] for one in flow.delivered("late")}
        assert late == {100: 50, 101: 20, 102: 30}
        append("in/1", (103, "a" * 200, 103), 40)
        with pytest.raises(TransformationFailed, match=r"^state.late: a late record, for sink 'late': log 'late/0': "):
            drain(owner)
