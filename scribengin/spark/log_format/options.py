"""The options of the Spark format `scribengin-log`: strings from a notebook, checked once, each error naming its
option."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from scribengin.base.model import Config
from scribengin.errors import ConfigInvalid, LogError
from scribengin.log import DLSN, WILDCARD, TransactionId
from scribengin.log.clients.partitioners import partition_logs
from scribengin.spark.log_format.filters import Range, Wanted

FORMAT = "scribengin-log"
EARLIEST = "earliest"
LATEST = "latest"
Bound = DLSN | TransactionId | None
"""Where reading begins or ends; None: at that end of the log."""
_SPARKS_OWN = frozenset({"queryname", "outputmode"})
"""Options that Spark understands itself and hands on to the format."""


class LogOptions(Config):
    """What reading and writing have in common. Spark writes options in camel case and does not tell cases apart."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    namespace: str
    """`distributedlog-file://<zookeeper hosts>/<path>`: a notebook has no registry of its own to look in."""
    log: str

    @field_validator("log")
    @classmethod
    def _without_slash(cls, value: str) -> str:
        return value.removeprefix("/")

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Check Spark's options. Raises ConfigInvalid, naming the option and what there is."""
        names = {to_camel(name).lower(): to_camel(name) for name in cls.model_fields}
        known: dict[str, Any] = {}
        for option, value in options.items():
            if option.lower() in names:
                known[names[option.lower()]] = value
            elif option.lower() not in _SPARKS_OWN:
                there = ", ".join(sorted(names.values()))
                raise ConfigInvalid(f"format '{FORMAT}' has no option '{option}'; there are: {there}")
        return cls.parse(known, source=f"option of format '{FORMAT}'")

    def given(self, *fields: str) -> list[str]:
        """Those of the fields that the user set, as he wrote them."""
        return [to_camel(field) for field in fields if field in self.model_fields_set]


class LogReadOptions(LogOptions):
    """`spark.read` and `spark.readStream`.

    `log` is a name, or a pattern as in `flights/*`. `start` and `end` are `earliest`, `latest`, `txid:<number>`,
    `time:<ISO 8601 or ms>` (a transaction id again: records that were written without one carry their time in ms), or
    a DLSN as in `1/0/0`. What lies in [start, end) is read.
    """

    start: str = EARLIEST
    end: str = LATEST
    channels: tuple[str, ...] = ()
    """Prefixes: records of other channels, or of none, are left out."""
    columns: tuple[str, ...] = ()
    """What to read, if not everything. PySpark 4.3 does not tell Python sources which columns a query needs."""
    partition_bytes: int = Field(default=32 * 1024 * 1024, ge=1)
    """Ranges of one segment are joined to partitions of about this size."""
    max_records_per_trigger: int | None = Field(default=None, ge=1)
    max_bytes_per_trigger: int | None = Field(default=None, ge=1)
    fail_on_data_loss: bool = True
    """Stop a stream whose position was truncated, or whose log is another one now. False: go on with what is there."""
    reader_id: str | None = Field(default=None, min_length=1)
    """Register a stream's positions under this name: truncation and retention of its logs wait for it."""

    @field_validator("channels", "columns", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("start", "end")
    @classmethod
    def _is_place(cls, value: str) -> str:
        if value not in (EARLIEST, LATEST):
            parse_bound(value)
        return value

    @model_validator(mode="after")
    def _one_limit(self) -> LogReadOptions:
        if self.max_records_per_trigger is not None and self.max_bytes_per_trigger is not None:
            raise ValueError("maxRecordsPerTrigger and maxBytesPerTrigger exclude each other; give one of them")
        if self.end == EARLIEST:
            raise ValueError("nothing lies before the end 'earliest'; leave `end` out, or give a position")
        return self

    @property
    def wanted(self) -> Wanted:
        """What the options leave out, as filters do."""
        first, end = self.start_bound, self.end_bound
        txid = Range(
            first.value if isinstance(first, TransactionId) else None,
            end.value if isinstance(end, TransactionId) else None,
        )
        return Wanted(txid=txid, channel_prefixes=self.channels)

    @property
    def start_bound(self) -> Bound:
        """None for `earliest` and `latest`."""
        return None if self.start in (EARLIEST, LATEST) else parse_bound(self.start)

    @property
    def end_bound(self) -> Bound:
        """None for `latest`."""
        return None if self.end == LATEST else parse_bound(self.end)


class LogWriteOptions(LogOptions):
    """`df.write` and `df.writeStream`.

    Without `streams`, everything goes to the log `log`; with it, to the logs `<log>/0` to `<log>/<streams - 1>`: rows
    with a key where the key belongs (`hash_partitioner`), rows without one in turn.
    """

    streams: int | None = Field(default=None, ge=1)
    create: bool = True
    """Create the logs that do not exist yet. False: they must be there."""
    lock_timeout_s: float = Field(default=30.0, ge=0)
    """How long to wait for somebody else who writes one of the logs: longer than the session of one who died."""
    writer_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]{1,100}$")
    """Who writes, for a stream whose checkpoint is not in a local directory: what tells a batch that is written again
    from another one. A new checkpoint needs a new id."""
    checkpoint_location: str | None = None

    @field_validator("log")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if WILDCARD.search(value):
            raise ValueError(f"'{value}' is a pattern; name the log to write")
        return value

    @property
    def logs(self) -> list[str]:
        """The names of the logs to write, in the order of their numbers."""
        return [self.log] if self.streams is None else partition_logs(self.log, self.streams)


def parse_bound(text: str) -> DLSN | TransactionId:
    """Read `txid:7`, `time:2013-01-01T05:00:00Z`, `time:1357016400000` or a DLSN. Raises ValueError."""
    kind, _colon, value = text.partition(":")
    if kind == "txid" and value.isdecimal():
        return TransactionId(int(value))
    if kind == "time":
        return TransactionId(int(value) if value.isdecimal() else _milliseconds(value))
    try:
        return DLSN.parse(text)
    except LogError:
        raise ValueError(
            f"'{text}' is no place in a log: expected {EARLIEST}, {LATEST}, txid:<number>, "
            "time:<ISO 8601, or ms since 1970>, or a DLSN as in 1/0/0"
        ) from None


def _milliseconds(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"'{text}' is no time: expected ISO 8601 (2013-01-01T05:00:00Z), or ms since 1970") from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
