"""What a process that reads imports on its way: a stall at some record in the middle of a log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from scribengin.log import LogConfig
from scribengin.testing.log_samples import bound_namespace
from scribengin_registry.contract import Registry

LOG = "flights/0"
FOLLOWS = """
import sys
from scribengin.log import LogNamespace, ReadAhead
with LogNamespace.open(sys.argv[1]) as namespace:
    for options in ({}, {"channels": ["a", "b"]}, {"read_ahead": ReadAhead()}):
        with namespace.open_reader(sys.argv[2], **options) as reader:
            read = []
            while len(read) < int(sys.argv[3]):
                batch = reader.read_batch(timeout_s=60)
                read += batch.to_pydict()["sequence_id"]
            assert read == list(range(len(read)))
        with namespace.open_reader(sys.argv[2], **options) as reader:
            assert [record.sequence_id for record in reader.read(3, timeout_s=60)] == [0, 1, 2]
    print(*sorted(name for name in sys.modules if name.partition(".")[0] == "pandas"))
"""


def test_a_reader_never_imports_pandas(registry: Registry, registry_hosts: str, tmp_path: Path) -> None:
    """It takes 0.3 s, at the first entry of a kind that none before was."""
    namespace = bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(entry_bytes_max=4 * 2**20))
    entries = [1, 2, 1, 40, 70_000, 1, 3, 50]
    with namespace.open_writer(LOG) as writer:
        for records in entries:
            made = {"payload": [b"payload"] * records, "channel": ["abc"] * records}
            writer.write_bulk(pa.record_batch(made)).result(60)
    uri = f"distributedlog://{registry_hosts}/logs"
    command = [sys.executable, "-c", FOLLOWS, uri, LOG, str(sum(entries))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
