"""`scribengin monitor --once`: for scripts."""

from __future__ import annotations

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.registry.descriptors import EdgeRates
from scribengin.dataflow.registry.view import DataflowView
from scribengin.monitoring.overview import overviews
from scribengin_registry.contract import Registry
from tests.integration import watched
from tests.integration.cli_runner import CommandLine, expect_registry_away


def test_json_is_the_picture_as_it_is(line: CommandLine, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    found = line.ok("monitor", "--once", "--json").json
    (expected, *_) = overviews(registry, SYSTEM_CLOCK.now_ms())
    assert [overview["dataflow"] for overview in found] == ["flight_delays", "flight_names", "heat_alarm"]
    assert set(found[0]) == set(expected.model_dump(mode="json"))
    assert found[0]["lag_records"] == 12_000
    assert found[0]["sources"][0]["streams"][0] == {
        "source": "flights",
        "stream": "flights/3",
        "records": 4800,
        "paused": False,
    }
    assert found[1]["tasks"][0]["times"]["mean"]["run"] == 41.0
    assert found[1]["state"] == "stalled"


def test_text_is_a_table_with_those_in_trouble_first(line: CommandLine, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    heading, *lines = line.ok("monitor", "--once").out.splitlines()
    assert heading.split() == ["DATAFLOW", "STATE", "WORK", "TASKS", "IN/S", "OUT/S", "LAG", "AGE", "ROUND", "FAIL"]
    assert lines[0].split()[:2] == ["flight_names", "stalled"]
    assert len(lines) == 3


def test_of_those_that_are_named_the_details_are_printed_as_well(line: CommandLine, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    shown = line.ok("monitor", "flight_names", "--once").out
    for words in (
        "lag     flights 84.3k (flights/0 84.2k, flights/1 90)",
        "round   plan 3 ms",
        "error   task-0: kafka-1:9092 does not answer",
        "stalled task-0 for",
    ):
        assert words in shown
    assert "flight_delays" not in shown


def test_of_several_sources_and_sinks_each_has_its_rate(line: CommandLine, registry: Registry) -> None:
    view = watched.put(registry, "joined", [watched.task(0)], workers=1, now_ms=SYSTEM_CLOCK.now_ms())
    said = view.report("worker-1")
    assert said is not None
    rates = EdgeRates(sources={"flights": 7_700.0, "names": 12.0}, sinks={"late": 3_300.0, "bad": 0.2})
    view.set_report(said.model_copy(update={"rates": rates, "written_ms": SYSTEM_CLOCK.now_ms()}))
    shown = line.ok("monitor", "joined", "--once").out
    assert "in      flights 7.7k/s · names 12/s" in shown
    assert "out     bad 0.2/s · late 3.3k/s" in shown


def test_what_is_damaged_is_shown_as_that_and_hides_nothing(line: CommandLine, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    watched.put_chain(registry, "air", ("names", "flight_names"))
    registry.set(DataflowView(registry, "heat_alarm").paths.status, b"{")
    registry.set("/scribengin/chains/air", b"{")
    shown = line.ok("monitor", "--once").out.splitlines()[1:]
    assert [row.split("  ")[0] for row in shown] == ["chain air", "flight_names", "heat_alarm", "flight_delays"]
    assert [row.split()[-9] for row in shown if row.startswith(("chain", "heat"))] == ["unreadable", "unreadable"]
    found = {one["dataflow"]: one for one in line.ok("monitor", "--once", "--json").json}
    assert found["heat_alarm"]["state"] == "unreadable"
    assert "heat_alarm/status does not hold" in found["heat_alarm"]["error"]
    assert found["flight_delays"]["state"] == "running"
    assert "error   /scribengin/dataflows/heat_alarm/status" in line.ok("monitor", "heat_alarm", "--once").out
    listed = {one["dataflow"]: one["state"] for one in line.ok("list", "--json").json}
    assert listed == {
        "flight_delays": "running",
        "flight_names": "stalled",
        "heat_alarm": "unreadable",
        "chain air": "unreadable",
    }
    *_, one, other = line.ok("list").out.splitlines()
    assert (one.split()[0], "chains/air" in other) == ("/scribengin/dataflows/heat_alarm/status", True)


def test_dataflows_of_a_chain_stand_below_it_in_its_order(line: CommandLine, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    watched.put_chain(registry, "air", ("names", "flight_names"), ("alarm", "heat_alarm"))
    shown = line.ok("monitor", "--once").out.splitlines()[1:]
    assert [row[:14].rstrip() for row in shown] == ["air", "  names", "  alarm", "flight_delays"]
    assert shown[0].split()[1] == "stalled"
    found = line.ok("monitor", "air", "--once", "--json").json
    assert [(one["chain"], one["dataflow"]) for one in found] == [
        ("air/names", "flight_names"),
        ("air/alarm", "heat_alarm"),
    ]
    (one,) = line.ok("monitor", "air/alarm", "--once", "--json").json
    assert one["dataflow"] == "heat_alarm"


def test_bad_input_is_one_line(line: CommandLine, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    missing = line("monitor", "nobody", "--once")
    assert (missing.code, missing.err.count("\n")) == (2, 1)
    assert "there is no dataflow 'nobody'" in missing.err
    screen = line("monitor", "--json")
    assert (screen.code, screen.err) == (2, "scribengin: --json goes with --once: `scribengin monitor --once --json`\n")
    piped = line("monitor")
    assert (piped.code, piped.err.count("\n")) == (2, 1)
    assert "needs a terminal" in piped.err
    expect_registry_away(line, "monitor", "--once")


def test_a_registry_without_dataflows_has_nothing_to_show(line: CommandLine) -> None:
    assert line.ok("monitor", "--once", "--json").json == []
    assert "no dataflows" in line.ok("monitor", "--once").err
