"""How a chain is drawn: a line for each way of its records, for a terminal of 80 columns."""

from __future__ import annotations

from typing import Any

from scribengin.operations.chain.config import ChainConfig
from scribengin.operations.chain.graph import graph_of
from scribengin_tools.rendering.chain_checking import WIDTH, drawn


def chain(**flows: Any) -> ChainConfig:
    made = {key: {"name": f"c-{key}", "sql": {"out": "SELECT 1"}, **flow} for key, flow in flows.items()}
    return ChainConfig.parse({"name": "c", "dataflows": made}, source="a test")


def reads(logs: str) -> dict[str, Any]:
    return {"src": {"kind": "log", "logs": logs}}


def test_every_way_is_a_line_in_the_order_in_which_records_flow() -> None:
    made = chain(
        last={"sources": reads("mid/*"), "sinks": {"out": {"kind": "hdfs", "path": "/files"}}},
        first={
            "sources": reads("in/*"),
            "sinks": {"out": {"kind": "log", "log": "mid"}, "bad": {"kind": "log", "log": "bad"}},
            "errors": {"action": "route", "sink": "bad"},
        },
        beside={
            "sources": reads("mid/0"),
            "sinks": {"out": {"kind": "kafka", "bootstrap": "h:1", "topic": "t"}, "late": {"kind": "log", "log": "l"}},
            "state": {"watermarks": {"src": {"column": "at"}}, "late": {"sink": "late"}},
        },
    )
    assert drawn(made, graph_of(made)).splitlines() == [
        "log in/* --> first",
        "first --> log mid --> beside, last",
        "first --> log bad (bad records)",
        "last --> files /files",
        "beside --> topic t",
        "beside --> log l (late records)",
    ]


def test_what_is_too_long_for_a_line_is_shortened_in_its_middle() -> None:
    path = "/warehouse/" + "/".join(f"department-{n}" for n in range(9))
    made = chain(archive={"sources": reads("x" * 90), "sinks": {"out": {"kind": "hdfs", "path": path}}})
    lines = drawn(made, graph_of(made)).splitlines()
    assert [len(line) for line in lines] == [WIDTH, WIDTH]
    assert lines[1].startswith("archive --> files /warehouse/")
    assert lines[1].endswith("department-8")
    assert "..." in lines[1]
