"""Nexmark's queries in Flink's SQL are those that ours are measured with, over the same events."""

from __future__ import annotations

import re

import pytest

from scribengin_dev.bench.nexmark.events import SCHEMA_DDL
from scribengin_dev.bench.nexmark.flink import FLINK_QUERIES, statement, tables
from scribengin_dev.bench.nexmark.queries import LATE_S, QUERIES


def test_every_query_has_its_like() -> None:
    assert list(FLINK_QUERIES) == list(QUERIES)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_only_tables_that_there_are(query: str) -> None:
    made = {
        found
        for made in tables(query, "h:1", "in", "out", [5, 6])
        for found in re.findall(r"(?:TABLE|VIEW) (\w+)", made)
    }
    inside = set(re.findall(r"(\w+) AS \(SELECT", statement(query)))
    read = set(re.findall(r"(?:FROM|JOIN|INTO|TABLE) (\w+)", statement(query))) - {"TABLE", "SELECT"}
    assert read <= made | inside
    assert "results" in read


def test_events_have_all_their_fields_and_end_where_they_are_told() -> None:
    events, *_views, _results = tables("q0", "h:1", "in", "out", [5, 6])
    assert re.findall(r"`(\w+)`", events) == [field.split()[0] for field in SCHEMA_DDL.split(", ")]
    assert "'scan.bounded.specific-offsets' = 'partition:0,offset:5;partition:1,offset:6'" in events
    assert f"ts - INTERVAL '{LATE_S}' SECOND" in events
