"""Machines on this host: they reach each other while their cables are in, see nothing of each other's folders, and
leave nothing behind."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scribengin.errors import ServerDown
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers import machines as machines_module
from scribengin_dev.servers.machines import Machines, NamespaceMachine

_SERVE = (
    "import socket; s = socket.create_server(('', 4000)); print('up', flush=True)\nwhile True: s.accept()[0].close()"
)
_DIAL = "import socket, sys; socket.create_connection((sys.argv[1], 4000), timeout=5)"
_OWN = """
import subprocess, sys
from scribengin_dev.servers.machines import Machines
with Machines(sys.argv[1], ["a"]) as made:
    child = subprocess.Popen([*made["a"].host.entering, "sleep", "1000"])
    print(made["a"].host.address, child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with Machines(tmp_path_factory.mktemp("machines"), ["a", "b"]) as made:
        yield made


def started(machine: NamespaceMachine, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*machine.host.entering, *command], stdout=subprocess.PIPE, text=True)


def told(machine: NamespaceMachine, *command: str) -> str:
    return subprocess.run([*machine.host.entering, *command], capture_output=True, text=True, check=True).stdout.strip()


def dials(machine: NamespaceMachine, address: str) -> bool:
    command = [*machine.host.entering, sys.executable, "-c", _DIAL, address]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def serve(machine: NamespaceMachine) -> subprocess.Popen[str]:
    server = started(machine, sys.executable, "-c", _SERVE)
    assert server.stdout is not None
    assert server.stdout.readline() == "up\n"
    return server


def test_a_machine_has_a_name_an_address_and_an_identity_of_its_own(machines: Machines) -> None:
    a, b = machines.all
    assert [told(machine, "hostname") for machine in (a, b)] == ["a", "b"]
    assert not a.host.address.startswith("127.")
    assert a.host.address != b.host.address
    assert told(a, "getent", "hosts", "b").split() == [b.host.address, "b"]
    words = (sys.executable, "-c", "from scribengin.base.process.machine import this_machine; print(this_machine().id)")
    identities = {told(a, *words), told(b, *words), told(a, *words)}
    assert len(identities) == (2 if Path("/etc/machine-id").exists() else 1)


def test_no_machine_sees_the_folder_of_another(machines: Machines) -> None:
    a, b = (machine.host.folder for machine in machines.all)
    assert a is not None
    assert b is not None
    (a / "mine").write_text("a's")
    assert told(machines["a"], "cat", str(a / "mine")) == "a's"
    assert told(machines["b"], "ls", str(machines.folder)) == "b"
    told(machines["b"], "mkdir", "-p", str(a))
    told(machines["b"], "touch", str(a / "stray"))
    assert not (a / "stray").exists()


def test_a_cable_that_is_cut_keeps_everybody_away_until_it_is_joined(machines: Machines) -> None:
    a, b = machines.all
    server = serve(a)
    assert machines.of(server.pid) is a
    try:
        assert dials(b, a.host.address)
        socket.create_connection((a.host.address, 4000), timeout=30).close()
        a.cut()
        assert not dials(b, a.host.address)
        assert dials(a, a.host.address), "a machine hears itself"
        a.join()
        assert dials(b, a.host.address)
    finally:
        server.kill()
        server.communicate()


def test_a_machine_without_power_is_silent_and_has_its_folder_when_it_is_back(machines: Machines) -> None:
    a, b = machines.all
    assert a.host.folder is not None
    here, elsewhere = serve(a), serve(b)
    try:
        (a.host.folder / "kept").write_text("still there")
        a.power_off()
        assert here.wait(60) == -signal.SIGKILL
        assert a.processes() == []
        assert elsewhere.poll() is None
        a.join()
        assert told(a, "cat", str(a.host.folder / "kept")) == "still there"
        assert not dials(b, a.host.address), "what ran there is gone"
    finally:
        for server in (here, elsewhere):
            server.kill()
            server.communicate()


def test_machines_go_with_their_owner_however_that_dies(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWN, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    address, child = owner.stdout.readline().split()
    network = f"{address.rpartition('.')[0]}."  # with the dot: 198.18.2 begins the address of others, too
    assert network in interfaces()
    owner.kill()
    owner.communicate()
    wait_until(lambda: network not in interfaces(), 60, "the network of the machines to go")
    wait_until(lambda: not psutil.pid_exists(int(child)), 60, "what ran there to end")


def test_a_host_that_makes_no_machines_says_so_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines_module.os, "geteuid", lambda: 1000)
    with pytest.raises(ServerDown, match="only root makes: run this as root") as refused, Machines(tmp_path, ["a"]):
        pass
    assert "\n" not in str(refused.value)
    monkeypatch.setattr(machines_module.shutil, "which", lambda _tool: None)
    with pytest.raises(ServerDown, match="need the command ip: install it"), Machines(tmp_path, ["a"]):
        pass


def interfaces() -> str:
    return subprocess.run(["ip", "-4", "address"], capture_output=True, text=True, check=True).stdout
