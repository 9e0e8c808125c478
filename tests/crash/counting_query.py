"""A streaming query without Spark, that keeps its plans, its state and its commits in files as Spark's does: for crash
tests of the rounds around it. It counts records by key, and gives out each record with its number.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from scribengin.base.failpoints import failpoint
from scribengin.connectors.contract import RecordSplit
from scribengin.errors import TransformationFailed
from scribengin.log.clients import hash_partitioner
from scribengin.spark.stateful.beats import is_beats
from scribengin.spark.stateful.offers import BoundRange, Offset
from scribengin.spark.stateful.query import ExecutedBatch
from scribengin.spark.transform.spec import Misplaced, StateReport

BAD = b"!"
"""What is no key: a batch that reads it fails."""


class CountingTransform:
    """Starts such queries."""

    def start(self, checkpoint: str, initial: Mapping[str, Offset], bound: Sequence[BoundRange]) -> CountingQuery:
        return CountingQuery(Path(checkpoint), initial, bound)

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


class CountingQuery:
    """One of them. It runs in the thread that asks for its batches; one that stands planned runs at once."""

    def __init__(self, checkpoint: Path, initial: Mapping[str, Offset], bound: Sequence[BoundRange]) -> None:
        self._checkpoint = checkpoint
        self._initial = initial
        self._bound: dict[str, Sequence[RecordSplit]] = {}
        self._offered: Mapping[str, Offset] | None = None
        self._results: dict[int, str] = {}
        self._planned = self._last("offsets")
        self._done = self._last("commits")
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
            if ends == self._ends(self._planned) and not self._after(self._done)["due"]:
                return None
            self._planned += 1
            self._write(f"offsets/{self._planned}", "\n".join(["v1", "{}", *map(json.dumps, ends.values())]))
        return self._execute(self._planned)

    def finish(self, batch: ExecutedBatch) -> None:
        self._write(f"commits/{batch.number}", self._results[batch.number])
        self._done = batch.number

    def state(self) -> StateReport:
        return StateReport()

    def watermarks(self) -> Mapping[str, int | None]:
        """A record is a millisecond later than the one before."""
        after = self._after(self._done)
        return {"src": sum(after["counts"].values()) or None, "quiet": after["beat"]}

    def stop(self) -> None:
        pass

    def _execute(self, number: int) -> ExecutedBatch:
        starts, ends = self._ends(number - 1), self._ends(number)
        before = self._after(number - 1)
        counts, beat = dict(before["counts"]), before["beat"]
        out = []
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
                            counts[key] = counts.get(key, 0) + 1
                            out.append(f"{key} {counts[key]}")
        due = ends != starts
        if not due:
            out.append(f"closed {sum(counts.values())}" + ("" if beat is None else f", silent up to {beat}"))
        result = f"state/{number}-{uuid.uuid4().hex}"
        self._write(result, json.dumps({"counts": counts, "due": due, "beat": beat}))
        self._results[number] = result
        payloads = pa.array([line.encode() for line in out], pa.binary())
        return ExecutedBatch(number, {"out": [pa.record_batch([payloads], names=["payload"])]})

    def _after(self, number: int) -> Any:
        """The state of the last batch that is done."""
        if number < 0:
            return {"counts": {}, "due": False, "beat": None}
        return json.loads((self._checkpoint / (self._checkpoint / f"commits/{number}").read_text()).read_text())

    def _ends(self, number: int) -> Mapping[str, Offset]:
        if number < 0:
            return self._initial
        lines = (self._checkpoint / f"offsets/{number}").read_text().splitlines()[2:]
        return {offset["source"]: offset for offset in map(json.loads, lines)}

    def _last(self, of: str) -> int:
        return max((int(path.name) for path in self._checkpoint.glob(f"{of}/*")), default=-1)

    def _write(self, name: str, text: str) -> None:
        """As Spark does: with what is missing above it, also where the directory was moved away."""
        path = self._checkpoint / name
        with failpoint("query.write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
