"""Samples for tests of the log store: batches, everything that readers see, and segments forged entry by entry. They
ship because the conformance suite of stores, which does, forges its entries with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from scribengin.base.model import node_name
from scribengin.errors import RangeGone
from scribengin.log import DLSN, CommitThread, LogConfig, LogNamespace, LogReader
from scribengin.log.format.entry import EncodedEntry, EntryHeader, EntryType, encode
from scribengin.log.format.records import TXID_NONE, Record, body_of_records, control_entry
from scribengin.log.format.staged import control_payload
from scribengin.log.metadata.segments import SegmentDescriptor, SegmentsHead
from scribengin.log.store.contract import SegmentName, Tail
from scribengin.log.store.opening import open_store
from scribengin.testing.memory.disk import disk_named
from scribengin.testing.waiting import wait_until
from scribengin_registry.client import batches
from scribengin_registry.contract import Create, Operation, Registry


def payload_batch(payloads: Iterable[bytes]) -> pa.RecordBatch:
    """A batch that has nothing but payloads."""
    return pa.RecordBatch.from_arrays([pa.array(list(payloads), pa.binary())], names=["payload"])


def payloads_read(namespace: LogNamespace, log: str) -> list[bytes]:
    """The payloads of everything that a new reader sees, in order."""
    with namespace.open_reader(log) as reader:
        return payloads_left(reader)


def payloads_left(reader: LogReader) -> list[bytes]:
    """The payloads of everything that is left to read just now. Raises what the reader raises, EndOfStream too."""
    payloads: list[bytes] = []
    while records := reader.read(1000):
        payloads.extend(record.payload for record in records)
    return payloads


def payloads_planned(reader: LogReader, start: DLSN, records_max: int, bytes_max: int = 1 << 30) -> list[list[bytes]]:
    """The payloads of everything from `start` on, a list for each planned range."""
    ranges = []
    while (plan := reader.plan(start, records_max, bytes_max)) is not None:
        ranges.append([value for split in plan.splits for batch in split.read() for value in payloads_of(batch)])
        start = plan.end
    return ranges


def await_planned(planner: LogReader, payloads: list[bytes], what: str) -> None:
    """Wait until one range of everything can be planned and read again, and has these payloads: until then `planner`
    plans what has gone. `what` is waited for. Raises what `wait_until` does."""

    def planned_again() -> bool:
        try:
            return payloads_planned(planner, DLSN.INITIAL, 1000) == [payloads]
        except RangeGone:
            return False

    wait_until(planned_again, what=what)


def payloads_of(batch: pa.RecordBatch) -> list[bytes]:
    """The payload column, as Python objects."""
    return list(batch.column("payload").to_pylist())


def records_entry(payloads: Sequence[bytes], entry_type: EntryType = EntryType.RECORDS, txid: int = 1) -> EncodedEntry:
    """An entry that holds a record for each payload."""
    records = [Record(txid=txid, channel=None, key=None, payload=payload) for payload in payloads]
    return encode(body_of_records(records)).as_type(entry_type)


def descriptor_of(epoch: int = 1, *, fsync: bool = True, commit_log: str | None = None) -> SegmentDescriptor:
    """Segment 1 of a log, in progress."""
    return SegmentDescriptor(
        segment=1,
        epoch=epoch,
        directory="log-1",
        start_sequence=0,
        created_ms=0,
        fsync=fsync,
        commit_log=commit_log,
    )


@dataclass
class SegmentForge:
    """Builds the bytes of a segment, group by group, as a writer would, or as no writer would."""

    epoch: int = 1
    at: Tail = field(default_factory=lambda: Tail(0, 0, TXID_NONE, 0))
    data: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list)
    """Where each entry ends."""

    def group(self, *entries: EncodedEntry, first_index: int = 0) -> SegmentForge:
        """Append the entries as one group, whose first `first_index` entries were written before."""
        for index, entry in enumerate(entries, start=first_index):
            self._append(
                entry,
                entry.place(entry=self.at.entries, group_index=index, sequence=self.at.sequence, epoch=self.epoch),
            )
        return self

    def records(self, *payloads: bytes) -> SegmentForge:
        """A group of one entry with these records."""
        return self.group(records_entry(payloads))

    def staged(self, *payloads: bytes) -> SegmentForge:
        """A group of one staged entry with these records."""
        return self.group(records_entry(payloads, EntryType.STAGED))

    def control(self, first_entry: int, last_entry: int) -> SegmentForge:
        """A group of one control entry that names these staged ones."""
        return self.group(control_entry(control_payload(first_entry, last_entry), self.at.last_txid))

    def _append(self, entry: EncodedEntry, header: EntryHeader) -> None:
        self.data += header.to_bytes()
        for buffer in entry.buffers:
            self.data += bytes(memoryview(buffer))
        self.at = self.at.after(header)
        self.ends.append(len(self.data))


def bound_namespace(
    registry: Registry,
    directory: Path | str,
    *logs: str,
    config: LogConfig | None = None,
    store: str | None = None,
    commit_thread: CommitThread | None = None,
) -> LogNamespace:
    """A new namespace at `/logs` with its store in `directory`, holding the logs; `store` as `LogNamespace.bind`,
    `commit_thread` as `LogNamespace.open`."""
    LogNamespace.bind("/logs", directory, registry=registry, store=store)
    namespace = LogNamespace.open("/logs", registry=registry, commit_thread=commit_thread)
    for log in logs:
        namespace.create(log, config)
    return namespace


def fill_log(namespace: LogNamespace, log: str, entries: int, rows: int = 1) -> list[bytes]:
    """Append `entries` batches of `rows` records, three of which make a segment of 4096 bytes,
    with transaction ids 0, 10, 20 ..."""
    payloads = [b"%06d" % n + bytes(1000 // rows) for n in range(entries * rows)]
    with namespace.open_writer(log) as writer:
        for entry in range(entries):
            part = payloads[entry * rows : (entry + 1) * rows]
            txids = pa.array([10 * entry] * rows, pa.int64())
            writer.write_bulk(payload_batch(part).append_column("txid", txids)).result(120)
    return payloads


def segment_path(namespace: LogNamespace, log: str, number: int) -> Path:
    """The file of a segment."""
    return Path(namespace.descriptor.location) / f"{namespace.segments(log)[number - 1].file}.log"


def _damage_on_hdfs(url: str, at: int) -> None:
    from scribengin.filesystems.hdfs import HdfsFileSystem  # not everybody has its client

    authority, path = url.removeprefix("hdfs://").split("/", 1)
    files, path = HdfsFileSystem(authority), f"/{path}"
    data = bytearray(files.read(path, 0, files.size(path) or 0))
    data[at] ^= 0xFF
    damaged = files.create(f"{path}-damaged")
    damaged.append(bytes(data))
    damaged.close()
    files.replace(f"{path}-damaged", path)


def _damage_on_bookkeeper(location: str, name: SegmentName, at: int) -> None:
    from scribengin.log.config import LedgerCopies
    from scribengin.log.store.bookkeeper.client import Ledgers  # not everybody has its client
    from scribengin.log.store.bookkeeper.nodes import SegmentNodes
    from scribengin.log.store.bookkeeper.store import BookKeeperPlace

    place = BookKeeperPlace.parse(location)
    nodes, ledgers = SegmentNodes(place.hosts, place.root), Ledgers(place.hosts, place.ledgers)
    view = open_store("bk", location).open(name)
    data = bytearray(view.read(0, view.size()))
    view.close()
    data[at] ^= 0xFF
    damaged = ledgers.create({}, LedgerCopies())
    damaged.add(bytes(data))
    damaged.wait()
    damaged.close()
    nodes.change(name, lambda named: named.model_copy(update={"log": damaged.ledger}))


def damage_segment(namespace: LogNamespace, log: str, number: int, at: int) -> None:
    """Change one byte of a segment's file."""
    if namespace.descriptor.store == "hdfs":
        _damage_on_hdfs(f"{namespace.descriptor.location}/{namespace.segments(log)[number - 1].file}.log", at)
        return
    if namespace.descriptor.store == "bk":
        _damage_on_bookkeeper(namespace.descriptor.location, namespace.segments(log)[number - 1].file, at)
        return
    if namespace.descriptor.directory is None:
        disk_named(namespace.descriptor.location).damage(f"{namespace.segments(log)[number - 1].file}.log", at)
        return
    data = bytearray(segment_path(namespace, log, number).read_bytes())
    data[at] ^= 0xFF
    segment_path(namespace, log, number).write_bytes(data)


