"""What a query with state is told that is not as it is by default, and how it writes its checkpoint."""

from __future__ import annotations

from scribengin.spark.stateful.transformation import query_settings
from scribengin.spark.transform.spec import StateSpec

STREAMING = "spark.sql.streaming"
STORE = f"{STREAMING}.stateStore"


def test_what_is_in_memory_is_bounded_and_snapshots_are_written_often() -> None:
    told = query_settings(StateSpec(3, 64, {}), "")
    assert told[f"{STORE}.providerClass"].endswith(".RocksDBStateStoreProvider")
    assert told[f"{STORE}.rocksdb.boundedMemoryUsage"] == "true"
    assert told[f"{STORE}.rocksdb.maxMemoryUsageMB"] == "64"
    assert told[f"{STORE}.maintenanceInterval"] == "10s"
    assert told["spark.sql.shuffle.partitions"] == "3"
    assert told["spark.sql.exchange.reuse"] == "false", "what the watermark closes would stay (`tumbling_again`)"


def test_only_files_in_directories_are_made_without_a_transaction_and_all_have_their_checksums() -> None:
    """Elsewhere Spark's own way stays: a rename that is one transaction. Its checksums notice a file that a power
    failure cut, where Hadoop's do not."""
    state = StateSpec(partitions=2, memory_mb=64, watermarks={})
    local = query_settings(state, "file:/var/state/flow/task-0/a-1.0/query")
    elsewhere = query_settings(state, "hdfs://name:9000/state/flow/task-0/a-1.0/query")
    assert local.pop(f"{STREAMING}.checkpointFileManagerClass").endswith(".FileSystemBasedCheckpointFileManager")
    assert not any("hecksum" in name for name in local)
    assert elsewhere == local == query_settings(state, "")
