"""The source of a streaming query: Spark's face of what the engine offers (offers.py)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from scribengin.spark.stateful.offers import OfferReader, Offset
from scribengin.spark.transform.input import WATERMARK, RoundPartition, RoundReader, shares

if TYPE_CHECKING:  # Spark's Python workers import this module, and shall not import every connector
    from scribengin.connectors.contract import RecordSplit

FORMAT = "scribengin_offers"
_US_PER_MS = 1000
_AT = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class MarkedSplit:
    """A split whose records have the watermark beside them that their range was planned at."""

    split: RecordSplit
    watermark_ms: int

    @property
    def records(self) -> int:
        return self.split.records

    @property
    def size_bytes(self) -> int:
        return self.split.size_bytes

    def read(self) -> Iterator[pa.RecordBatch]:
        at = pa.scalar(self.watermark_ms * _US_PER_MS, _AT)
        for batch in self.split.read():
            yield batch.append_column(pa.field(WATERMARK, _AT), pa.repeat(at, batch.num_rows))


class OfferedSource(DataSource):
    """`spark.readStream.format(FORMAT).schema(...).options(directory=..., source=..., partitions=n).load()`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # PySpark's name
        return OfferedStreamReader(
            Path(self.options["directory"]), self.options["source"], int(self.options["partitions"]), schema
        )


class OfferedStreamReader(DataSourceStreamReader):
    """Plans in a process beside the driver; its pickled copies in Python workers only read."""

    def __init__(self, directory: Path, source: str, partitions: int, schema: StructType) -> None:
        self._offers = OfferReader(directory, source)
        self._partitions = partitions
        self._marked = WATERMARK in schema.names
        self._reading = RoundReader(directory, partitions, schema, embedded=True)

    def initialOffset(self) -> Offset:  # noqa: N802  # PySpark's name
        return self._offers.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # PySpark's name
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  # PySpark's name
        return self._offers.latest(start)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end:
            return []
        splits = self._offers.splits(start, end)
        marked = [MarkedSplit(split, end["watermark_ms"]) for split in splits] if self._marked else splits
        read = shares(marked, self._partitions)
        return [
            RoundPartition(n, pickle.dumps(share, protocol=pickle.HIGHEST_PROTOCOL))
            for n, share in enumerate(read)
            if share
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.read(partition)
