"""What state a dataflow keeps, as all that show it say it."""

from __future__ import annotations

from datetime import datetime
from io import StringIO

from rich.console import Console

from scribengin.connectors.contract import StartAt
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.descriptors import DataflowStatus, TaskReport, WorkerReport
from scribengin.dataflow.registry.view import DataflowView
from scribengin.monitoring.metrics import WorkerSeries
from scribengin.monitoring.overview import OverviewNodes, build_overview
from scribengin.operations.rewind import place_text, record
from scribengin.spark.transform.spec import StateReport
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.worker.progress import Progress
from scribengin_tools.monitor.cells import detail_lines
from scribengin_tools.rendering.dataflow import ShownDataflow
from scribengin_tools.rendering.rewinding import question
from scribengin_tools.rendering.text import kept_text, moment
from scribengin_tools.web.model.values import flow_json

KEPT = StateReport(rows={"join": 2_000}, bytes=2048, watermark_ms=1_000_000, held_back_by="weather", late=1)
ROUTED = KEPT.model_copy(update={"late_routed": 2})
TEXT = f"join 2,000 rows, 2.0 KiB; watermark {moment(1_000_000)}; held back by weather; 1 row too late"


def reported(kept: StateReport | None) -> TaskReport:
    """A task whose owner has looked, by way of the node."""
    progress = Progress(0.0)
    progress.looked([], 1.0, kept)
    counted = progress.report(1.0, busy=False)
    made = TaskReport.model_validate({"task": "task-0", "generation": 1, "state": "running", **counted})
    return TaskReport.from_bytes(made.to_bytes(), path="/there")


def shown(kept: StateReport | None) -> ShownDataflow:
    status = DataflowStatus(dataflow="hot", state="running", config_version=0, tasks_total=1)
    report = WorkerReport(worker="worker-1", written_ms=1, tasks=(reported(kept),), spark_ready=True)
    nodes = OverviewNodes(status, None, 0, None, masters=1, reports={"worker-1": report})
    return ShownDataflow(status, build_overview(nodes, 2))


def drawn(found: ShownDataflow) -> str:
    out = StringIO()
    Console(file=out, width=200).print(found.renderable())
    return out.getvalue()


def test_status_monitor_and_page_say_it() -> None:
    found = shown(KEPT)
    assert TEXT in drawn(found)
    assert found.to_json()["kept"]["held_back_by"] == "weather"
    assert any(TEXT in line.plain for line in detail_lines(found.overview))
    assert flow_json(found.overview, None)["kept"]["rows"] == {"join": 2_000}


def test_late_records_that_have_a_sink_are_counted_apart() -> None:
    assert kept_text(ROUTED) == f"{TEXT}; 2 late records in their sink"
    assert StateReport.total([ROUTED, ROUTED]) == KEPT.model_copy(
        update={"rows": {"join": 4_000}, "bytes": 4096, "late": 2, "late_routed": 4}
    )


def test_a_rewind_says_that_state_is_forgotten_before_it_asks() -> None:
    asked = question("hot", StartAt("earliest"), resets_state=True)
    assert asked == "rewind 'hot' to earliest? Its sinks keep what they have, and its state is forgotten"
    assert "state" not in question("hot", StartAt("earliest"), resets_state=False)


def test_nothing_is_said_where_there_is_no_state() -> None:
    found = shown(None)
    assert "state kept" not in drawn(found)
    assert "kept" not in found.to_json()
    assert flow_json(found.overview, None)["kept"] is None


def test_a_watermark_of_any_year_is_shown() -> None:
    """One record with milliseconds where its column takes seconds is enough for it to be far ahead."""
    far = KEPT.model_copy(update={"watermark_ms": 1_797_000_040_000_000})  # 2026, in milliseconds that were seconds
    found = shown(far)
    assert "watermark 58914-08-31 " in drawn(found)
    assert any("watermark 58914-08-31 " in line.plain for line in detail_lines(found.overview))
    last_ms = (2**63 - 1) // 1000  # as late as Spark counts
    assert moment(last_ms).startswith("294247-01-")
    for at_ms in (253_402_214_400_000, 253_402_387_200_000):  # around the last day of the year 9999
        assert moment(at_ms)[-8:] == moment(at_ms - 86_400_000)[-8:]


def test_what_is_not_known_yet_is_left_out() -> None:
    assert kept_text(StateReport()) == "nothing yet, 0 B"


def test_several_tasks_are_as_far_as_the_one_that_is_held_back() -> None:
    other = StateReport(rows={"join": 1, "limit": 1}, bytes=1, watermark_ms=5, held_back_by="flights", late=2)
    assert StateReport.total([KEPT, other]) == StateReport(
        rows={"join": 2_001, "limit": 1}, bytes=2049, watermark_ms=5, held_back_by="flights", late=3
    )
    assert StateReport.total([]) is None


def test_metrics_of_state() -> None:
    series = WorkerSeries("hot", lambda: [reported(ROUTED), reported(None)])
    try:
        samples = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in series.collect()
            for sample in family.samples
            if "state" in family.name or "late" in family.name or "watermark" in family.name
        }
    finally:
        series.close()
    assert samples == {
        ("scribengin_state_rows", "hot", "join", "task-0"): 2000,
        ("scribengin_state_bytes", "hot", "task-0"): 2048,
        ("scribengin_late_rows_total", "hot", "task-0"): 1,
        ("scribengin_late_rows_routed_total", "hot", "task-0"): 2,
        ("scribengin_watermark_timestamp_seconds", "hot", "task-0", "weather"): 1000,
    }


def test_a_time_to_rewind_to_is_told_as_people_read_it() -> None:
    """In milliseconds nobody sees that it is another day than the one that was meant."""
    at = StartAt("time", 1_795_790_123_678)
    told = place_text(at)
    assert datetime.fromisoformat(told).timestamp() == 1_795_790_123.678
    assert "." not in place_text(StartAt("time", 1_795_790_123_000))
    assert question("hot", at, resets_state=False).startswith(f"rewind 'hot' to {told}? ")
    with MemoryEnsemble().connect() as registry:
        view = DataflowView(registry, "hot")
        sources, sinks = {"src": {"kind": "log", "logs": "in/*"}}, {"out": {"kind": "log", "log": "out"}}
        config = {"name": "hot", "sources": sources, "sinks": sinks, "sql": "SELECT payload FROM src"}
        view.submit(DataflowConfig.parse(config, source="the test"), [], 0)
        record(view, [], at)
        assert view.history().events[-1].message.startswith(f"to {told} by ")
    assert [place_text(StartAt("offset", 7)), place_text(StartAt("earliest"))] == ["offset 7", "earliest"]
    assert place_text(StartAt("time", 10**17)) == "time 100000000000000000", "a year that no calendar has"
