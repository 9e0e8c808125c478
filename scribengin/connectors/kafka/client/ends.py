"""What a partition holds. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """What a partition holds: offsets [begin, end) of the topic with that id. `end`: as far as its isolation lets one
    read, the high watermark or the last stable offset."""

    begin: int
    end: int
    topic_id: str = ""
