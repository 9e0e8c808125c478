"""A streaming query without Spark, that keeps its plans, its state and its commits in files as Spark's does: for crash
tests of the rounds around it. It counts records by key, and gives out each record with its number. Its files are on
disk, or in memory. Where a range was planned with a watermark, a key that is not after it is late.
"""

from __future__ import annotations

import json
import posixpath
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from scribengin.base.failpoints import failpoint
from scribengin.connectors.contract import RecordSplit
from scribengin.errors import CheckpointMismatch, TransformationFailed
from scribengin.filesystems.contract import TreeFileSystem
from scribengin.filesystems.local import LocalFileSystem
from scribengin.log.clients import hash_partitioner
from scribengin.spark.stateful.beats import is_beats
from scribengin.spark.stateful.offers import BoundRange, Offset
from scribengin.spark.stateful.query import ExecutedBatch
from scribengin.spark.stateful.query_log import PARTITIONS
from scribengin.spark.transform.spec import Misplaced, StateReport
from scribengin.testing.memory.files import MemoryFiles

BAD = b"!"
"""What is no key: a batch that reads it fails."""
METADATA = "state/0/_metadata/v2"


class CountingTransform:
    """Starts such queries; `by_clock`: they run by themselves the batch that the state has due. A new one has its state
    in so many `partitions`; `ahead_ms`: their watermark is so much further than the keys say."""

    def __init__(
        self, files: TreeFileSystem | None = None, *, by_clock: bool = False, partitions: int = 1, ahead_ms: int = 0
    ) -> None:
        self._files = LocalFileSystem() if files is None else files
        self._by_clock = by_clock
        self._partitions = partitions
        self._ahead_ms = ahead_ms
        self.ways_back: list[int | None] = []
        """What it was told each time that it had to divide state."""

    def start(
        self,
        checkpoint: str,
        initial: Mapping[str, Offset],
        bound: Sequence[BoundRange],
        read: Sequence[str] | None,
    ) -> CountingQuery:
        assert read is None or list(initial) == read
        query = CountingQuery(
            self._query_files(checkpoint), initial, bound, by_clock=self._by_clock, partitions=self._partitions
        )
        query.ahead_ms = self._ahead_ms
        return query

    def divide(self, checkpoint: str, partitions: int, before: int | None) -> None:
        """As Spark does: a batch that reads nothing is planned, its state written, the operator described, and done."""
        try:
            files = self._query_files(checkpoint)
            assert before in (None, partitions_of(files, max(files.numbers("commits"), default=-1)))
            self.ways_back.append(before)
            self._divide(files, partitions)
        except (FileNotFoundError, IndexError):  # as when a later owner has moved it
            raise CheckpointMismatch(f"there is nothing in {checkpoint} that could be divided") from None

    def _divide(self, files: QueryFiles, partitions: int) -> None:
        last, done = max(files.numbers("offsets"), default=-1), max(files.numbers("commits"), default=-1)
        if done < 0:
            raise FileNotFoundError("there is no batch that is done")
        if last == done:
            assert partitions_of(files, done) != partitions, "it is divided so"
            last += 1
            first, _, *ends = files.read(f"offsets/{done}").splitlines()
            write(files, f"offsets/{last}", "\n".join([first, conf(partitions, watermark_of(files, done)), *ends]))
        assert partitions_of(files, last) == partitions, "another number was begun with, or a batch of records"
        assert files.read(f"offsets/{last}").splitlines()[2:] == files.read(f"offsets/{done}").splitlines()[2:]
        state = state_of(files, done)
        result = f"state/{last}-{uuid.uuid4().hex}"
        whole = {key: count for part in state["counts"] for key, count in part.items()}
        write(files, result, json.dumps({**state, "counts": divided(whole, partitions)}))
        described = files.read(f"{METADATA}/{files.numbers(METADATA)[-1]}")
        write(files, f"{METADATA}/.{last}.crc", str(zlib.crc32(described.encode())))
        write(files, f"{METADATA}/{last}", described)
        write(files, f"commits/{last}", commit(result, commit_of(files, done)["nextBatchWatermarkMs"]))

    def _query_files(self, checkpoint: str) -> QueryFiles:
        directory = f"/{checkpoint.removeprefix(self._files.url_of('/'))}"
        assert self._files.url_of(directory) == checkpoint
        return QueryFiles(self._files, directory)

    def undecodable(self, inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        keys = {source: table.column("payload").to_pylist() for source, table in inputs.items()}
        return {source: {row: "no key" for row, key in enumerate(of) if key == BAD} for source, of in keys.items()}

    def misplaced(self, source: str, streams: Mapping[int, pa.Table]) -> Misplaced | None:
        """A record is a key, which is divided among two streams."""
        for number, rows in streams.items():
            keys = rows.column("payload").combine_chunks()
            for row, belongs in enumerate(hash_partitioner(keys, 2).to_pylist()):
                if belongs != number:
                    return Misplaced(number, row, keys[row].as_py().decode(), belongs)
        return None


class QueryFiles:
    """What a query does to its files, by names below its directory; none of it is an effect of the engine's."""

    def __init__(self, files: TreeFileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.url = files.url_of(directory)

    def read(self, name: str) -> str:
        return self._files.read(posixpath.join(self._directory, name), 0, 1 << 20).decode()

    def read_url(self, url: str) -> str:
        assert url.startswith(f"{self.url}/"), f"{url} is not below {self.url}"
        return self.read(url.removeprefix(f"{self.url}/"))

    def numbers(self, of: str) -> list[int]:
        names = self._files.names(posixpath.join(self._directory, of))
        return sorted(int(name) for name in names if not name.startswith("."))

    def there(self, name: str) -> bool:
        return self._files.size(posixpath.join(self._directory, name)) is not None

    def write(self, name: str, text: str) -> None:
        """As Spark does: with what is missing above it, also where the directory was moved away."""
        path = posixpath.join(self._directory, name)
        if isinstance(self._files, MemoryFiles):
            self._files.put(path, text.encode())
        else:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text)


def write(files: QueryFiles, name: str, text: str) -> None:
    with failpoint("query.write"):
        files.write(name, text)


def conf(partitions: int, watermark_ms: int) -> str:
    """What a plan says about the query."""
    return json.dumps({"batchWatermarkMs": watermark_ms, "conf": {PARTITIONS: str(partitions)}})


def watermark_of(files: QueryFiles, number: int) -> int:
    """At which a batch was planned."""
    return 0 if number < 0 else int(json.loads(files.read(f"offsets/{number}").splitlines()[1])["batchWatermarkMs"])


def commit(result: str, watermark_ms: int) -> str:
    """What is said of a batch that is done: at which watermark the next one is planned, and where its state is."""
    return "v1\n" + json.dumps({"nextBatchWatermarkMs": watermark_ms, "result": result})


def commit_of(files: QueryFiles, number: int) -> dict[str, Any]:
    return (
        {"nextBatchWatermarkMs": 0} if number < 0 else dict(json.loads(files.read(f"commits/{number}").splitlines()[1]))
    )


def state_of(files: QueryFiles, number: int) -> dict[str, Any]:
    """The state behind a batch that is done."""
    if number < 0:
        return {"counts": [], "beat": None}
    return dict(json.loads(files.read(commit_of(files, number)["result"])))


def partitions_of(files: QueryFiles, number: int) -> int:
    """Into how many the state is divided in a batch."""
    return int(json.loads(files.read(f"offsets/{number}").splitlines()[1])["conf"][PARTITIONS])


def divided(counts: Mapping[str, int], partitions: int) -> list[dict[str, int]]:
    """By partition, what is kept there."""
    parts: list[dict[str, int]] = [{} for _ in range(partitions)]
    for key, count in counts.items():
        parts[partition_of(key, partitions)][key] = count
    return parts


def total(parts: Sequence[Mapping[str, int]]) -> int:
    return sum(count for part in parts for count in part.values())


def partition_of(key: str, partitions: int) -> int:
    return zlib.crc32(key.encode()) % partitions


class CountingQuery:
    """One of them. It runs in the thread that asks for its batches; one that stands planned runs at once."""

    def __init__(
        self,
        checkpoint: QueryFiles,
        initial: Mapping[str, Offset],
        bound: Sequence[BoundRange],
        *,
        by_clock: bool,
        partitions: int,
    ) -> None:
        self.by_clock = by_clock
        self.ahead_ms = 0
        self._checkpoint = checkpoint
        self._initial = initial
        self._bound: dict[str, Sequence[RecordSplit]] = {}
        self._offered: Mapping[str, Offset] | None = None
        self._results: dict[int, str] = {}
        self._has_run = False
        self._described = False
        self._planned = self._last("offsets")
        self._done = self._last("commits")
        self._partitions = partitions if self._planned < 0 else partitions_of(checkpoint, self._planned)
        if self._planned > self._done >= 0:
            assert self._partitions == partitions_of(checkpoint, self._done), "its state is not yet divided"
        for one in bound:
            self.bind(one)
        self._begun: ExecutedBatch | TransformationFailed | None = None
        if self._planned > self._done:
            try:
                self._begun = self._execute(self._planned)
            except TransformationFailed as error:  # as of a query of Spark's, whoever asks for the batch hears of it
                self._begun = error

    def bind(self, bound: BoundRange) -> None:
        self._bound[json.dumps([bound.start, bound.end], sort_keys=True)] = bound.splits

    def offer(self, offsets: Mapping[str, Offset]) -> None:
        self._offered = offsets

    def next_batch(self) -> ExecutedBatch | None:
        begun, self._begun = self._begun, None
        if isinstance(begun, TransformationFailed):
            raise begun
        if begun is not None:
            return begun
        if self._planned == self._done:
            ends, self._offered = self._offered, None
            assert ends is not None, "nothing was offered"
            if ends == self._ends(self._planned) and not self._is_due():
                return None
            self._plan(ends)
        return self._execute(self._planned)

    def has_batch(self) -> bool:
        if self.by_clock and self._offered is None and self._planned == self._done and self._is_due():
            self._plan(self._ends(self._done))
            self._begun = self._execute(self._planned)
        return self._begun is not None

    def _is_due(self) -> bool:
        """Whether a batch without records is. As Spark, it sees to that behind a batch of its own only."""
        return self._has_run and self._next_watermark_ms() > watermark_of(self._checkpoint, self._done)

    def _next_watermark_ms(self) -> int:
        return int(commit_of(self._checkpoint, self._done)["nextBatchWatermarkMs"])

    def _plan(self, ends: Mapping[str, Offset]) -> None:
        self._planned += 1
        lines = ["v1", conf(self._partitions, self._next_watermark_ms()), *map(json.dumps, ends.values())]
        self._write(f"offsets/{self._planned}", "\n".join(lines))

    def finish(self, batch: ExecutedBatch) -> None:
        self._write(f"commits/{batch.number}", self._results[batch.number])
        self._done = batch.number
        self._has_run = True

    def state(self) -> StateReport:
        return StateReport()

    def watermark(self) -> int:
        """The time of a key is its code: that of the latest one."""
        return max((ord(key) for part in self._after(self._done)["counts"] for key in part), default=0) + self.ahead_ms

    def watermarks(self) -> Mapping[str, int | None]:
        """A record is a millisecond later than the one before."""
        after = self._after(self._done)
        return {"src": total(after["counts"]) or None, "quiet": after["beat"]}

    def stop(self) -> None:
        pass

    def _execute(self, number: int) -> ExecutedBatch:
        self._describe(number)
        starts, ends = self._ends(number - 1), self._ends(number)
        before = self._after(number - 1)
        parts: list[dict[str, int]] = before["counts"] or divided({}, self._partitions)
        assert len(parts) == self._partitions
        kept, beat = total(parts), before["beat"]
        out: list[str] = []
        late: list[str] = []
        for source, end in ends.items():
            if is_beats(source) and end != starts[source]:
                [split] = self._bound[json.dumps([starts[source], end], sort_keys=True)]
                [rows] = split.read()
                beat = round(rows.column("at")[0].as_py().timestamp() * 1000)
            elif end != starts[source]:
                for split in self._bound[json.dumps([starts[source], end], sort_keys=True)]:
                    for batch in split.read():
                        for payload in batch.column("payload").to_pylist():
                            if payload == BAD:
                                raise TransformationFailed("no key", reason="no key")
                            key = payload.decode()
                            if ord(key) <= end.get("watermark_ms", -1):
                                late.append(f"{key} not after {chr(end['watermark_ms'])}")
                                continue
                            counts = parts[partition_of(key, self._partitions)]
                            counts[key] = counts.get(key, 0) + 1
                            out.append(f"{key} {counts[key]}")
        watermark_ms = watermark_of(self._checkpoint, number)
        reads = bool(out or late or beat != before["beat"])
        if watermark_ms > watermark_of(self._checkpoint, number - 1) and (self.by_clock or not reads):
            out.insert(0, f"closed {kept}" + ("" if beat is None else f", silent up to {beat}"))
        result = f"state/{number}-{uuid.uuid4().hex}"
        self._write(result, json.dumps({"counts": parts, "beat": beat}))
        self._results[number] = commit(result, watermark_ms + reads)
        outputs = {"out": out, **({"late": late} if late else {})}
        return ExecutedBatch(number, {sink: [_lines(lines)] for sink, lines in outputs.items()})

    def _describe(self, number: int) -> None:
        """As Spark does in a query's first batch: what the operator keeps is read where its metadata says, by whole
        paths, and said again, beside a checksum. Whose paths are another's finds nothing, or what a stale query left.
        """
        if self._described:
            return
        self._described = True
        numbers = self._checkpoint.numbers(METADATA)
        if not numbers:
            schema = f"state/0/_stateSchema/default/{number}_{uuid.uuid4().hex}"
            self._write(schema, "counts")
            self._write_metadata(number, [f"{self._checkpoint.url}/{schema}"])
            return
        text, checksum = self._checkpoint.read(f"{METADATA}/{numbers[-1]}"), f"{METADATA}/.{numbers[-1]}.crc"
        if self._checkpoint.there(checksum):
            assert int(self._checkpoint.read(checksum)) == zlib.crc32(text.encode()), f"{METADATA} is damaged"
        [store] = json.loads(text.partition("\n")[2])["stateStoreInfo"]
        for schema in store["stateSchemaFilePaths"]:
            assert self._checkpoint.read_url(schema) == "counts"
        if number not in numbers:
            self._write_metadata(number, store["stateSchemaFilePaths"])

    def _write_metadata(self, number: int, schemas: Sequence[str]) -> None:
        store = {"storeName": "default", "numPartitions": 1, "stateSchemaFilePaths": schemas}
        text = "v2\n" + json.dumps({"operatorInfo": {"operatorId": 0}, "stateStoreInfo": [store]})
        self._write(f"{METADATA}/.{number}.crc", str(zlib.crc32(text.encode())))
        self._write(f"{METADATA}/{number}", text)

    def _after(self, number: int) -> Any:
        """The state of the last batch that is done."""
        return state_of(self._checkpoint, number)

    def _ends(self, number: int) -> Mapping[str, Offset]:
        if number < 0:
            return self._initial
        lines = self._checkpoint.read(f"offsets/{number}").splitlines()[2:]
        return {offset["source"]: offset for offset in map(json.loads, lines)}

    def _last(self, of: str) -> int:
        return max(self._checkpoint.numbers(of), default=-1)

    def _write(self, name: str, text: str) -> None:
        write(self._checkpoint, name, text)


def _lines(lines: Sequence[str]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([line.encode() for line in lines], pa.binary())], names=["payload"])
