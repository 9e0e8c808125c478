"""A sink of one's own: boxes of records on a shelf, which readers see once they are opened."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import pyarrow as pa

from scribengin.base.commit_log import CommitDescriptor
from scribengin.base.failpoints import failpoint
from scribengin.connectors import Environment
from scribengin.connectors.contract import PAYLOAD, Attempt, Sink, SinkStreamDescriptor, SinkStreamWriter
from scribengin.errors import RecordRefused, StaleOwner
from scribengin.testing.simulation import SinkSystem

Box = list[bytes]


class Shelf(SinkSystem):
    """The system: everything that outlives a process."""

    def __init__(self) -> None:
        self.closed: defaultdict[str, dict[str, Box]] = defaultdict(dict)
        self.opened: defaultdict[str, dict[str, Box]] = defaultdict(dict)
        self.epochs: defaultdict[str, int] = defaultdict(int)
        self.boxes = 0

    def fence(self, stream: str, epoch: int) -> None:
        """From now on nobody of an earlier epoch changes anything."""
        if epoch < self.epochs[stream]:
            raise StaleOwner(f"{stream} has an owner of epoch {self.epochs[stream]}, and this is {epoch}")
        self.epochs[stream] = epoch

    def open_sink(self, name: str, environment: Environment) -> Sink:
        return ShelfSink(name, self)

    def staged(self) -> Sequence[str]:
        return [f"{stream}/{box}" for stream, boxes in self.closed.items() for box in boxes]


class ShelfWriter(SinkStreamWriter):
    """Puts what it is given into one box a round."""

    def __init__(self, shelf: Shelf, stream: str, epoch: int) -> None:
        self._shelf = shelf
        self._stream = stream
        self._epoch = epoch
        self._box: Box = []

    def recover(self, committed: CommitDescriptor | None) -> None:
        self._shelf.fence(self._stream, self._epoch)
        if committed is not None:
            self.complete_commit(committed)
        self.rollback()

    def check(self, batch: pa.RecordBatch) -> None:
        if batch.column(PAYLOAD).null_count:
            raise RecordRefused("a record without a payload has no place in a box")

    def write(self, batch: pa.RecordBatch) -> None:
        self.check(batch)
        self._box += batch.column(PAYLOAD).cast(pa.binary()).to_pylist()

    def prepare_commit(self) -> CommitDescriptor | None:
        if not self._box:
            return None
        box, self._box = self._box, []
        with failpoint("shelf.close"):
            self._shelf.fence(self._stream, self._epoch)
            self._shelf.boxes += 1
            name = f"box-{self._shelf.boxes}"
            self._shelf.closed[self._stream][name] = box
        return CommitDescriptor(kind="shelf", records=len(box), data={"box": name})

    def complete_commit(self, committed: CommitDescriptor) -> None:
        name = str(committed.data["box"])
        with failpoint("shelf.open"):
            if name not in self._shelf.opened[self._stream]:
                if name not in self._shelf.closed[self._stream]:
                    raise StaleOwner(f"{name} of {self._stream} was thrown away by a later owner")
                self._shelf.opened[self._stream][name] = self._shelf.closed[self._stream].pop(name)

    def rollback(self) -> None:
        self._box = []
        with failpoint("shelf.throw_away"):
            self._shelf.fence(self._stream, self._epoch)
            self._shelf.closed[self._stream].clear()

    def close(self) -> None:
        """What is in a closed box stays there."""


class ShelfSink(Sink):
    """All streams of a shelf."""

    def __init__(self, name: str, shelf: Shelf) -> None:
        self._name = name
        self._shelf = shelf

    @property
    def resource(self) -> str:
        return "shelf"

    def streams(self, count: int) -> list[SinkStreamDescriptor]:
        return [SinkStreamDescriptor(sink=self._name, resource=self.resource, name=str(n)) for n in range(count)]

    def create(self, streams: Sequence[SinkStreamDescriptor]) -> None:
        """A stream is there as soon as something is put into it."""

    def open_writer(self, stream: SinkStreamDescriptor, attempt: Attempt) -> SinkStreamWriter:
        return ShelfWriter(self._shelf, stream.name, attempt.epoch)

    def committed(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        for box in self._shelf.opened[stream.name].values():
            yield pa.record_batch({PAYLOAD: pa.array(box, pa.binary())})

    def close(self) -> None:
        """Nothing is held."""
