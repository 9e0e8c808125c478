"""Machines on this one: each a network, a mount and a host name of its own, so that servers and workers are as far from
each other as on several. A machine's cable is cut and joined on command, and its power goes.

What a machine is made of are namespaces of Linux. Processes in them are processes of this host, with their numbers.
- An address of its own, in 198.18.0.0/15 (RFC 2544: for tests, and nowhere routed). No address leads out of this host.
- A folder of its own. Nobody else sees it there: over the folder of all machines lies an empty one, in each of them.
  The rest is this host's file system, as if all were installed alike.
- `/etc/machine-id` and `/etc/hosts` of its own, which name all machines.
- A cable, from its `eth0` to a switch, which stands in a network of its own. The host is plugged into it, too.

Each namespace is held by a shell, the holder. It ends when its owner does, however that dies, and takes all that runs
in its namespace along. The cables go with the namespaces, so that nothing is left behind.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

from scribengin.errors import ServerDown
from scribengin_dev.servers.host import Host

_TOOLS = ("ip", "unshare", "nsenter", "mount", "hostname")
_NETWORKS = [f"198.{second}.{third}" for second in (18, 19) for third in range(256)]
_HOST_NUMBER = 254
_LOOK_S = 0.02
_HOLD = """
ip link set lo up
echo ready
read -r _
going=yes
while [ "$going" ]; do
    going=
    for process in /proc/[0-9]*; do
        if [ "$process" != "/proc/$$" ] && [ "$process/ns/net" -ef "/proc/$$/ns/net" ]; then
            kill -9 "${process#/proc/}" && going=yes
        fi
    done
done 2>/dev/null
"""
_FURNISH = """
set -e
hidden=$1 own=$2 name=$3
hostname "$name"
exec 9<"$own"
mount -t tmpfs -o mode=755 machines "$hidden"
mkdir -p "$own"
mount --no-canonicalize --bind /proc/self/fd/9 "$own"
exec 9<&-
for file in machine-id hosts; do
    [ ! -e "/etc/$file" ] || mount --bind "$own/etc/$file" "/etc/$file"
done
set +e
"""


def why_no_machines() -> str:
    """Why this host makes no machines, in a line; "" where it does."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"machines need the command {missing[0]}: install it (Debian: iproute2, util-linux, mount, hostname)"
    if os.geteuid() != 0:
        return "machines are made of namespaces, which only root makes: run this as root"
    attempt = "ip link set lo up && ip link add name one type veth peer name two && ip link add name three type bridge"
    made = _run(["unshare", "--net", "--mount", "--uts", "sh", "-c", attempt])
    if made.returncode != 0:
        return f"this host makes no namespaces for machines: {_reason(made)}"
    return ""


class NamespaceMachine:
    """One of them, while its `Machines` run. Not thread-safe."""

    def __init__(self, name: str, address: str, folder: Path, switch: _Holder, holder: _Holder) -> None:
        self.name = name
        self.host = Host(address, name, holder.entering(folder), folder)
        self._switch = switch
        self._holder = holder

    def cut(self) -> None:
        """Pull the cable: nobody hears of it any more, and it of nobody. Idempotent."""
        self._switch.run("ip", "link", "set", "dev", self.name, "down")

    def join(self) -> None:
        """Plug it in again. Idempotent."""
        self._switch.run("ip", "link", "set", "dev", self.name, "up")

    def power_off(self) -> None:
        """Let it die as a machine does that loses power: it falls silent, without a word to anybody. Its folder stays.
        After `join` servers are started there again."""
        self.cut()
        while pids := self.processes():  # again and again: what is killed may just have started another
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            Event().wait(_LOOK_S)

    def processes(self) -> list[int]:
        """What runs there, by the numbers that this host has for it."""
        ours = self._holder.network()
        found = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in found if pid != self._holder.pid and _network_of(pid) == ours]

    def has(self, pid: int) -> bool:
        """Whether a process runs there."""
        return _network_of(pid) == self._holder.network()


