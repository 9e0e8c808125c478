"""Where a reader of a partition stands: {"offset": 17, "topic_id": "XC4H9RBvRhWNGbf8Vrm+9A"}. Pure.

The topic's id tells one topic from the next of its name; an operator who writes a position may leave it out. Offsets
have gaps (compaction, the marks of transactions): a position is what was passed, not how much was read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from scribengin.base.model import Position
from scribengin.connectors.kafka.client.ends import PartitionEnds
from scribengin.errors import DataflowError, PositionTruncated


@dataclass(frozen=True, slots=True)
class KafkaPosition:
    """Everything before `offset` was read, of the topic with that id ("" for any: old brokers know none)."""

    offset: int
    topic_id: str = ""

    def to_position(self) -> Position:
        """As it stands in a commit log."""
        return {"offset": self.offset, "topic_id": self.topic_id}

    @classmethod
    def parse(cls, position: Position, *, what: str) -> KafkaPosition:
        """Raises DataflowError for anything else than a position of a partition."""
        offset, topic_id = position.get("offset"), position.get("topic_id", "")
        unknown = set(position) - {"offset", "topic_id"}
        if type(offset) is not int or offset < 0 or not isinstance(topic_id, str) or unknown:
            raise DataflowError(
                f"{what}: {json.dumps(position)[:200]} is no position in a partition; restore the stream's commit log, "
                'or write one as in {"offset": 17}'
            )
        return cls(offset, topic_id)


def begin_of(
    position: KafkaPosition, ends: PartitionEnds, policy: Literal["error", "earliest", "latest"], *, what: str
) -> tuple[KafkaPosition, str | None]:
    """Where to go on from `position`, and what to tell people if that is somewhere else.

    Raises PositionTruncated with policy `error` when records were lost that had not been read, and DataflowError when
    the partition ends before the position: a leader may take a moment to find its end, so it deserves another try.
    """
    lost = lost_records(position, ends)
    if not lost and ends.end < position.offset:
        raise DataflowError(
            f"{what}: everything before offset {position.offset} was read, and the partition ends at {ends.end} now: "
            "its cluster has lost records (an unclean election?), and what is written there next would be taken for "
            f'read; to go on from the end write {{"offset": {ends.end}}} into the stream\'s commit log'
        )
    if not lost:
        return position, None
    there = f"offsets {ends.begin} to {ends.end} are there now"
    if policy == "error":
        raise PositionTruncated(
            f"{what}: {lost} ({there}). Choose: `on_expired: earliest` goes on at {ends.begin}, `on_expired: latest` "
            f"at {ends.end}; for another place write its offset into the stream's commit log, as in "
            '{"offset": 17}; or delete the dataflow and submit it with another `start` (a time, for example)'
        )
    chosen = ends.begin if policy == "earliest" else ends.end
    skipped = "" if _made_anew(position, ends) else f", {chosen - position.offset} offsets were skipped"
    told = f"{what}: {lost}; going on at offset {chosen}, as `on_expired: {policy}` says{skipped} ({there})"
    return KafkaPosition(chosen, ends.topic_id), told


def lost_records(position: KafkaPosition, ends: PartitionEnds) -> str:
    """Why what `position` names is not there any more; "" if it is, or is to come."""
    if _made_anew(position, ends):
        return f"the topic was deleted and made anew since offset {position.offset} was reached"
    if ends.begin > position.offset:
        return f"offset {position.offset} is wanted, and the first one that is still there is {ends.begin}"
    return ""


def _made_anew(position: KafkaPosition, ends: PartitionEnds) -> bool:
    return bool(position.topic_id and ends.topic_id and position.topic_id != ends.topic_id)
