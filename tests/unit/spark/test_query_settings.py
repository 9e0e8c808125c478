"""How a query with state writes its checkpoint, by where that is."""

from __future__ import annotations

from scribengin.spark.stateful.transformation import query_settings
from scribengin.spark.transform.spec import StateSpec

STREAMING = "spark.sql.streaming"


def test_only_files_on_local_disks_are_made_without_a_transaction_and_have_one_checksum() -> None:
    """Elsewhere Spark's own way stays: a rename that is one transaction, and a checksum beside each file."""
    state = StateSpec(partitions=2, memory_mb=64, watermarks={})
    local = query_settings(state, "file:/var/state/flow/task-0/a-1.0/query")
    elsewhere = query_settings(state, "hdfs://name:9000/state/flow/task-0/a-1.0/query")
    manager, checksum = f"{STREAMING}.checkpointFileManagerClass", f"{STREAMING}.checkpoint.fileChecksum.enabled"
    assert local.pop(manager).endswith(".FileSystemBasedCheckpointFileManager")
    assert local.pop(checksum) == "false"
    assert elsewhere == local == query_settings(state, "")