class Machines:
    """Machines of these names, plugged into one switch, with their folders in `folder`. Other machines see nothing of
    what is in `hidden` (default: `folder`). Not thread-safe.
    """

    def __init__(self, folder: Path | str, names: Sequence[str], *, hidden: Path | str | None = None) -> None:
        self.folder = Path(folder).absolute()
        self._hidden = Path(hidden or folder).absolute()
        self._names = names
        self._machines: dict[str, NamespaceMachine] = {}
        self._stack = ExitStack()

    def __getitem__(self, name: str) -> NamespaceMachine:
        return self._machines[name]

    @property
    def all(self) -> list[NamespaceMachine]:
        """In the order of their names."""
        return list(self._machines.values())

    def of(self, pid: int) -> NamespaceMachine | None:
        """The one that a process runs on."""
        return next((machine for machine in self.all if machine.has(pid)), None)

    def __enter__(self) -> Self:
        why = why_no_machines()
        if why:
            raise ServerDown(why)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._stack:
            self._make()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._machines.clear()
        self._stack.close()

    def _make(self) -> None:
        network = _free_network()
        switch = self._held(_Holder.start(["--net"], _HOLD, "switch"))
        switch.run("ip", "link", "add", "name", "switch", "type", "bridge")
        switch.run("ip", "link", "set", "dev", "switch", "up")
        uplink = f"scribengin{secrets.token_hex(2)}"
        _must("ip", "link", "add", "name", uplink, "type", "veth", "peer", "name", "host", "netns", str(switch.pid))
        _must("ip", "address", "add", f"{network}.{_HOST_NUMBER}/24", "dev", uplink)
        _must("ip", "link", "set", "dev", uplink, "up")
        _plug_in(switch, "host")
        addresses = {name: f"{network}.{number}" for number, name in enumerate(self._names, start=1)}
        for name in self._names:
            self._machines[name] = self._machine(name, addresses, switch)

    def _machine(self, name: str, addresses: dict[str, str], switch: _Holder) -> NamespaceMachine:
        folder = self.folder / name
        (folder / "etc").mkdir(parents=True, exist_ok=True)
        known = "".join(f"{address} {other}\n" for other, address in addresses.items())
        (folder / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n{known}")
        (folder / "etc" / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
        words = [str(self._hidden), str(folder), name]
        namespaces = ["--net", "--mount", "--uts", "--propagation", "private"]
        holder = self._held(_Holder.start(namespaces, _FURNISH + _HOLD, name, *words))
        switch.run(
            *("ip", "link", "add", "name", name, "type", "veth"), *("peer", "name", "eth0", "netns", str(holder.pid))
        )
        holder.run("ip", "address", "add", f"{addresses[name]}/24", "dev", "eth0")
        holder.run("ip", "link", "set", "dev", "eth0", "up")
        _plug_in(switch, name)
        return NamespaceMachine(name, addresses[name], folder, switch, holder)

    def _held(self, holder: _Holder) -> _Holder:
        self._stack.callback(holder.end)
        return holder


class _Holder:
    """The process that keeps namespaces there."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    @classmethod
    def start(cls, namespaces: Sequence[str], script: str, *words: str) -> _Holder:
        command = ["unshare", *namespaces, "/bin/sh", "-c", script, *words]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        holder = cls(process)
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != b"ready\n":
            said = process.stderr.read().decode(errors="replace").strip()
            holder.end()
            raise ServerDown(f"the machine {words[0]} cannot be made: {said or 'its shell ended'}")
        return holder

    def network(self) -> str:
        """Which network it holds."""
        return _network_of(self.pid)

    def entering(self, folder: Path) -> tuple[str, ...]:
        """What stands before a command that is to run in all that it holds, in that folder."""
        return ("nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", f"--wdns={folder}", "--")

    def run(self, *command: str) -> None:
        """Run a command in its network."""
        _must("nsenter", f"--target={self.pid}", "--net", "--", *command)

    def end(self) -> None:
        """Let it end all that runs there, and then itself. Idempotent."""
        process = self._process
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()


def _plug_in(switch: _Holder, cable: str) -> None:
    switch.run("ip", "link", "set", "dev", cable, "master", "switch")
    switch.run("ip", "link", "set", "dev", cable, "up")


def _free_network() -> str:
    """One that no interface of this host has, which other machines of this host have theirs on."""
    told = json.loads(_must("ip", "-json", "-4", "address"))
    used = {address["local"].rpartition(".")[0] for interface in told for address in interface["addr_info"]}
    return secrets.choice([network for network in _NETWORKS if network not in used])


def _network_of(pid: int) -> str:
    """What tells the network that a process is in; "" when it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def _must(*command: str) -> str:
    """What a command printed. Raises ServerDown."""
    done = _run(command)
    if done.returncode != 0:
        raise ServerDown(f"`{' '.join(command)}` failed: {_reason(done)}")
    return done.stdout


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stderr.split()) or f"exit status {done.returncode}"
