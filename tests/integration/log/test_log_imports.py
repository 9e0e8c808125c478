"""What a process that reads or writes imports on its way: a stall at some record in the middle of a log."""

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
"""
WRITES = """
import sys
from scribengin.log import LogNamespace
with LogNamespace.open(sys.argv[1]) as namespace, namespace.open_writer(sys.argv[2]) as writer:
    writer.write(b"payload").result(60)
    for given in ({"key": b"k"}, {"channel": "a"}, {"type": 3}, {"txid": 2**62}):
        for future in [writer.write(b"payload", **given) for _ in range(int(sys.argv[3]) // 4)]:
            future.result(60)
"""
TELLS = """
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "pandas"))
"""


def imported(program: str, *arguments: str) -> list[str]:
    """What of pandas a process has imported that ran the program."""
    command = [sys.executable, "-c", program + TELLS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_reader_never_imports_pandas(registry: Registry, registry_hosts: str, tmp_path: Path) -> None:
    """It takes 0.3 s, at the first entry of a kind that none before was."""
    namespace = bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(entry_bytes_max=4 * 2**20))
    entries = [1, 2, 1, 40, 70_000, 1, 3, 50]
    with namespace.open_writer(LOG) as writer:
        for records in entries:
            made = {"payload": [b"payload"] * records, "channel": ["abc"] * records}
            writer.write_bulk(pa.record_batch(made)).result(60)
    uri = f"distributedlog://{registry_hosts}/logs"
    assert imported(FOLLOWS, uri, LOG, str(sum(entries))) == []


def test_a_writer_of_single_records_never_imports_pandas(
    registry: Registry, registry_hosts: str, tmp_path: Path
) -> None:
    """It would be 0.3 s late with its first one."""
    namespace = bound_namespace(registry, tmp_path / "store", LOG)
    assert imported(WRITES, f"distributedlog://{registry_hosts}/logs", LOG, "100") == []
    with namespace.open_reader(LOG) as reader:
        read = reader.read(1000)
    assert [record.payload for record in read] == [b"payload"] * 101
    assert [record.key for record in read].count(b"k") == [record.channel for record in read].count("a") == 25
