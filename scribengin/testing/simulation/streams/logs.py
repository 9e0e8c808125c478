"""The log store in a simulation: its own source and sink, writers and readers, over segments on a disk in memory.

All processes are on one machine and share its disk, as those of a store of files do. One that is killed leaves what it
has written in the page cache; when the power fails, what was not synced is lost, or torn. Writers of the input logs are
processes like the engine's: they die as often, and another one finds out from the log itself what it holds. Readers of
the output logs are people's, who remember all that they have seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scribengin.base.model import Position, node_name
from scribengin.connectors import Environment
from scribengin.connectors.contract import PAYLOAD, StartAt
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.errors import InconsistentLog, LogError, ReaderBehind
from scribengin.launcher.contract import ContainerRequest
from scribengin.log import DLSN, LogConfig, LogNamespace, LogWriter, SegmentDescriptor
from scribengin.log.store.index import DamagePlace, EntryPlace, walk
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.segments import MEMORY_STORE, MemorySegmentStore
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.plan import Plan
from scribengin.testing.simulation.streams.contract import RECORDS_FOR_S, SimulatedStreams
from scribengin_registry.errors import RegistryError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from scribengin.testing.simulation.machine import Container
    from scribengin.testing.simulation.registry import SimulatedSession
    from scribengin.testing.simulation.world import World

NAMESPACE = "/logs"
CLIENTS = "clients"
"""Stands for the dataflow of processes that belong to none."""
_STAGES = ("in", "out", "end", "last")
"""What the logs are called that a chain reads and writes, from its beginning on."""
_KEPT = LogConfig(segment_bytes_max=4096, segment_age_max_s=1.5)
_SEGMENTS = _KEPT.model_copy(update={"retention_hours": 2 / 3600})
_WAITED_FOR = 0.7
"""How often a writer waits for what it has just written, before it goes on."""
_GIVEN_UP_AFTER_S = 6.0
_AGAIN_S = 0.5
_TIDIED_EVERY_S = 1.5


class LogStreams(SimulatedStreams):
    """Logs `in/0` and so on, through a chain of dataflows, to `out/0`, `end/0` or `last/0` and so on; or to each of the
    last two."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.disk = MemoryDisk("simulated")
        self.disk.hook = lambda _operation: world.scheduler.refuse_ended()
        self._inputs = [f"in/{number}" for number in range(world.plan.streams)]
        self._ends = ends_of(world.plan)
        self._sure: dict[str, int] = dict.fromkeys(self._inputs, 0)
        """How many records of each log are acknowledged."""
        self._seen: dict[str, list[bytes]] = {}
        self._logs: LogNamespace | None = None
        self._tidies = True
        self._hidden: set[str] = set()
        """Logs that had more, as a rewind has seen, before the power failed."""

    @property
    def logs(self) -> LogNamespace:
        """The namespace, as people open it."""
        assert self._logs is not None, "it has begun"
        return self._logs

    def endpoints(self, flow: int) -> dict[str, Any]:
        return {
            "sources": {"in": {"kind": "log", "logs": f"{self._read_stage(flow)}/*", "namespace": NAMESPACE}},
            "sinks": {"out": {"kind": "log", "log": _STAGES[flow + 1], "namespace": NAMESPACE}},
        }

    def resources(self, flow: int) -> list[str]:
        return [f"log:{NAMESPACE}/{_STAGES[flow + 1]}"]

    def open_dataflow(self, config: DataflowConfig, environment: Environment) -> OpenedDataflow:
        return OpenedDataflow(config, environment)

    def begin(self, session: SimulatedSession) -> None:
        LogNamespace.bind(NAMESPACE, self.disk.name, registry=session, store=MEMORY_STORE)
        self._logs = LogNamespace.open(NAMESPACE, registry=session, clock=self.world.clock)
        for log in self._inputs:
            self.logs.create(log, _SEGMENTS)
        for stage in _STAGES[1 : self.world.plan.flows + 1]:
            self.logs.create(f"{stage}/0", _KEPT if stage in self._ends else _SEGMENTS)
        for log in self._inputs:
            self.world.later(0.0, f"clients-{log}", partial(self._have_written, log, session.hosts))
        self.world.later(0.0, "readers", self._have_read)
        self.world.later(_TIDIED_EVERY_S, "tidying", self._tidy)

    def behind(self, committed: Mapping[str, Any], missing: list[bytes]) -> list[bytes]:
        return []  # positions in logs are no numbers of records

    def numbers_at(self, path: str, position: Position | None) -> dict[str, int]:
        logs = [log for log in self._inputs if f"/{node_name(log)}/" in path]
        later = [log for log in self._read_by(1) if f"/{node_name(log)}/" in path]
        return {
            **{log: 0 if position is None else self._number_at(log, position) for log in logs},
            **{log: 0 if position is None else _place(_dlsn(position)) for log in later},
        }

    def passed_over(self, source: str, before: Position | None, after: Position | None) -> None:
        begin = None if before is None else _dlsn(before)
        if source not in self._inputs and after is not None and (begin is None or begin < _dlsn(after)):
            self._pass_over(source, begin, _dlsn(after))

    def _pass_over(self, log: str, begin: DLSN | None, end: DLSN) -> None:
        """Tell of what stands there, as readers see it: at once, and nobody has purged it."""
        with self.world.scheduler.at_once(), self.logs.open_reader(log, begin) as reader:
            records = [record for record in reader.read(1_000_000) if record.dlsn < end]
            there = reader.position
        if there >= end:
            self.world.seen.passed_over(log, {_place(record.dlsn): record.payload for record in records})
            self._hidden.discard(log)
            return
        if not self.world.plan.harms_disks:
            oracle.check_passed_over(log, end, there)
        self._hidden.add(log)  # until a writer recovers it
        self.world.later(_AGAIN_S, "readers", partial(self._pass_over, log, begin, end))

    def _read_by(self, flow: int) -> list[str]:
        if flow >= self.world.plan.flows:
            return []
        with self.world.scheduler.at_once():
            return self.logs.matching(f"{self._read_stage(flow)}/*")

    def _read_stage(self, flow: int) -> str:
        return _STAGES[min(flow, 1) if self.world.plan.fork else flow]

    def _number_at(self, log: str, position: Position) -> int:
        """Records have the numbers that the log counts them by. The disk tells, and not the log's readers: after a
        power failure these see less than they did, until a writer recovers what was durable."""
        dlsn, number = _dlsn(position), 0
        with self.world.scheduler.at_once():
            segments = self.logs.segments(log)
            for segment in segments:
                if segment.segment > dlsn.segment:
                    return max(number, segment.start_sequence)
                for place in self._places(segment):
                    if segment.segment == dlsn.segment and place.header.entry >= dlsn.entry:
                        within = dlsn.slot if place.header.entry == dlsn.entry else 0
                        return min(place.header.sequence + within, place.header.end_sequence)
                    number = place.header.end_sequence
                number = max(number, segment.start_sequence)
            return number if segments else self.logs.info(log).head.next_sequence  # all before it was truncated

    def some_place(self, chance: Random, flow: int) -> StartAt | None:
        logs = self._inputs if flow == 0 else self._read_by(flow)
        with self.world.scheduler.at_once():
            segments = self.logs.segments(chance.choice(logs))
            places = [
                DLSN(segment.segment, place.header.entry, slot)
                for segment in segments
                for place in self._places(segment)
                for slot in range(place.header.records)
            ]
        if not places:
            return None
        at = chance.choice(places)
        return StartAt("dlsn", f"{at.segment}/{at.entry}/{at.slot}")

    def _places(self, segment: SegmentDescriptor) -> Iterator[EntryPlace]:
        """Of all whole entries of a segment, whether readers see them or not."""
        with closing(MemorySegmentStore(self.disk).open(segment.file)) as view:
            for place in walk(view, 0, view.size() if segment.in_progress else segment.bytes):
                if isinstance(place, DamagePlace):
                    return
                yield place

    # -- who writes

    def _have_written(self, log: str, hosts: str) -> None:
        """Have the log written by one process after the other, until it has all of its records, and was closed. Now and
        then the next one is launched while the one before goes on: somebody has given it up too early."""
        world, chance, attempt = self.world, self.world.scheduler.random, 0
        while self._sure[log] < world.plan.records or self._unfinished(log):
            world.scheduler.pass_time(chance.uniform(0.0, 2.0))
            attempt += 1
            name = f"writer-{log}-{attempt}"
            container = world.machine.start(ContainerRequest(hosts, CLIENTS, name, [log], memory_mb=1))
            given_up_s = world.scheduler.now_s + chance.expovariate(1 / _GIVEN_UP_AFTER_S)
            while container.exit is None and world.scheduler.now_s < given_up_s:
                world.scheduler.pass_time(_AGAIN_S)

    def be_client(self, container: Container, session: SimulatedSession) -> None:
        log = container.request.argv[0]
        with LogNamespace.open(NAMESPACE, registry=session, clock=self.world.clock) as logs:
            while self._sure[log] < self.world.plan.records or self._unfinished(log):
                try:
                    self._write(logs, log)
                except (LogError, RegistryError) as error:
                    self.world.tell(f"writes {log} anew: {error}")
                    self.world.scheduler.pass_time(_AGAIN_S)

    def _write(self, logs: LogNamespace, log: str) -> None:
        world, chance = self.world, self.world.scheduler.random
        with logs.open_writer(log, steal=chance.random() < 0.5) as writer:
            sure = self._sure[log]  # before the look: whoever steals the log after it may write while it is answered
            head = logs.info(log).head
            if head.in_progress or head.epoch > writer.epoch:
                return  # somebody else has it by now
            first = head.next_sequence
            world.judged(partial(oracle.check_recovered, log, first, sure))
            self._acknowledge(log, first)
            for number in range(first, world.plan.records):
                self._append(writer, log, number)
                world.scheduler.pass_time(chance.expovariate(world.plan.records / RECORDS_FOR_S))
            writer.flush()

    def _append(self, writer: LogWriter, log: str, number: int) -> None:
        def written(future: Future[DLSN]) -> None:
            if future.exception() is None:
                self._acknowledge(log, number + 1)

        future = writer.write(oracle.payload_of(log, number))
        future.add_done_callback(written)
        if self.world.scheduler.random.random() < _WAITED_FOR:
            future.result()

    def _acknowledge(self, log: str, count: int) -> None:
        """The log's writer was told that so many records are safe, or has found them once they were."""
        for number in range(self._sure[log], count):
            self.acknowledged.append(oracle.payload_of(log, number))
        self._sure[log] = max(count, self._sure[log])

    # -- who reads

    def _have_read(self) -> None:
        while True:
            for log in [log for end in self._ends for log in self.logs.matching(f"{end}/*")]:
                if log not in self._seen:
                    self._seen[log] = []
                    self.world.later(0.0, f"reader-{log}", partial(self._follow, log))
            self.world.scheduler.pass_time(_AGAIN_S)

    def _follow(self, log: str) -> None:
        position: DLSN | None = None
        while True:
            with suppress(OSError), self.logs.open_reader(log, position) as reader:  # the power failed: open it again
                while True:
                    batch = reader.read_batch(timeout_s=1.0)
                    if batch is not None:
                        position = reader.position
                        self._saw(log, batch)
            self.world.scheduler.pass_time(_AGAIN_S)

    def _saw(self, log: str, batch: pa.RecordBatch) -> None:
        payloads = tuple(batch.column(PAYLOAD).to_pylist())
        self._seen[log] += payloads
        self.world.became_visible(log, payloads)

    # -- who tidies up

    def _tidy(self) -> None:
        """Truncate what dataflows have read, as far as the logs' registered readers allow it."""
        while self._tidies:
            for log in [log for log in self.logs.names() if not self._is_kept(log)]:
                with suppress(OSError, ReaderBehind, InconsistentLog):  # the power may have failed between two looks
                    self._truncate(log)
                with suppress(OSError):
                    self.logs.purge(log)
            self.world.scheduler.pass_time(self.world.scheduler.random.uniform(0.5, 2.0) * _TIDIED_EVERY_S)

    def _is_kept(self, log: str) -> bool:
        return log.partition("/")[0] in self._ends or log in self._hidden

    def _truncate(self, log: str) -> None:
        try:
            self.logs.truncate(log, self.logs.end_dlsn(log))
        except ReaderBehind:
            readers = self.logs.registered_readers(log)
            self.logs.truncate(log, min(readers.values()))

    # -- what happens to the disk

    def lose_unsynced(self) -> None:
        self.disk.lose_unsynced(self.world.scheduler.random.getrandbits(32))

    def fill_up(self, seconds: float) -> None:
        def make_room() -> None:
            self.disk.room_bytes = None

        self.disk.room_bytes = self.world.scheduler.random.randrange(2048)
        self.world.later(seconds, "room", make_room)

    def lose_power(self) -> None:
        self.disk.crash(self.world.scheduler.random.getrandbits(32))

    # -- what is left of it

    def judge(self) -> None:
        self._tidies = False
        self.world.scheduler.pass_time(2 * _TIDIED_EVERY_S)  # what it has begun comes to its end
        names = self.logs.names()
        oracle.check_nothing_staged({log: self._unfinished(log) for log in names if log not in self._inputs})
        self.world.seen.check_between()
        for log, seen in self._seen.items():
            oracle.check_still_there(log, seen, self._whole(log))
        for log in names:
            oracle.check_sound(log, self._findings(log))
            self.logs.open_writer(log).close()
            self.logs.purge(log)
        oracle.check_no_leftovers([name for log in names for name in self._unnamed(log)], [], [])

    def _unfinished(self, log: str) -> list[str]:
        return [segment.node for segment in self.logs.segments(log) if segment.in_progress]

    def _whole(self, log: str) -> list[bytes]:
        with self.logs.open_reader(log) as reader:
            return [record.payload for record in reader.read(1_000_000)]

    def _findings(self, log: str) -> list[str]:
        inspection = self.logs.inspect(log)
        found = [*inspection.metadata_check.findings, *(f for report in inspection.segments() for f in report.findings)]
        return [str(finding) for finding in found]

    def _unnamed(self, log: str) -> list[str]:
        """Files that hold something and that no node names. A late writer may leave an empty one."""
        named = {segment.file for segment in self.logs.segments(log)}
        store, directory = MemorySegmentStore(self.disk), self.logs.info(log).log.directory
        return [str(name) for name in store.names(directory) if name not in named and store.open(name).size()]


def ends_of(plan: Plan) -> tuple[str, ...]:
    """What the logs are called that no dataflow reads."""
    return _STAGES[2 : plan.flows + 1] if plan.fork else (_STAGES[plan.flows],)


def _dlsn(position: Position) -> DLSN:
    return DLSN(int(position["segment"]), int(position["entry"]), int(position["slot"]))


def _place(dlsn: DLSN) -> int:
    return oracle.place_number(dlsn.segment, dlsn.entry, dlsn.slot)
