"""The same queries of Nexmark in Flink's SQL, from a topic into a topic.

Windows are Flink's table functions, whose rows nothing takes back. The hottest auction of a window is the first of its
rows by rank; ours is the greatest of a struct, which is the same row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scribengin_dev.bench.nexmark.events import SCHEMA_DDL
from scribengin_dev.bench.nexmark.queries import LATE_S

_FIELD = re.compile(r"(\w+) ([A-Z]+)")
_WINDOW = "window_start, window_end"
_TEN = "INTERVAL '10' SECOND"


def _tumbling(table: str, time: str = "ts") -> str:
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), {_TEN}))"


@dataclass(frozen=True, slots=True)
class FlinkQuery:
    """A query, and the columns of what comes of it."""

    sql: str
    columns: str


_BID_COLUMNS = "auction BIGINT, bidder BIGINT, price BIGINT, ts TIMESTAMP_LTZ(3)"
FLINK_QUERIES: Mapping[str, FlinkQuery] = {
    "q0": FlinkQuery("SELECT auction, bidder, price, ts FROM bids", _BID_COLUMNS),
    "q1": FlinkQuery("SELECT auction, bidder, CAST(0.908 * price AS BIGINT), ts FROM bids", _BID_COLUMNS),
    "q2": FlinkQuery(
        "SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0",
        "auction BIGINT, price BIGINT",
    ),
    "q3": FlinkQuery(
        "SELECT p.name, p.city, p.state, a.id FROM auctions a JOIN people p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
        "name STRING, city STRING, state STRING, id BIGINT",
    ),
    "q5": FlinkQuery(
        f"WITH counts AS (SELECT {_WINDOW}, auction, COUNT(*) AS bids FROM "
        f"TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, {_TEN})) GROUP BY {_WINDOW}, auction), "
        f"ranked AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY {_WINDOW} ORDER BY bids DESC, auction DESC) AS place "
        "FROM counts) SELECT window_start, bids, auction FROM ranked WHERE place <= 1",
        "begins TIMESTAMP(3), bids BIGINT, auction BIGINT",
    ),
    "q7": FlinkQuery(
        f"WITH highest AS (SELECT MAX(price) AS price, window_time AS ends FROM {_tumbling('bids')} "
        f"GROUP BY {_WINDOW}, window_time) "
        "SELECT b.auction, b.price, b.bidder, b.ts FROM bids b JOIN highest h "
        f"ON b.price = h.price AND b.ts <= h.ends AND b.ts > h.ends - {_TEN}",
        "auction BIGINT, price BIGINT, bidder BIGINT, ts TIMESTAMP_LTZ(3)",
    ),
    "q8": FlinkQuery(
        f"SELECT p.id, p.name, p.window_start FROM (SELECT id, name, {_WINDOW} FROM {_tumbling('people')} "
        f"GROUP BY id, name, {_WINDOW}) p JOIN (SELECT seller, {_WINDOW} FROM {_tumbling('auctions')} "
        f"GROUP BY seller, {_WINDOW}) s "
        "ON p.id = s.seller AND p.window_start = s.window_start AND p.window_end = s.window_end",
        "id BIGINT, name STRING, begins TIMESTAMP(3)",
    ),
    "q11": FlinkQuery(
        f"SELECT bidder, {_WINDOW}, COUNT(*) FROM "
        f"TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), {_TEN})) GROUP BY bidder, {_WINDOW}",
        "bidder BIGINT, begins TIMESTAMP(3), ends TIMESTAMP(3), bids BIGINT",
    ),
    "q12": FlinkQuery(
        f"SELECT bidder, {_WINDOW}, COUNT(*) FROM {_tumbling('bids', 'clock')} GROUP BY bidder, {_WINDOW}",
        "bidder BIGINT, begins TIMESTAMP(3), ends TIMESTAMP(3), bids BIGINT",
    ),
}


def tables(query: str, bootstrap: str, topic: str, sink: str, ends: Sequence[int]) -> list[str]:
    """Statements that make all that the query's own statement names; of each partition it reads up to its end."""
    columns = _FIELD.sub(r"`\1` \2", SCHEMA_DDL).replace("TIMESTAMP", "TIMESTAMP_LTZ(3)")
    offsets = ";".join(f"partition:{partition},offset:{end}" for partition, end in enumerate(ends))
    reading = _options(
        {
            **_topic(bootstrap, topic),
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "specific-offsets",
            "scan.bounded.specific-offsets": offsets,
            "json.timestamp-format.standard": "ISO-8601",
        }
    )
    late = f"WATERMARK FOR ts AS ts - INTERVAL '{LATE_S}' SECOND"
    writing = _options({**_topic(bootstrap, sink), "sink.delivery-guarantee": "at-least-once"})
    return [
        f"CREATE TEMPORARY TABLE events ({columns}, clock AS PROCTIME(), {late}) {reading}",
        "CREATE TEMPORARY VIEW bids AS SELECT auction, bidder, price, ts, clock FROM events WHERE kind = 2",
        "CREATE TEMPORARY VIEW auctions AS SELECT id, seller, category, ts FROM events WHERE kind = 1",
        "CREATE TEMPORARY VIEW people AS SELECT id, name, city, state, ts FROM events WHERE kind = 0",
        f"CREATE TEMPORARY TABLE results ({FLINK_QUERIES[query].columns}) {writing}",
    ]


def statement(query: str) -> str:
    """What runs the query."""
    return f"INSERT INTO results {FLINK_QUERIES[query].sql}"


def _topic(bootstrap: str, topic: str) -> dict[str, str]:
    return {"connector": "kafka", "properties.bootstrap.servers": bootstrap, "topic": topic, "format": "json"}


def _options(options: Mapping[str, str]) -> str:
    return "WITH (" + ", ".join(f"'{key}' = '{value}'" for key, value in options.items()) + ")"
