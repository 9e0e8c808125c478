"""Files in a simulation: our own source and sink of files, over files in memory whose power fails.

Each input stream is written to one file after another, a line a record, each durable when it is acknowledged. Files are
renamed while they are read, as those of logs are. The sink's files are merged all the while.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from scribengin.base.model import Position
from scribengin.connectors import AnySourceConfig, Environment, open_source
from scribengin.connectors.contract import Sink, Source, StartAt
from scribengin.connectors.files.sink.sink import FileSink, FileSinkConfig
from scribengin.connectors.files.source.listing import stream_of
from scribengin.filesystems.contract import NewFile
from scribengin.testing.memory.files import MemoryFiles
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.streams.connectors import InputStream
from scribengin.testing.simulation.streams.contract import RECORDS_FOR_S
from scribengin.testing.simulation.streams.sinks import SinkStreams, SinkSystem

if TYPE_CHECKING:
    from scribengin.testing.simulation.registry import SimulatedSession
    from scribengin.testing.simulation.world import World

PROTOCOL = "in-memory"
_DIRECTORY = "input"
_ANOTHER = 0.1
"""How often a stream goes on in another file."""
_RENAMED = 0.1
_AGAIN_S = 0.5


class FilesInMemory(SinkSystem):
    """Our own sink of files, merged at once, on a machine that loses power."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self._opened = ExitStack()
        self.root = self._opened.enter_context(self.files.opened_by(PROTOCOL))
        self._config = FileSinkConfig(kind="hdfs", path=f"{self.root}out", merge_age_s=1.0, merge_bytes=100)

    def open_sink(self, name: str, environment: Environment) -> Sink:
        return FileSink(name, self._config, environment.registry, environment.nodes, environment.clock)

    def staged(self) -> list[str]:
        return [info.name for info in self.files.find("out/_scribengin") if info.name.startswith(("staged", "merging"))]

    def lose_power(self, seed: int) -> None:
        self.files.crash(seed)

    def close(self) -> None:
        self._opened.close()


@dataclass
class _InputFile:
    """A file that is, or was, written: its records say that they are from `name`."""

    name: str
    path: str
    file: NewFile
    identity: str
    ends: list[int] = field(default_factory=list)
    """Where each record ends, in bytes."""
    renamed: int = 0


class FileStreams(SinkStreams):
    """From a directory to another one."""

    def __init__(self, world: World, system: FilesInMemory) -> None:
        super().__init__(world, system)
        self._files = system.files
        self._root = system.root
        self._boots = 0
        self._input_files: list[_InputFile] = []

    def begin(self, session: SimulatedSession) -> None:
        self._files.make_directories(_DIRECTORY)
        self._files.sync_directory("")
        super().begin(session)

    def source_config(self) -> dict[str, Any]:
        return {"kind": "hdfs", "path": f"{self._root}{_DIRECTORY}", "streams": self.world.plan.streams}

    def open_source(self, name: str, config: AnySourceConfig, environment: Environment) -> Source:
        return open_source(name, config, environment)

    def numbers_at(self, path: str, position: Position | None) -> dict[str, int]:
        streams = self.world.plan.streams
        ours = [f for f in self._input_files if f"/{stream_of(f'{f.name}.log', streams)}/commit-log" in path]
        read: dict[str, int] = {}
        for seen in ({**position["finished"], **position["open"]} if position else {}).values():
            read[seen[3]] = max(seen[0], read.get(seen[3], 0))
        return {file.name: bisect_right(file.ends, read.get(file.identity, 0)) for file in ours}

    def some_place(self, chance: Random, flow: int) -> StartAt | None:
        return None

    @property
    def knows_times(self) -> bool:
        return False

    def go_away(self, seconds: float) -> None:
        self._files.away = True
        self.world.later(seconds, "files", partial(setattr, self._files, "away", False))

    def lose_power(self) -> None:
        self._boots += 1
        super().lose_power()

    # -- who writes

    def _write(self, name: str, stream: InputStream) -> None:
        """The files of one stream: another one now and then, and after each power failure."""
        plan, chance = self.world.plan, self.world.scheduler.random
        files, boots = 0, -1
        current: _InputFile | None = None
        for _ in range(plan.records):
            while self._files.away:
                self.world.scheduler.pass_time(_AGAIN_S)
            if current is None or boots != self._boots or chance.random() < _ANOTHER:
                files, boots = files + 1, self._boots
                current = self._create(f"{name}-{files}")
            self._append(current)
            if chance.random() < _RENAMED:
                self._rename(chance.choice(self._input_files))
            self.world.scheduler.pass_time(chance.expovariate(plan.records / RECORDS_FOR_S))

    def _create(self, name: str) -> _InputFile:
        path = f"{_DIRECTORY}/{name}.log"
        with self._durably():
            file = self._files.create(path)
            self._files.sync_directory(_DIRECTORY)
            made = _InputFile(name, path, file, self._files.find(path)[0].identity)
        self._input_files.append(made)
        return made

    def _append(self, current: _InputFile) -> None:
        payload = oracle.payload_of(current.name, len(current.ends))
        line = payload + b"\n"
        with self._durably():
            current.file.append(line)
            current.file.sync()
            current.ends.append((current.ends[-1] if current.ends else 0) + len(line))
            self.acknowledged.append(payload)

    def _rename(self, file: _InputFile) -> None:
        """As programs rotate their logs: the file keeps what it is known by."""
        file.renamed += 1
        path = f"{_DIRECTORY}/{file.name}.log.{file.renamed}"
        with self._durably():
            self._files.rename(file.path, path)
            self._files.sync_directory(_DIRECTORY)
            file.path = path

    def _durably(self) -> AbstractContextManager[None]:
        """Nobody reads what the disk may lose, and no power fails between a change and its sync."""
        return self.world.scheduler.at_once()
