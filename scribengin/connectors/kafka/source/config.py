"""What a user writes about a Kafka source. Reads without Kafka's client."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from scribengin.connectors.contract import RECORD_BYTES_MAX, Endpoint, SourceConfig
from scribengin.connectors.kafka.client.connection import TOPIC, KafkaConnectionConfig, is_time

EARLIEST: Literal["earliest"] = "earliest"
LATEST: Literal["latest"] = "latest"
_MS_PER_S = 1000

Offsets = dict[str, dict[int, int]]
"""`{topic: {partition: offset}}`."""
Place = str | int | Offsets
"""`earliest`, `latest`, a time (ISO 8601, in UTC if it names no zone; or ms since the epoch), or offsets."""


class KafkaSourceConfig(KafkaConnectionConfig, SourceConfig):
    """Topics to read. Every partition is a stream, `<topic>/<partition>`; new ones are found while the dataflow runs.

    A record's key, topic, partition, offset, timestamp, timestamp_type and headers are columns beside its payload. The
    payload of a tombstone is null, that of an empty value is empty. A timestamp is null where there is none, or none
    that the column can hold: nanoseconds, where milliseconds belong, are beyond it.

    Where the brokers have rules about who may do what, it needs Read of the topics, and of `group` to show positions.
    """

    kind: Literal["kafka"]
    """Topics of Kafka. Needs the extra `kafka`."""
    topics: list[str] = []
    """Names of topics."""
    pattern: str | None = None
    """A regular expression that the whole name of a topic must match; Kafka's own topics never do."""
    start: Place = EARLIEST
    """Where a partition is read from that the dataflow has no position in. `latest` is the end as it was when the
    dataflow was submitted; partitions that come later are read whole. With offsets, those not named: `earliest`."""
    until: Place | None = None
    """Where reading ends for good: `latest` (the end as it was at submission), a time, or offsets (exclusive; a
    partition that is not named has no end)."""
    on_expired: Literal["error", "earliest", "latest"] = "error"
    """What to do when records before the position's are gone unread (retention, or the topic was made anew): stop, or
    go on there. What is skipped is told in the worker's log."""
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """`read_committed`: only what transactions have committed, and nothing behind a transaction that is still open."""
    tombstones: Literal["keep", "drop"] = "keep"
    """`drop`: records without a value are not read."""
    headers: Literal["keep", "drop"] = "keep"
    """`drop`: headers are not read, and their column is null. With `keep`, a record with a header whose name is not
    UTF-8 is a bad one: Kafka's client reads none of its headers then."""
    record_bytes_max: int = Field(default=RECORD_BYTES_MAX, ge=1)
    """A record that takes more, with its key and headers, is a bad one."""
    mirror_offsets: bool = True
    """Commit positions to a consumer group, too, where Kafka's usual tools show them. Nothing is read from there."""
    group: str | None = Field(default=None, min_length=1)
    """The name of that group. Default: `scribengin-<dataflow>-<source>`."""

    @field_validator("topics", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("pattern")
    @classmethod
    def _is_a_pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"'{value}' is no regular expression: {error}") from None
        return value

    @field_validator("start", "until")
    @classmethod
    def _is_a_place(cls, value: Place | None) -> Place | None:
        if isinstance(value, str | int) and value not in (EARLIEST, LATEST) and not is_time(time_ms(value)):
            raise ValueError(f"Kafka has times from 1970 on, and {value} is none")
        if isinstance(value, dict) and any(offset < 0 for of_topic in value.values() for offset in of_topic.values()):
            raise ValueError("an offset is 0 or more")
        return value

    @model_validator(mode="after")
    def _something_to_read(self) -> KafkaSourceConfig:
        if not self.topics and self.pattern is None:
            raise ValueError("give topics (names) or pattern (a regular expression)")
        if self.until == EARLIEST:
            raise ValueError("until: earliest would read nothing; give latest, a time, or offsets")
        return self

    def endpoint(self) -> Endpoint:
        return Endpoint(TOPIC, self.system(), ", ".join(self.topics) or str(self.pattern))

    def reads(self, thing: Endpoint) -> bool:
        return thing.noun == TOPIC and self.is_cluster(thing.system) and self.means(thing.name)

    def still_reads(self, stream: str, before: SourceConfig) -> bool:
        """Partition 0 of a topic is `<topic>/0`. A cluster's brokers may have other addresses now."""
        return self.means(stream.rpartition("/")[0])

    def reads_again(self, first: Endpoint) -> bool:
        return self.until is None and self.reads(first)

    def means(self, topic: str) -> bool:
        """Whether it is one of the topics, or matches the pattern."""
        return topic in self.topics or bool(
            self.pattern and not topic.startswith("__") and re.fullmatch(self.pattern, topic)
        )


def time_ms(value: str | int) -> int:
    """A time in ms since the epoch. Raises ValueError."""
    if isinstance(value, int):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"'{value}' is neither earliest, latest, a time as in 2026-01-31T12:00:00Z, nor offsets"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * _MS_PER_S)
