"""A dataflow on one machine, the logs that it reads and writes in a directory of another one, and a proxy there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from scribengin.dataflow.registry.view import DataflowView
from scribengin.proxy import ProxiedNamespace, ProxyClientConfig
from scribengin.testing.log_samples import payload_batch, payloads_left
from scribengin.testing.waiting import WaitedInVain, wait_until
from scribengin_dev.servers.machine_room import MachineRoom
from scribengin_dev.servers.machines import NamespaceMachine
from scribengin_registry.opening import connect
from tests.integration.machines.faulty_logs import Process

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.servers, pytest.mark.timeout(3000)]
NAMESPACE, FLOW, IN, OUT = "/logs", "flow", "in/0", "out/0"
LIMIT_S = 400.0
BATCHES, BATCH = 20, 100
"""So many records come before each strike."""
CONFIG = {
    "name": FLOW,
    "sources": {"src": {"kind": "log", "logs": "in/*"}},
    "sinks": {"out": {"kind": "log", "log": "out"}},
    "sql": "SELECT upper(CAST(payload AS STRING)) AS payload FROM src",
    "workers": 1,
}


class Elsewhere:
    """The machine of the logs, that of the dataflow, and who feeds it."""

    def __init__(self, room: MachineRoom, stack: ExitStack) -> None:
        self.logs, self.dataflow = room.workers
        self._hosts = room.zookeeper.hosts
        self._stack = stack
        self.registry = stack.enter_context(connect(self._hosts, auth=""))
        self.view = DataflowView(self.registry, FLOW)
        self.written: list[bytes] = []
        self.command(self.logs, "log", "bind", "logs")
        self.proxy = self.start_proxy()
        client = ProxyClientConfig(reads="proxy", patience_s=LIMIT_S)
        self.namespace = stack.enter_context(ProxiedNamespace.open(NAMESPACE, registry=self.registry, client=client))
        self.namespace.create(IN)
        self.namespace.create(OUT)
        self._writer = stack.enter_context(self.namespace.open_writer(IN, timeout_s=LIMIT_S))
        self._reader = stack.enter_context(self.namespace.open_reader(OUT))
        self._read: list[bytes] = []

    def command(self, machine: NamespaceMachine, *words: str) -> None:
        """Run `scribengin` on a machine to its end."""
        process = self._started(machine, *words)
        assert process.await_end() == 0, process.words()

    def submit(self) -> None:
        """Its master and its worker are processes of the dataflow's machine."""
        folder = self.dataflow.host.folder
        assert folder is not None
        file = Path(folder, "flow.json")
        file.write_text(json.dumps(CONFIG))
        self.command(self.dataflow, "submit", str(file), "--no-check")
        self._stack.callback(self.command, self.dataflow, "kill", FLOW)

    def start_proxy(self) -> Process:
        """On the machine of the logs."""
        words = ("proxy", "--host", self.logs.host.address, "--insecure", "--namespace", NAMESPACE)
        proxy = self._started(self.logs, *words)
        self._stack.callback(proxy.end)
        self._stack.callback(proxy.signal, signal.SIGTERM)
        wait_until(lambda: bool(proxy.lines), LIMIT_S, "the proxy to serve")
        return proxy

    def feed(self) -> None:
        """More records come. The dataflow is not waited for."""
        for _ in range(BATCHES):
            more = [b"record-%06d" % n for n in range(len(self.written), len(self.written) + BATCH)]
            self._writer.write_bulk(payload_batch(more)).result(LIMIT_S)
            self.written += more

    def expect_all(self) -> None:
        """Each record comes out, once and in order."""

        def come_out() -> bool:
            self._read += payloads_left(self._reader)
            return len(self._read) >= len(self.written)

        try:
            wait_until(come_out, LIMIT_S, f"{len(self.written)} records")
        except WaitedInVain as error:
            said = self.view.status().model_dump_json(indent=1)
            raise AssertionError(f"{error}, and {len(self._read)} came\n{said}") from None
        assert self._read == [one.upper() for one in self.written], "records are lost, doubled or out of order"

    def kill_worker(self) -> None:
        """And no other process of its machine."""
        pids = [pid for pid in self.dataflow.processes() if b"scribengin.worker" in words_of(pid)]
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def kill_proxy(self) -> None:
        """Then there is another one."""
        self.proxy.signal(signal.SIGKILL)
        self.proxy = self.start_proxy()

    def cut_off(self) -> None:
        """The machine of the dataflow, until its worker counts as gone."""
        workers = [name for name in self.view.workers() if self.view.lives(name)]
        assert workers
        self.dataflow.cut()
        try:
            wait_until(lambda: not any(map(self.view.lives, workers)), LIMIT_S, "the worker's session to end")
        finally:
            self.dataflow.join()

    def _started(self, machine: NamespaceMachine, *words: str) -> Process:
        variables = {
            "SCRIBENGIN_REGISTRY": self._hosts,
            "SCRIBENGIN_REGISTRY_INSECURE": "1",
            "SCRIBENGIN_HOME": f"{machine.host.folder}/home",
        }
        return Process(machine, ["scribengin_tools", *words], variables)


def words_of(pid: int) -> bytes:
    """The command of a process; nothing if it has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    with MachineRoom(tmp_path, 2) as room, ExitStack() as stack:
        yield Elsewhere(room, stack)


def test_a_dataflow_writes_logs_of_another_machine_exactly_once_whatever_strikes(elsewhere: Elsewhere) -> None:
    elsewhere.submit()
    elsewhere.feed()
    elsewhere.expect_all()
    for strike in (elsewhere.kill_proxy, elsewhere.kill_worker, elsewhere.cut_off):
        print(strike.__name__)  # shown when the test fails
        elsewhere.feed()
        strike()
        elsewhere.expect_all()
