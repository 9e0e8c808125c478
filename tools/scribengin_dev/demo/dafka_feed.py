"""Flights come over Dafka: three producers at a time, which come and go, and a store, all of them processes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather

from scribengin.errors import DataflowError
from scribengin_dev.demo.display import Display
from scribengin_dev.demo.flights import LOGS, Flights
from scribengin_dev.harness.installation import NAMESPACE, Installation
from scribengin_tools.cli.dafka.speed import tower_of_its_own

_SAID_BYTES = 3_000
_BEACONS = {"interval": 200, "timeout": 4_000}
COMES_LATE = LOGS - 1
"""The producer that comes when another one has gone."""
_GOES = 2
"""The one that goes half way, with all its flights published."""


class DemoRole:
    """A process that is a store or a producer, and what it has said so far."""

    def __init__(self, name: str, job: Mapping[str, Any], folder: Path) -> None:
        self.name = name
        self.address = str(job.get("address") or "")
        self.acknowledged = int(job.get("first", 0))
        """How many of its records a store has."""
        self._errors = folder / f"{name}.err"
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "scribengin_dev.demo.roles", json.dumps(job)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C is the demo's: it ends its roles itself
            )
        self._heard = threading.Thread(target=self._hear, name=f"hear {name}", daemon=True)
        self._heard.start()

    def go_on(self) -> None:
        """Let it publish the others."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: `check` says how
            self.process.stdin.write("go\n")
            self.process.stdin.flush()

    @property
    def gone(self) -> bool:
        """Whether it has ended well. Raises DataflowError if it has ended otherwise."""
        status = self.process.poll()
        if status:
            said = self._errors.read_text(encoding="utf-8", errors="replace")[-_SAID_BYTES:]
            raise DataflowError(f"{self.name} ended with status {status}. It said:\n{said}")
        if status == 0:
            self._heard.join()
        return status == 0

    def kill(self) -> int:
        """With SIGKILL; its pid. All that it has said is known then."""
        self.process.kill()
        self.process.wait()
        self._heard.join()
        return self.process.pid

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # it was not killed in the middle of it
                said = json.loads(line)
                self.address = said.get("address", self.address)
                self.acknowledged = max(self.acknowledged, said.get("acknowledged", 0))


class DafkaFeed:
    """What publishes the flights, with its tower and its store. `check` also lets the next producer come."""

    def __init__(
        self, place: Installation, flights: Flights, folder: Path, display: Display, *, at_once: int, duration_s: float
    ) -> None:
        """`at_once` records of each of the first three are published when `start` is called, the others from `go_on`
        on, in `duration_s`."""
        self._place = place
        self._folder = folder
        self._display = display
        self._at_once = at_once
        self._duration_s = duration_s
        self._stack = ExitStack()
        self._sizes = [self._write(k, flights.records(k)) for k in range(LOGS)]
        self._roles: dict[str, DemoRole] = {}
        self._network: dict[str, Any] = {}
        self._begun_s = 0.0
        self.total = sum(self._sizes)
        self.begun_ms: int | None = None
        self.took_s = 0.0

    @property
    def network(self) -> Mapping[str, Any]:
        """Where roles find each other, as configurations say it."""
        return self._network

    @property
    def appended(self) -> int:
        """Records that a store has."""
        return sum(role.acknowledged for name, role in self._roles.items() if name != "store")

    @property
    def done(self) -> bool:
        return self.appended >= self.total

    def start(self) -> None:
        """The tower, the store, and three producers. Idempotent."""
        if self._roles:
            return
        self._network = {"beacon": {**_BEACONS, **self._stack.enter_context(tower_of_its_own())}}
        self._start_store()
        self.begun_ms = self._place.clock.now_ms()
        for k in range(COMES_LATE):
            self._start_producer(k, at_once=self._at_once)

    def go_on(self) -> None:
        """Let the producers publish the others."""
        self._begun_s = self._place.clock.monotonic_s()
        for k in range(COMES_LATE):
            self._roles[_name(k)].go_on()

    def check(self) -> None:
        """Raise what has ended a role that should not have. Where one has gone, the next one comes."""
        gone = {name for name, role in self._roles.items() if role.gone}
        if "store" in gone:
            raise DataflowError("the store has ended")
        if _name(_GOES) in gone and _name(COMES_LATE) not in self._roles:
            self._display.say(f"{_name(_GOES)} has published all its flights and gone; {_name(COMES_LATE)} comes")
            self._start_producer(COMES_LATE)
            self._roles[_name(COMES_LATE)].go_on()
        if not self.done:
            self.took_s = self._place.clock.monotonic_s() - self._begun_s

    def kill_store(self) -> None:
        """Another one takes its logs over."""
        self._say_killed("the store", self._roles["store"].kill())
        self._start_store()

    def kill_producer(self) -> None:
        """It goes on as itself, behind what a store has acknowledged: a flight keeps its sequence, whoever sends it."""
        role = self._roles[_name(0)]
        self._say_killed(role.name, role.kill())
        self._start_producer(0, first=role.acknowledged, address=role.address)
        self._roles[_name(0)].go_on()

    def stop(self) -> None:
        """End all roles. Idempotent."""
        for role in self._roles.values():
            role.kill()
        self._stack.close()

    def _write(self, k: int, batch: pa.RecordBatch) -> int:
        feather.write_feather(pa.table({"payload": batch["payload"]}), str(self._file(k)))
        return int(batch.num_rows)

    def _file(self, k: int) -> Path:
        return self._folder / f"flights-{k}.arrow"

    def _start_store(self) -> None:
        hosts = self._place.registry.hosts
        self._start("store", {"role": "store", "hosts": hosts, "namespace": NAMESPACE})

    def _start_producer(self, k: int, *, at_once: int = 0, first: int = 0, address: str = "") -> None:
        """Those that come and go have half of the time each; one that goes on, what is left for its records."""
        half = 0.5 if k in (_GOES, COMES_LATE) else 1.0
        left_s = self._duration_s * half * (self._sizes[k] - first) / self._sizes[k]
        said = {"file": str(self._file(k)), "first": first, "at_once": at_once, "duration_s": left_s}
        self._start(_name(k), {"role": "producer", "address": address, **said})

    def _start(self, name: str, job: Mapping[str, Any]) -> None:
        self._roles[name] = DemoRole(name, {"network": self._network, **job}, self._folder)

    def _say_killed(self, name: str, pid: int) -> None:
        self._display.say(f"killed {name} (pid {pid}) with SIGKILL, and started it again", "bold red")


def _name(k: int) -> str:
    return f"producer {k}"
