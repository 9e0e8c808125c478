"""Partition directories of a file sink: which one a record belongs to, in the names that Hive gives them. Pure.

A partition is the directories `<column>=<value>/<column>=<value>` below the sink's path. Values are escaped as Hive and
Spark do it, so that both read them back, and a null or an empty text becomes `__HIVE_DEFAULT_PARTITION__`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator, model_validator

from scribengin.base.model import Config
from scribengin.base.names import given_twice
from scribengin.errors import CommitTooLarge, ConfigInvalid, RecordRefused

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(32)))
_COLUMN = re.compile(r"[^\W_][\w-]*")
_DIRECTORY = re.compile(r"([^\W_][\w-]*)=((?:%[YmdHMj]|[\w.-])+)")
_TIME = pa.timestamp("us", "UTC")
_UNITS = (("%M", "minute"), ("%H", "hour"))


class FilePartitionConfig(Config):
    """Either `columns`, or `time` with a `pattern`.

    A directory's name says what the columns hold, so they are not in the file as well. With `format: json` they are the
    output's columns `_<name>`, and a record that shall hold the value, too, has it in a column of another name.
    """

    columns: tuple[str, ...] = ()
    """A directory for each value of these columns, the first outermost: text, integers, dates, booleans."""
    time: str | None = None
    """A directory for each hour, day, ... of the timestamp (or date) in this column, in UTC ..."""
    pattern: str = "dt=%Y-%m-%d/hour=%H"
    """... named so. %Y %m %d %H %M %j are replaced."""
    round_max: int = Field(default=200, ge=1, le=1000)
    """One round may write to so many partitions: each is a file of its own."""

    @field_validator("columns")
    @classmethod
    def _plain_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _COLUMN.fullmatch(name):
                raise ValueError(f"'{name}' cannot name a directory: letters, digits, - and _, and no _ in front")
        if len(set(value)) < len(value):
            raise ValueError("a column is named twice")
        return value

    @field_validator("pattern")
    @classmethod
    def _named_directories(cls, value: str) -> str:
        matches = [_DIRECTORY.fullmatch(part) for part in value.split("/")]
        if not all(match and "%" in match[2] for match in matches):
            raise ValueError(f"'{value}' is no pattern like 'dt=%Y-%m-%d/hour=%H' (of %Y %m %d %H %M %j)")
        names = [match[1] for match in matches if match]
        if (twice := given_twice(names)) is not None:
            raise ValueError(f"'{value}' names '{twice}' twice, and a reader finds one column of a name")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.columns) == (self.time is not None):
            raise ValueError("name either columns, or a time column with a pattern")
        return self

    @property
    def directories(self) -> tuple[str, ...]:
        """The names of the columns that readers find in the path."""
        return self.columns if self.time is None else tuple(part.partition("=")[0] for part in self.pattern.split("/"))

    @property
    def side_columns(self) -> dict[str, pa.DataType]:
        """The columns that are needed beside a payload, in the types that are wanted."""
        return dict.fromkeys(self.columns, pa.string()) if self.time is None else {self.time: _TIME}

    def names(self, batch: pa.RecordBatch, *, what: str) -> list[str]:
        """The partitions of the rows in `batch`, each once. Raises as `split`, but not for too many of them."""
        names: list[str] = self._encoded_paths(batch, what).dictionary.to_pylist()
        return names

    def split(self, batch: pa.RecordBatch, *, what: str) -> list[tuple[str, pa.RecordBatch]]:
        """The rows of each partition in `batch`, in their order, without the columns that the path names.

        Raises ConfigInvalid for columns that are missing or not of a type for it, RecordRefused for a value that names
        no directory, CommitTooLarge for too many of them.
        """
        paths = self._encoded_paths(batch, what)
        if len(paths.dictionary) > self.round_max:
            raise self.too_many(len(paths.dictionary), what)
        return [(path, self._kept(rows, what)) for path, rows in _groups(batch, paths)]

    def too_many(self, count: int, what: str) -> CommitTooLarge:
        """The error for a round that writes to `count` partitions."""
        return CommitTooLarge(
            f"{what}: one round writes to {count} partitions, and {self.round_max} are allowed: make "
            "round.records_max smaller, the partitions coarser, or partition.round_max larger"
        )

    def _kept(self, rows: pa.RecordBatch, what: str) -> pa.RecordBatch:
        if self.time is None:
            return rows.drop_columns(list(self.columns))
        if taken := sorted(set(self.directories) & set(rows.schema.names) - {self.time}):
            raise ConfigInvalid(
                f"{what}: the output has a column '{taken[0]}', and the pattern {self.pattern} makes another one of "
                "that name: rename one of them"
            )
        return rows.drop_columns([self.time]) if self.time in self.directories else rows

    def _encoded_paths(self, batch: pa.RecordBatch, what: str) -> pa.DictionaryArray:
        for name in self.side_columns:
            if name not in batch.schema.names:
                raise ConfigInvalid(
                    f"{what}: the output has no column '{name}' (with format json: '_{name}') to find a partition by; "
                    "select it, or correct `partition`"
                )
        try:
            return self._paths(batch, what).dictionary_encode()
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            columns = " and ".join(f"column '{name}'" for name in self.side_columns)
            raise RecordRefused(f"{what}: a value of {columns} names no directory: {error}") from None

    def _paths(self, batch: pa.RecordBatch, what: str) -> pa.Array:
        if self.time is not None:
            return _of_times(batch.column(self.time), self.pattern, f"{what}: column '{self.time}'")
        parts = [_of_values(batch.column(name), name, f"{what}: column '{name}'") for name in self.columns]
        return pc.binary_join_element_wise(*parts, "/")


def escaped(value: str | None) -> str:
    """A value as a part of a directory's name."""
    if not value:
        return NULL_VALUE
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in value)


