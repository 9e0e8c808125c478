"""Query 12 of Nexmark: how many bids each bidder made in ten seconds of the clock on the wall, whenever they happened.

SQL has no word for a watermark, and a window over what the clock says needs one of its own to close.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, current_timestamp, window


def transform(inputs: dict[str, DataFrame], _context: Any) -> DataFrame:
    """Bids a bidder and window, given out once the window has passed."""
    bids = inputs["events"].where("kind = 2").select("bidder", current_timestamp().alias("seen"))
    counted = bids.withWatermark("seen", "0 seconds").groupBy("bidder", window("seen", "10 seconds")).count()
    return counted.select("bidder", col("window.start").alias("begins"), col("count").alias("bids"))
