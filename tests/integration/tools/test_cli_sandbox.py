"""`scribengin sandbox`: what it prints connects, its data stays, and it ends what still runs in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView
from scribengin.launcher.contract import ContainerRequest
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.log import LogNamespace
from scribengin_dev.servers.java_server import ports_of
from scribengin_registry.contract import Registry
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.errors import NotAuthorised
from scribengin_registry.opening import AUTH_VARIABLE, connect
from tests.integration.cli_runner import CommandLine, command
from tests.processes import Process

CONFIG = DataflowConfig.model_validate(
    {
        "name": "still",
        "sources": {"words": {"kind": "log", "logs": "words"}},
        "sinks": {"loud": {"kind": "log", "log": "loud"}},
        "sql": "SELECT * FROM words",
    }
)


@contextmanager
def sandbox(*options: str, home: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running sandbox, and the address that it prints. While it runs, what it prints is exported."""
    environment = {**os.environ, "SCRIBENGIN_HOME": str(home)}
    line = command(["sandbox", *options])
    with Process(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            printed = ""
            while "Ctrl-C here ends it all" not in printed:
                text = process.stdout.readline()
                assert text, process.communicate()
                printed += text
            exported = "".join(line for line in printed.splitlines(keepends=True) if line.startswith("    export "))
            with pytest.MonkeyPatch.context() as patch:
                for name, value in after_running(exported).items():
                    patch.setenv(name, value)
                yield process, os.environ["SCRIBENGIN_REGISTRY"]
        finally:
            process.kill()


@pytest.fixture
def scribengin(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must work on a registry: its output."""
    return lambda hosts, *line: CommandLine(hosts, capfd).ok(*line, "--registry", hosts).out


def after_running(lines: str) -> dict[str, str]:
    """The variables of ours that a shell has after these lines."""
    done = subprocess.run(["bash", "-euc", f"{lines}\nenv -0"], capture_output=True, text=True, check=True)
    pairs = (pair.partition("=") for pair in done.stdout.split("\0"))
    return {name: value for name, _equals, value in pairs if name.startswith("SCRIBENGIN_REGISTRY")}


def ended(process: subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[int, str, str]:
    """Send a signal, and return how the sandbox ends."""
    process.send_signal(number)
    out, err = process.communicate()
    return process.returncode, out, err


def test_a_sandbox_ends_in_order_and_the_next_one_finds_its_data(
    tmp_path: Path, scribengin: Callable[..., str]
) -> None:
    with sandbox("--dir", str(tmp_path / "place"), home=tmp_path) as (process, hosts):
        scribengin(hosts, "log", "create", "a")
        scribengin(hosts, "log", "write", "a", "one")
        code, out, err = ended(process, signal.SIGINT)
        assert (code, err) == (0, "")
        assert "its data is kept" in out
    with sandbox("--dir", str(tmp_path / "place"), home=tmp_path) as (process, hosts):
        assert scribengin(hosts, "log", "read", "a") == "one\n"
        assert ended(process, signal.SIGTERM)[0] == 0


def test_only_whoever_has_its_credentials_changes_anything_in_a_sandbox(
    tmp_path: Path, scribengin: Callable[..., str]
) -> None:
    place = tmp_path / "it's a place"
    with sandbox("--dir", str(place), home=tmp_path) as (process, hosts):
        file = place / "credentials"
        assert (place.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
        password = file.read_text().strip().partition(":")[2]
        assert len(password) >= 32
        scribengin(hosts, "log", "create", "a")
        with connect(hosts) as registry:
            assert not [path for path in everything_below(registry, "/") if registry.is_open(path)]
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv(AUTH_VARIABLE)
            assert scribengin(hosts, "log", "list", "--json") != "[]"
            refused = run("log", "create", "b", "--registry", hosts, home=tmp_path)
            with connect(hosts) as nobody:
                for path in ("/", "/logs", "/logs/logs/a/segments"):
                    with pytest.raises(NotAuthorised):
                        nobody.create(f"{path.rstrip('/')}/evil")
        assert refused.returncode == 2
        assert AUTH_VARIABLE in refused.stderr
        assert refused.stderr.count("\n") == 1
        ended(process)
    with sandbox("--dir", str(place), home=tmp_path) as (process, hosts):
        assert file.read_text().strip().endswith(password)
        scribengin(hosts, "log", "create", "b")
        ended(process)
    file.write_text("scribengin:another\n")
    lost = run("sandbox", "--dir", str(place), home=tmp_path)
    assert lost.returncode == 2
    assert f"bring that file back, or remove {place}" in lost.stderr


def test_a_sandbox_closes_what_one_without_credentials_has_left_open(
    tmp_path: Path, scribengin: Callable[..., str]
) -> None:
    with EmbeddedZooKeeper(tmp_path / "place" / "zookeeper") as server, connect(server.hosts) as registry:
        LogNamespace.bind("/logs", tmp_path / "place" / "logs", registry=registry)
        registry.create("/scribengin/dataflows/a/config", b"{}", parents=True)
    with sandbox("--dir", str(tmp_path / "place"), home=tmp_path) as (process, hosts):
        scribengin(hosts, "log", "create", "a")
        with connect(hosts) as again:
            assert not [path for path in everything_below(again, "/") if again.is_open(path)]
        ended(process)


@pytest.mark.full
def test_a_sandbox_takes_the_port_it_is_given_and_one_directory_at_a_time(tmp_path: Path) -> None:
    (free,) = ports_of(tmp_path / "port", 1)  # not one that the system, or another sandbox, takes in between
    port = str(free)
    with sandbox("--port", port, home=tmp_path) as (process, hosts):
        assert hosts.rpartition(":")[2] == port
        taken = run("sandbox", "--dir", str(tmp_path / "other"), "--port", port, home=tmp_path)
        assert taken.returncode == 2
        assert taken.stderr == f"scribengin: port {port} of this machine is taken: free it, or name another one\n"
        ended(process)
    with sandbox("--port", port, home=tmp_path) as (process, again):
        assert again == hosts
        ended(process)


def test_a_sandbox_whose_server_dies_says_so(tmp_path: Path) -> None:
    with sandbox(home=tmp_path) as (process, _hosts):
        for child in server_processes(process.pid):
            os.kill(child, signal.SIGKILL)
        _out, err = process.communicate()
        assert process.returncode == 2
        assert "ZooKeeper has died" in err
        assert err.count("\n") == 1


def test_at_its_end_a_sandbox_kills_the_dataflows_that_still_run_in_it(
    tmp_path: Path, scribengin: Callable[..., str]
) -> None:
    asleep = [sys.executable, "-c", "import signal; signal.pause()"]
    with sandbox(home=tmp_path) as (process, hosts), LocalLauncher(tmp_path) as launcher:
        with connect(hosts) as registry:
            DataflowView(registry, "still").submit(CONFIG, ["log:/logs/loud"], SYSTEM_CLOCK.now_ms())
        container = launcher.launch(ContainerRequest(hosts, "still", "worker-1", asleep, 256))
        stranger = launcher.launch(ContainerRequest("elsewhere:1", "still", "worker-1", asleep, 256))
        try:
            _code, out, _err = ended(process)
            assert "killed dataflow 'still' (worker-1)" in out
            assert launcher.poll(container) is not None
            assert launcher.poll(stranger) is None
        finally:
            launcher.kill(stranger)
    with sandbox(home=tmp_path) as (process, hosts), LocalLauncher(tmp_path) as launcher:
        assert '"killed"' in scribengin(hosts, "status", "still", "--json")
        container = launcher.launch(ContainerRequest(hosts, "still", "worker-1", asleep, 256))
        assert_ends_silently(process)
        assert launcher.poll(container) is not None


def everything_below(registry: Registry, path: str) -> list[str]:
    """This node, and all below it but the server's own."""
    children = [f"{path.rstrip('/')}/{name}" for name in registry.children(path)]
    return [path, *(one for child in children if child != "/zookeeper" for one in everything_below(registry, child))]


def assert_ends_silently(process: subprocess.Popen[str]) -> None:
    """Ctrl-C as it is behind `| tee`, which ends first: then nobody hears what the sandbox has to say."""
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.send_signal(signal.SIGINT)
    assert process.stderr.read() == ""
    assert process.wait() == 0


def run(*line: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SCRIBENGIN_HOME": str(home)}
    return subprocess.run(command(line), env=environment, capture_output=True, text=True, check=False)


def server_processes(pid: int) -> list[int]:
    """The children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
