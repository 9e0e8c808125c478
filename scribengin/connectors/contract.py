"""What a system must offer to be a source or a sink. There is deliberately no `commit()` here.

A round (docs/internals/round.md) plans ranges of source streams, runs the transformation, lets every sink stream
make the output durable and invisible, and then moves the commit logs of all its streams in one registry transaction.
That transaction is the commit. A connector therefore never commits: it *stages* before it and *completes* after it, and
must be able to do the latter again, in another process, from the `CommitDescriptor` alone.

The mistakes this contract invites:
- A sink that makes output visible in `prepare_commit`. The round may still be rolled back, and will be, one day.
- A sink that finds out in `complete_commit` that something is missing. Whatever can fail must fail in `prepare_commit`.
- A `recover` that rolls back before the caller has fenced the commit log. Fence, then look: the caller does the first.
- A source whose `plan` depends on anything but the position and the limits: a range must read the same records again.
- A `TransactionCoordinator` that asks its system before it has fenced it there, or takes "I do not know" for "no".

Not promised: that `complete_commit` is called by the process that called `prepare_commit`, or only once.

`scribengin.testing.check_source` and `check_sink` hold an implementation against all of this, call by call;
`scribengin.testing.simulation.simulate_sink` does so in simulated clusters (docs/internals/connectors.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol, Self

import pyarrow as pa
from pydantic import model_validator

from scribengin.base.commit_log import CommitDescriptor, Decision
from scribengin.base.jvm import JvmUse
from scribengin.base.model import LIVE, NEVER, RESTART, Config, Descriptor, JsonObject, Position, TakesEffect
from scribengin.base.records import PAYLOAD as PAYLOAD
from scribengin.base.records import RECORD_SCHEMA as RECORD_SCHEMA
from scribengin.errors import ConfigInvalid, DataflowError
from scribengin_registry.contract import Operation, Registry

# RECORD_SCHEMA is what connectors of records read and write: a payload, and beside it what the system can carry. A
# source may add columns after these. Its sinks take batches that have at least `payload`, in any column order, and of
# the other columns those of `Sink.side_columns`. Systems of columns (Parquet, tables) have schemas of their own: their
# sources have no `payload` unless a column is called so, and their sinks, of format `columns`, take whatever comes.

SIDE_COLUMNS = pa.schema([RECORD_SCHEMA.field(name) for name in ("txid", "channel", "key")])
"""What a record may carry beside its payload, unless its sink says otherwise."""

DIVIDED_BY = "scribengin divided by"
"""Beside the payload in what a transformation gives a divided sink: the record's key, binary. Writers never see it."""

RECORD_BYTES_MAX = 16 * 1024 * 1024
"""What a source takes of one record, unless its configuration says otherwise: a longer one could fill a worker."""

BYTES_UNLIMITED = 1 << 62
"""Of `RoundLimits`: the number of records is the limit."""