def _of_values(column: pa.Array, name: str, what: str) -> pa.Array:
    """`name=value` of every row; each distinct value is escaped once."""
    kinds = pa.types
    kind = column.type
    is_text = kinds.is_string(kind) or kinds.is_large_string(kind)
    if not (is_text or kinds.is_integer(kind) or kinds.is_date(kind) or kinds.is_boolean(kind)):
        raise ConfigInvalid(f"{what} is {kind}, which names no directory: cast it to text or an integer")
    texts = column.cast(pa.string()).dictionary_encode("encode")
    names = pa.array([f"{name}={escaped(value)}" for value in texts.dictionary.to_pylist()], pa.string())
    return names.take(texts.indices)


def _of_times(column: pa.Array, pattern: str, what: str) -> pa.Array:
    """The directories of every row; only distinct times, cut to what the pattern shows, are formatted."""
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise ConfigInvalid(f"{what} is {kind}, and no timestamp or date: cast it")
    unit = next((unit for directive, unit in _UNITS if directive in pattern), "day")
    # Without a zone it is UTC, and needs no zone files where this runs.
    instants = column.cast(pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.timestamp("us"))
    instants = instants.cast(pa.timestamp("us"))
    times = pc.floor_temporal(instants, unit=unit).dictionary_encode("encode")
    nulls = "/".join(f"{part.partition('=')[0]}={NULL_VALUE}" for part in pattern.split("/"))
    names = pc.fill_null(pc.strftime(times.dictionary.cast(pa.timestamp("s")), pattern), nulls)
    return names.take(times.indices)


def _groups(batch: pa.RecordBatch, paths: pa.DictionaryArray) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each path: sorted by it, stably, and cut."""
    names = paths.dictionary.to_pylist()
    if len(names) <= 1:
        yield from ((name, batch) for name in names)
        return
    rows = batch.take(pc.sort_indices(paths.indices))
    ends = np.cumsum(np.bincount(paths.indices.to_numpy(), minlength=len(names)))
    for name, end, start in zip(names, ends, [0, *ends[:-1]], strict=True):
        yield name, rows.slice(int(start), int(end - start))
