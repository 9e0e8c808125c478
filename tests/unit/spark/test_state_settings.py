"""What a query with state is told that is not as it is by default."""

from __future__ import annotations

from scribengin.spark.stateful.transformation import _settings
from scribengin.spark.transform.spec import StateSpec

STORE = "spark.sql.streaming.stateStore"


def test_what_is_in_memory_is_bounded_and_snapshots_are_written_often() -> None:
    told = _settings(StateSpec(3, 64, {}))
    assert told[f"{STORE}.providerClass"].endswith(".RocksDBStateStoreProvider")
    assert told[f"{STORE}.rocksdb.boundedMemoryUsage"] == "true"
    assert told[f"{STORE}.rocksdb.maxMemoryUsageMB"] == "64"
    assert told[f"{STORE}.maintenanceInterval"] == "10s"
    assert told["spark.sql.shuffle.partitions"] == "3"