Guarantee = Literal["exactly once", "at least once"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a source or a sink is, told from its configuration alone. Two sinks with one endpoint write one thing."""

    noun: str
    """What the system calls such a thing: `log`, `topic`, `files`."""
    system: str = ""
    """Which of several systems it is in: a namespace, a cluster's brokers; "" where a name says all."""
    name: str = ""
    """Its name there; of a source that reads several, as it names them. "": its configuration does not tell."""

    def __str__(self) -> str:
        return f"{self.noun} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Division:
    """Among how many streams records are divided, by the values of which columns: those of a sink's output, or those
    that a transformation sees of a source."""

    streams: int
    columns: tuple[str, ...]


class SourceConfig(Config):
    """The part of a source's configuration that every connector has. Subclasses make `kind` a literal."""

    edits_of_fields: ClassVar[TakesEffect | None] = RESTART

    kind: Annotated[str, NEVER]
    format: Literal["raw", "json"] = "raw"
    """`raw`: the transformation sees the source's columns. `json`: payloads are decoded to `schema_ddl`, and
    the other columns are seen as `_<name>`."""
    schema_ddl: str | None = None
    """Spark DDL of the decoded columns, as in `id BIGINT, carrier STRING`; required with `format: json`."""
    paused: Annotated[bool, LIVE] = False
    """Nothing is read from it until this is edited back; the other sources go on."""

    @model_validator(mode="after")
    def _schema_goes_with_json(self) -> Self:
        if (self.format == "json") != (self.schema_ddl is not None):
            raise ValueError("schema_ddl goes with format: json, and only with it")
        return self

    def endpoint(self) -> Endpoint:
        """Where it reads."""
        return Endpoint(self.kind)

    def reads(self, thing: Endpoint) -> bool:
        """Whether it reads that very thing."""
        return False

    def still_reads(self, stream: str, before: SourceConfig) -> bool:
        """Whether it reads that stream, which was found by the configuration `before`."""
        return True

    def meets(self, sink: Endpoint) -> bool:
        """Whether it reads what a sink with that endpoint writes."""
        return self.reads(sink)

    def reads_again(self, first: Endpoint) -> bool:
        """Whether what a sink of the same dataflow writes (`first`: its first stream or file) comes again, for ever."""
        return self.reads(first)

    @property
    def division(self) -> Division | None:
        """How whoever wrote it has divided the records among its streams: number k of `streams()` is stream k. None:
        nobody says."""
        return None

    @property
    def awaited(self) -> bool:
        """Whether what it reads is held back until it was read, so that others can wait for it."""
        return False

    @property
    def endless(self) -> bool:
        """Whether others may come, or these go on, when all streams have ended: a dataflow that reads it does not end
        by itself."""
        return False


@dataclass(frozen=True, slots=True)
class ReadBack:
    """A source of what a sink writes, and which of its streams are the sink's: a pattern that a whole name matches."""

    source: SourceConfig
    streams: str


class SinkConfig(Config):
    """The part of a sink's configuration that every connector has. Subclasses make `kind` a literal. A connector of
    columns adds `columns` to the choices of `format`: the output's columns reach the writer as they are."""

    kind: str
    format: Literal["raw", "json"] = "raw"
    """`raw`: the transformation's output has a `payload` column (string or binary), and what else the sink carries
    beside it. `json`: the output's columns become one JSON object a record; what is a side column is called
    `_<name>`."""

    def endpoint(self) -> Endpoint:
        """Where it writes."""
        return Endpoint(self.kind)

    def first(self) -> Endpoint:
        """The first stream or file of what it writes, by its configuration."""
        return self.endpoint()

    def read_back(self) -> ReadBack | None:
        """How all that it writes is read as a source. None: only `Sink.committed` tells."""
        return None

    @property
    def division(self) -> Division | None:
        """How one task's records are divided among several streams. None: a task writes one."""
        return None

    def seen_late(self) -> str:
        """For people, where committed output is not where they look for it at once: where, and when it is."""
        return ""


class SourceStreamDescriptor(Descriptor):
    """One stream of a source, the unit that tasks are made of. `name` is stable: positions are kept under it."""

    source: str
    name: str
    data: JsonObject = {}
    number: int | None = None
    """Which one it is of those among which the records are divided by their keys."""


class SinkStreamDescriptor(Descriptor):
    """One stream of a sink: one writer at a time. `resource` and `name` name the physical thing, not the dataflow."""

    sink: str
    resource: str
    name: str
    data: JsonObject = {}
    number: int | None = None
    """Which one it is of those among which the records are divided by their keys."""
    among: int | None = None
    """How many of these there are."""


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """How much one round may read from one source stream. A single record larger than `bytes_max` is still read."""

    records_max: int
    bytes_max: int
    files_max: int | None = None
    """So many files, where a stream is made of them."""


class RecordSplit(Protocol):
    """Records that any process can read: picklable, without a registry session or an open file.

    Spark's Python workers read splits side by side; `records` and `size_bytes` help to place them (estimates will do).
    """

    @property
    def records(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def read(self) -> Iterator[pa.RecordBatch]:
        """The records of the split in order, in the source's schema. Raises what the system raises; skips nothing."""
        ...


class ReadSplit(RecordSplit, Protocol):
    """A piece of a planned range."""

    def places(self, indices: Sequence[int], rows: pa.Table) -> list[str]:
        """Where some of its records stand, so that an operator finds them: a file and a line, a log and a DLSN.

        The records are numbered as `read` gives them, from 0, ascending, and `rows` are they. Asked only when an error
        is told, so it may read again. Raises what `read` raises.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """What a round reads from one source stream: the records in [start, end), in the order of `splits`."""

    start: Position
    end: Position
    records: int
    splits: tuple[ReadSplit, ...]
    again: JsonObject | None = None
    """What `plan_again` needs to find the same records, beside what every source has. None: it needs nothing."""


@dataclass(frozen=True, slots=True)
class PlannedAgain:
    """What is kept of a planned range, to plan it again."""

    start: Position
    end: Position
    records: int
    again: JsonObject | None
    """As `PlannedRange.again`."""


@dataclass(frozen=True, slots=True)
class StartAt:
    """Where operators have a stream read on: `value` is ms since the epoch, a DLSN as in 1/0/0, or an offset."""

    kind: Literal["earliest", "latest", "time", "dlsn", "offset"]
    value: int | str = 0

    def __str__(self) -> str:
        return self.kind if self.kind in ("earliest", "latest") else f"{self.kind} {self.value}"


class SourceStreamReader(ABC):
    """Reads one stream on behalf of one task. Used by one thread; `close` releases what it holds."""

    @abstractmethod
    def initial_position(self) -> Position:
        """Where a dataflow starts that has no position yet, as its configuration says (earliest, latest, ...)."""

    @abstractmethod
    def plan(self, position: Position, limits: RoundLimits) -> PlannedRange | None:
        """The next range from `position`, within `limits`, or None when there is nothing to read now. Does not block.

        Raises when the position has expired (with the choices spelled out) or the data is damaged. Never skips.
        """

    def plan_again(self, before: PlannedAgain) -> PlannedRange | None:
        """A range that was planned before, by whatever process, whatever has come since: the very records of it, up
        to the same end. None, or another end or number of records: they are not there any more.

        Raises as `plan`. By default that many records from the same start are the same ones, as in a log.
        """
        return self.plan(before.start, RoundLimits(before.records, BYTES_UNLIMITED))

    @abstractmethod
    def wait(self, position: Position, timeout_s: float) -> bool:
        """Block until there is something to read after `position`, or the timeout: whether there is."""

    @abstractmethod
    def lag(self, position: Position) -> int:
        """How many records lie between `position` and the end of the stream just now."""

    def refuse_gone(self, position: Position) -> None:
        """Raise PositionTruncated if what `position` names is gone just now, whatever the configuration has `plan` do
        then. By default what `lag` says. It may block for some seconds."""
        self.lag(position)

    @abstractmethod
    def ended(self, position: Position) -> bool:
        """Whether the stream was sealed and nothing lies after `position`, now or ever."""

    def committed(self, position: Position) -> None:  # noqa: B027  most systems have nowhere to show it
        """A round up to `position` was committed: show it where the system's own tools look. A mirror only: it must
        neither block nor fail, and nothing is ever read from it."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. Idempotent."""


class Source(ABC):
    """A source of one dataflow, split into streams."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of what its splits read: RECORD_SCHEMA's columns, then the connector's own; or, where the system
        has columns instead of payloads, those."""

    @property
    def remote_readable(self) -> bool:
        """Whether other machines can read its splits, too. False for what lies on this one's disks."""
        return True

    @property
    def jvm_a_process(self) -> JvmUse | None:
        """What each process that reads it has a JVM of its own for, beside Spark's: containers need room for them."""
        return None

    @property
    def record_bytes_max(self) -> int | None:
        """How much a record may take in Arrow, so that it is no bad one. None: splits hold no longer ones."""
        return None

    @abstractmethod
    def streams(self) -> list[SourceStreamDescriptor]:
        """The streams there are now, in a stable order. Raises SourceMissing when there is nothing of that name."""

    def retention_hold(self, streams: Sequence[SourceStreamDescriptor]) -> None:  # noqa: B027  most systems cannot
        """Have the system keep what the dataflow has not committed of these streams. Called by its master before there
        are tasks for them: until a worker opens a reader, nobody else would. Idempotent."""

    def goes_back(self, stream: SourceStreamDescriptor) -> Sequence[Operation]:
        """What the transaction needs in which a position of this stream goes back: it fails if anything of the stream
        was given up since this was asked, and so does whoever looked at the position before, and would give up what is
        to be read again. Nothing, where the system keeps no such account."""
        return ()

    def goes_on(self, stream: SourceStreamDescriptor, position: Position) -> bool:
        """Whether a stream that has ended at that position is there again, with something to read or with whoever
        writes it: then its task is run again. Asked of `endless` sources; by default what has ended stays so."""
        return False

    @property
    def streams_leave(self) -> bool:
        """Whether streams come and go. Once a task has finished, its streams may leave it to others: one that has is
        given a task again only when it `goes_on`. What it was read up to is remembered meanwhile."""
        return False

    @abstractmethod
    def open_reader(self, stream: SourceStreamDescriptor) -> SourceStreamReader:
        """A reader of one of the streams."""

    def position_at(self, stream: SourceStreamDescriptor, at: StartAt, before: Position | None = None) -> Position:
        """The position from which a stream is read from there on, which stands at `before` now (None: it was never
        read). Changes nothing.

        Raises ConfigInvalid for what this source cannot do, and when there is no such place. `earliest` every source
        should be able to.
        """
        raise ConfigInvalid(f"source '{stream.source}' cannot be rewound to {at}")

    @abstractmethod
    def close(self) -> None:
        """Release everything. Idempotent."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Who writes: staged output is private to one attempt, and what it leaves behind must be told from another's."""

    owner: str
    epoch: int
    commit_log: str
    """Registry path of the sink stream's commit log, for whoever finds staged output later."""
    coordinator: TransactionCoordinator | None = None
    """The task's transaction, for sinks that one decides about; it stays the caller's."""


class TransactionCoordinator(ABC):
    """The transaction of a system that nobody else can commit: all sinks of a task in that system share one.

    recover, (writers write, prepare, commit | abort)*, close. After an exception it is only good for `close`: the task
    is taken over again, with a new one. Between `prepare` and `commit` the caller records the round in the registry as
    prepared. What `commit` has made visible there is visible: the round can only go forward then.

    Whatever its system does not do in time raises SystemUnreachable; that another owner has fenced it, DecisionUnknown.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Where its system keeps the decisions: of this task alone, and always the same."""

    @property
    @abstractmethod
    def staged(self) -> bool:
        """Whether the transaction is open: a round in which no sink wrote anything there needs no decision."""

    @abstractmethod
    def recover(self) -> Decision | None:
        """Fence every owner before this one, bring to its end what they left, and only then ask for the last decision.

        None: the system knows of none, never had one or has forgotten it. The two are not told apart here.
        """

    @abstractmethod
    def establish(self, last: Decision) -> None:
        """Tell the system of a decision that it does not know (any more), committed at once: so that from now on its
        silence means that it has forgotten. Called before anything is prepared."""

    @abstractmethod
    def prepare(self, decision: Decision) -> None:
        """Make everything staged as durable as it can be without being visible, with `decision` in the transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Commit what was prepared. Raises DecisionUnknown unless it certainly has."""

    @abstractmethod
    def abort(self) -> None:
        """Drop what is staged, if anything is. Idempotent."""

    @abstractmethod
    def close(self) -> None:
        """Release everything, deciding nothing that was prepared. Idempotent; never raises."""


class SinkStreamWriter(ABC):
    """Writes one stream on behalf of one task, in this order:

    recover, (write*, prepare_commit, complete_commit | rollback)*, close.

    After an exception from any of them the writer is only good for `close`; a new one starts with `recover`.
    """

    @abstractmethod
    def recover(self, committed: CommitDescriptor | None) -> None:
        """Complete what `committed` names, and roll back everything else that is staged, by whomever. Idempotent.

        The caller has fenced the commit log before it read `committed` there. Also called on a writer in the middle of
        a round, when the outcome of its transaction was unknown.
        """

    @property
    def payload_bytes_max(self) -> int | None:
        """The largest payload that it takes; None: there is no such limit. Error records are cut to it."""
        return None

    def check(self, batch: pa.RecordBatch) -> None:  # noqa: B027  for sinks that can tell beforehand
        """Raise RecordTooLarge or RecordRefused for a record that `write` would refuse, staging nothing: then what it
        came from is a bad record, and goes where those go. Called for every batch: by columns, and not by rows."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Stage records, invisibly. Raises RecordTooLarge and the like before anything of the batch is staged."""

    @abstractmethod
    def prepare_commit(self) -> CommitDescriptor | None:
        """Make everything staged since the last round durable, still invisible. None when nothing was staged."""

    @abstractmethod
    def complete_commit(self, committed: CommitDescriptor) -> None:
        """Make visible what `committed` names. Idempotent. The transaction has committed: it must not fail for good."""

    @abstractmethod
    def rollback(self) -> None:
        """Drop everything staged since the last completed round."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; staged output stays for `recover` to judge. Idempotent."""


class Sink(ABC):
    """A sink of one dataflow, split into streams."""

    @property
    @abstractmethod
    def resource(self) -> str:
        """The physical thing that is written, named so that two dataflows that mean the same say the same."""

    @property
    def side_columns(self) -> pa.Schema:
        """What a record of this sink may carry beside `payload`, by name, in the types that `write` gets it in. An
        output may have any of these columns, or none."""
        return SIDE_COLUMNS

    @property
    def guarantee(self) -> Guarantee:
        """What holds for the output after a crash, as `explain` and `status` say it."""
        return "exactly once"

    @property
    def guarantee_note(self) -> str:
        """What the guarantee rests on, in a few words for people, where that is not the same for all such sinks."""
        return ""

    @property
    def jvm_a_process(self) -> JvmUse | None:
        """What each process that writes it has a JVM of its own for, beside Spark's: containers need room for them."""
        return None

    def refuse_unwritable(self) -> None:  # noqa: B027  most systems tell only who tries
        """Raise ConfigInvalid where this process can see that it may not write there. Changes nothing. Asked before a
        dataflow is started, by whoever starts it."""

    @abstractmethod
    def streams(self, count: int) -> list[SinkStreamDescriptor]:
        """Descriptors of the first `count` streams, in a stable order. Creates nothing."""

    @abstractmethod
    def create(self, streams: Sequence[SinkStreamDescriptor]) -> None:
        """Create what is missing for these streams to be written. Idempotent."""

    @abstractmethod
    def open_writer(self, stream: SinkStreamDescriptor, attempt: Attempt) -> SinkStreamWriter:
        """A writer of one of the streams. It takes the stream from whoever held it: the caller is its owner now."""

    def coordinator_id(self, stream: SinkStreamDescriptor) -> str | None:
        """The system that decides about what is written to the stream, if that is not the registry alone. Of all sinks
        of a task there may be one such system. Asks nobody."""
        return None

    def open_coordinator(self, stream: SinkStreamDescriptor, task: str) -> TransactionCoordinator:
        """The transaction of the task whose first stream in that system this is. Called where `coordinator_id` is not
        None, or a round is prepared that was decided so."""
        raise DataflowError(f"task {task} has a round that {stream.resource} should decide about, and it never decides")

    def maintain(self, registry: Registry, *, idle: bool) -> None:  # noqa: B027  most sinks need none
        """Called by the dataflow's master from time to time: merge files, drop what is old. Two masters may call it at
        once. `idle`: at the end of a drain, leave nothing for later."""

    @abstractmethod
    def committed(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        """What readers see of the stream now, in order, in RECORD_SCHEMA: for checks and for reading back."""

    def unreachable(self, stream: SinkStreamDescriptor) -> Iterable[pa.RecordBatch]:
        """What was committed behind that, and that nobody who answers has. It may be lost: who may have it has to
        answer first. Asked once `committed` has come to its end. The payload is null where it is only known that there
        is a record."""
        return ()

    @abstractmethod
    def close(self) -> None:
        """Release everything. Idempotent."""
