"""The queries of Nexmark that Spark can stream, as SQL over the table `events`, which is all that both sides read.

Left out are those that take something back (4, 6, 9), count what is distinct (15 to 17) or rank rows (18, 19): Spark
refuses them in a stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SHIPPED = Path(__file__).parent / "shipped"
LATE_S = 4
"""So late an event may be."""
_BIDS = "(SELECT auction, bidder, price, ts FROM events WHERE kind = 2)"
_AUCTIONS = "(SELECT id, seller, category, ts FROM events WHERE kind = 1)"
_PEOPLE = "(SELECT id, name, city, state, ts FROM events WHERE kind = 0)"
_WINDOW = "window(ts, '10 seconds')"


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """A query, as SQL or as the function that a module of `SHIPPED` has; `stateful` if it keeps state, without a bound
    in the operators that `unbounded` names."""

    sql: str | None
    function: str | None = None
    stateful: bool = True
    watermark: bool = True
    """Whether the events' own time closes windows."""
    unbounded: tuple[str, ...] = ()


QUERIES = {
    "q0": NexmarkQuery(f"SELECT auction, bidder, price, ts FROM {_BIDS}", stateful=False),
    "q1": NexmarkQuery(
        f"SELECT auction, bidder, cast(0.908 * price AS BIGINT) AS price, ts FROM {_BIDS}", stateful=False
    ),
    "q2": NexmarkQuery(f"SELECT auction, price FROM {_BIDS} WHERE auction % 123 = 0", stateful=False),
    "q3": NexmarkQuery(
        f"SELECT p.name, p.city, p.state, a.id FROM {_AUCTIONS} a JOIN {_PEOPLE} p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
        unbounded=("join",),
    ),
    "q5": NexmarkQuery(
        "WITH counts AS (SELECT window, auction, count(*) AS bids "
        f"FROM {_BIDS} GROUP BY window(ts, '10 seconds', '2 seconds'), auction) "
        "SELECT window.start AS begins, max(struct(bids, auction)) AS hottest FROM counts GROUP BY window"
    ),
    "q7": NexmarkQuery(
        f"WITH windows AS (SELECT window, max(price) AS price FROM {_BIDS} GROUP BY {_WINDOW}), "
        "highest AS (SELECT window_time(window) AS ends, price FROM windows) "
        f"SELECT b.auction, b.price, b.bidder, b.ts FROM {_BIDS} b JOIN highest h "
        "ON b.price = h.price AND b.ts <= h.ends AND b.ts > h.ends - INTERVAL 10 SECONDS"
    ),
    "q8": NexmarkQuery(
        f"WITH people AS (SELECT id, name, window FROM {_PEOPLE} GROUP BY id, name, {_WINDOW}), "
        f"sellers AS (SELECT seller, window FROM {_AUCTIONS} GROUP BY seller, {_WINDOW}) "
        "SELECT p.id, p.name, p.window.start AS begins FROM people p JOIN sellers s "
        "ON p.id = s.seller AND p.window = s.window"
    ),
    "q11": NexmarkQuery(
        "SELECT bidder, session_window.start AS begins, session_window.end AS ends, count(*) AS bids "
        f"FROM {_BIDS} GROUP BY bidder, session_window(ts, '10 seconds')"
    ),
    "q12": NexmarkQuery(None, "processing_time:transform", watermark=False),
}
