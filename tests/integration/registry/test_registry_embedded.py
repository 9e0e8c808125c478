"""The embedded ZooKeeper: a real server that keeps its data, and never outlives its owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scribengin.testing.waiting import wait_until
from scribengin_registry import embedded
from scribengin_registry.client import REQUEST_BYTES_MAX
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.errors import ServerFailed
from scribengin_registry.java.process import LOOPBACK, free_port, server_port
from scribengin_registry.java.runtime import JavaRuntime
from scribengin_registry.opening import connect

OWNER = """
import sys
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.opening import connect

server = EmbeddedZooKeeper(sys.argv[1]).start()
with connect(server.hosts) as registry:
    registry.create("/kept", b"by an owner that is gone")
print(server.pid, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """A server of the test's own, not started."""
    embedded = EmbeddedZooKeeper(tmp_path / "zookeeper")
    yield embedded
    embedded.stop()


def is_running(pid: int) -> bool:
    """Whether the process runs; one that is dead and waits to be reaped does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def start_owner(data_dir: Path) -> tuple[subprocess.Popen[str], int]:
    """A process that owns a server with its data in `data_dir`, and the server's process id."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert owner.stdout is not None
    return owner, int(owner.stdout.readline())


def test_it_answers_outlives_the_thread_that_started_it_and_its_processes_end_with_stop(
    server: EmbeddedZooKeeper,
) -> None:
    assert server.pid is None
    with pytest.raises(ServerFailed, match="start"):
        _ = server.hosts
    started: list[EmbeddedZooKeeper] = []
    starter = threading.Thread(target=lambda: started.append(server.start()))
    starter.start()
    starter.join()
    assert started == [server]
    pid = server.pid
    assert pid is not None
    family = [psutil.Process(pid), *psutil.Process(pid).children()]
    assert len(family) == 2, "the JVM and its watcher"
    assert server.start().pid == pid, "starting it again changes nothing"
    with connect(server.hosts) as registry:
        assert registry.children("/") == ["zookeeper"]
    server.stop()
    server.stop()
    wait_until(lambda: not any(is_running(p.pid) for p in family), what="the server's processes to end")
    assert server.pid is None


@pytest.mark.full
def test_data_and_port_survive_a_restart_and_a_port_that_is_gone_is_replaced_by_another(
    server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    with server, connect(server.hosts) as registry:
        hosts = server.hosts
        registry.create("/a", b"kept")
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as again, connect(again.hosts) as registry:
        assert again.hosts == hosts
        assert registry.get("/a").data == b"kept"
    port = int(hosts.rpartition(":")[2])
    with socket.create_server((LOOPBACK, port)), server, connect(server.hosts) as registry:
        assert server.hosts != hosts
        assert registry.get("/a").data == b"kept"


def test_data_survives_the_servers_sudden_death_and_the_session_goes_on(server: EmbeddedZooKeeper) -> None:
    server.start()
    with connect(server.hosts, session_timeout_s=60) as registry:
        session_id = registry.session_id
        for k in range(20):
            registry.create(f"/n{k}", ephemeral=True)
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server.pid is None, what="the server's death to be seen")
        server.start()
        assert len(registry.children("/")) == 21
        assert registry.session_id == session_id


def test_it_dies_with_an_owner_that_is_killed_and_a_successor_takes_over_the_data_at_once(tmp_path: Path) -> None:
    owner, pid = start_owner(tmp_path / "zookeeper")
    assert is_running(pid)
    owner.kill()  # the successor starts while the orphan may still be dying
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as successor, connect(successor.hosts) as registry:
        assert registry.get("/kept").data == b"by an owner that is gone"
    wait_until(lambda: not is_running(pid), what="the orphaned server to end")
    owner.wait()


def test_it_dies_with_an_owner_that_forgets_it(tmp_path: Path) -> None:
    owner, pid = start_owner(tmp_path / "zookeeper")
    owner.communicate("\n", timeout=120)
    assert owner.returncode == 0
    wait_until(lambda: not is_running(pid), what="the forgotten server to end")


def test_a_second_server_on_the_same_data_is_refused_and_not_waited_for(server: EmbeddedZooKeeper) -> None:
    server.start()
    for patience_s in (0.5, 100_000.0):
        with pytest.raises(ServerFailed, match="another embedded ZooKeeper uses"):
            EmbeddedZooKeeper(server.data_dir, start_timeout_s=patience_s).start()
    with connect(server.hosts) as registry:
        assert registry.children("/") == ["zookeeper"]


def test_a_port_that_was_asked_for_is_taken_or_refused_in_one_line(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as occupied:
        port = occupied.getsockname()[1]
        with pytest.raises(ServerFailed, match=f"^port {port} of this machine is taken: free it, or name another one$"):
            EmbeddedZooKeeper(tmp_path, port=port).start()
    with EmbeddedZooKeeper(tmp_path, port=port) as server:
        assert server.hosts == f"{LOOPBACK}:{port}"


@pytest.mark.full
def test_a_usual_port_is_taken_once_and_another_where_somebody_was_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sandboxes that start at once find it free, both, before one of them has it."""
    usual = server_port()
    with socket.create_server((LOOPBACK, usual)):
        looked: list[int] = []

        def free_at_first(port: int) -> int:
            looked.append(port)
            return port if len(looked) == 1 else free_port(port)

        monkeypatch.setattr(embedded, "free_port", free_at_first)
        with EmbeddedZooKeeper(tmp_path / "second", usual_port=usual) as second:
            assert second.hosts != f"{LOOPBACK}:{usual}"
        assert looked == [usual, usual]
    with EmbeddedZooKeeper(tmp_path / "first", usual_port=usual) as first:
        assert first.hosts == f"{LOOPBACK}:{usual}"
    with EmbeddedZooKeeper(tmp_path / "second", usual_port=usual) as again:
        assert again.hosts == second.hosts


def test_a_java_that_does_not_run_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\necho this is no Java\nexit 3\n")
    broken.chmod(0o755)
    server = EmbeddedZooKeeper(tmp_path / "zookeeper", java=JavaRuntime(tmp_path, broken, 17))
    with pytest.raises(ServerFailed, match="this is no Java"):
        server.start()
    assert server.pid is None


@pytest.mark.parametrize(
    ("java_says", "said"),
    [
        ("Permission denied", "^this user may not open port 81 of this machine: name one from 1024 on$"),
        ("Cannot assign requested address", "did not start on port 81: .*\njava.net.BindException: Cannot assign"),
        ("Address already in use", "^port 81 of this machine is taken: free it, or name another one$"),
    ],
)
def test_why_a_port_cannot_be_had_is_told(tmp_path: Path, java_says: str, said: str) -> None:
    """A program in Java's place says it: root may open every port."""
    refused = tmp_path / "java"
    refused.write_text(f"#!/bin/sh\necho 'java.net.BindException: {java_says}'\nexit 1\n")
    refused.chmod(0o755)
    with pytest.raises(ServerFailed, match=said):
        EmbeddedZooKeeper(tmp_path / "zookeeper", java=JavaRuntime(tmp_path, refused, 17), port=81).start()


@pytest.mark.parametrize("java_says", ["No space left on device", "Disk quota exceeded"])
def test_a_server_whose_disk_is_full_asks_for_room_and_not_for_its_data_to_be_moved_away(
    tmp_path: Path, java_says: str
) -> None:
    """A program in Java's place says it, with what Java says around it."""
    full = tmp_path / "java"
    full.write_text(f"#!/bin/sh\necho 'java.io.IOException: {java_says}'\nseq 2000\nexit 1\n")
    full.chmod(0o755)
    with pytest.raises(ServerFailed) as raised:
        EmbeddedZooKeeper(tmp_path / "zookeeper", java=JavaRuntime(tmp_path, full, 17)).start()
    assert str(raised.value) == (
        f"the embedded ZooKeeper cannot start, for the disk of {tmp_path / 'zookeeper'} is full ({java_says}): make "
        "room there, then start it again; it goes on with all that was written"
    )


def test_a_server_whose_data_is_damaged_says_so_and_how_to_go_on(server: EmbeddedZooKeeper) -> None:
    with server.start(), connect(server.hosts) as registry:
        registry.create("/a")
    for snapshot in (server.data_dir / "data" / "version-2").glob("snapshot.*"):
        snapshot.write_bytes(b"damaged")
    with pytest.raises(ServerFailed) as raised:
        server.start()
    told = str(raised.value)
    assert f"if its data is damaged, move {server.data_dir}/data away" in told
    assert "`scribengin registry restore`" in told
    assert "free that port" not in told
    assert "Something is broken!" in told


@pytest.mark.parametrize("locale", ["C", pytest.param("C.UTF-8", marks=pytest.mark.full)])
def test_a_data_directory_may_have_any_name(tmp_path: Path, locale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    directory = tmp_path / "José's data = 日本 \\x #1"
    with EmbeddedZooKeeper(directory) as server, connect(server.hosts) as registry:
        registry.create("/a")
    assert sorted(path.name for path in directory.iterdir()) == ["data", "port", "zoo.cfg", "zookeeper.log"]


def test_a_data_directory_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServerFailed, match="file/zookeeper"):
        EmbeddedZooKeeper(tmp_path / "file" / "zookeeper").start()


def test_a_server_remembers_its_last_changes_however_large_they_are_and_starts_again_with_them(tmp_path: Path) -> None:
    """It keeps the last five hundred in its memory, and reads them again when it starts: too little of that ends it,
    and any later one, too."""
    largest = bytes(REQUEST_BYTES_MAX)
    for _start in range(2):
        with EmbeddedZooKeeper(tmp_path) as server, connect(server.hosts) as registry:
            if registry.find("/large") is None:
                registry.create("/large")
            for _change in range(260):
                registry.set("/large", largest)
            assert registry.get("/large").data == largest