def forge_segments(namespace: LogNamespace, registry: Registry, log: str, count: int, *, files: bool = False) -> None:
    """Let a log that is empty have `count` completed segments of one record each: their nodes and, of the first two and
    the last (with `files`, of all), their files."""
    directory = namespace.info(log).log.directory
    path = f"{namespace.path}/logs/{node_name(log)}/segments"
    creates: list[Operation] = []
    size = 0
    for number in range(1, count + 1):
        forge = SegmentForge(at=Tail(0, 0, TXID_NONE, number - 1)).records(b"%d" % number)
        descriptor = SegmentDescriptor(
            segment=number,
            epoch=1,
            directory=directory,
            start_sequence=number - 1,
            created_ms=number,
            completed_ms=number,
            bytes=len(forge.data),
            entries=1,
            records=1,
            last_txid=1,
        )
        size += descriptor.bytes
        creates.append(Create(f"{path}/{descriptor.node}", descriptor.to_bytes()))
        if files or number in (1, 2, count):
            Path(namespace.descriptor.location, f"{descriptor.file}.log").write_bytes(forge.data)
    for batch in batches(creates):
        registry.commit(batch)
    head = SegmentsHead.from_bytes(registry.get(path).data, path=path)
    ends = {"epoch": 1, "max_segment": count, "next_sequence": count, "last_txid": 1, "bytes": size}
    registry.set(path, head.model_copy(update=ends).to_bytes())
