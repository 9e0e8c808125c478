"""The source of a streaming query: Spark's face of what the engine offers (offers.py)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from scribengin.spark.stateful.offers import OfferReader, Offset
from scribengin.spark.transform.input import RoundPartition, RoundReader, shares

FORMAT = "scribengin_offers"


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
        read = shares(self._offers.splits(start, end), self._partitions)
        return [
            RoundPartition(n, pickle.dumps(share, protocol=pickle.HIGHEST_PROTOCOL))
            for n, share in enumerate(read)
            if share
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.read(partition)
