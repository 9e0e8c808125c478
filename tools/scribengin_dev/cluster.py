"""`python3 tools/dev.py cluster`: ZooKeeper, Kafka, HDFS and YARN on this machine, for a person to play with.

The servers belong to a process in the background, the keeper: it holds the folder's lock while it lives, and they end
with it, however that dies. So whoever finds the lock free knows that nothing runs there.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Annotated, Literal

import typer

from scribengin.base.jvm import CONF_VARIABLE
from scribengin.errors import ServerDown
from scribengin.launcher.local.launcher import scribengin_home
from scribengin_dev.harness.ending import ending_cleanly
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.credentials import own_credentials
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.java.process import tail_of
from scribengin_registry.opening import AUTH_VARIABLE, connect
from scribengin_tools.cli.options import REGISTRY_VARIABLE
from scribengin_tools.rendering import text as render
from scribengin_tools.sandbox import CREDENTIALS, take_hold

_LOOK_S = 0.2
_COMMAND = "python3 tools/dev.py cluster"

Action = Literal["start", "stop", "env", "status", "keep"]
Pids = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DevCluster:
    """Where the servers are, and the processes of those that run, by name. Written by the keeper for everybody else."""

    registry: str
    kafka: str
    hdfs: str
    hdfs_web: str
    yarn_web: str
    conf_directory: str
    pids: dict[str, int]

    @property
    def variables(self) -> dict[str, str]:
        """What clients read from their environment."""
        return {
            REGISTRY_VARIABLE: self.registry,
            "KAFKA_BOOTSTRAP_SERVERS": self.kafka,
            CONF_VARIABLE: self.conf_directory,
        }


def cluster(
    action: Annotated[Action, typer.Argument(help="keep: run in the foreground, as `start` does behind you.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where the data is. Default: cluster below $SCRIBENGIN_HOME, or ~/.scribengin.", show_default=False
        ),
    ] = None,
) -> None:
    """Start, stop and show ZooKeeper, Kafka, HDFS and YARN with two nodes on this machine; their data stays."""
    place = (folder or scribengin_home() / "cluster").absolute()
    actions: dict[Action, Callable[[Path], None]] = {
        "start": start,
        "stop": stop,
        "env": env,
        "status": status,
        "keep": keep,
    }
    with ending_cleanly("cluster"):
        actions[action](place)


def start(folder: Path) -> None:
    """Start what is not there, behind the caller, and show it. Raises ServerDown with what the keeper said."""
    if _keeper(folder) is not None:
        print("it runs already")
        return status(folder)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"starting ZooKeeper, Kafka, HDFS and YARN in {folder} (about a minute) ...", flush=True)
    _state_file(folder).unlink(missing_ok=True)
    words = [sys.executable, "-m", "scribengin_dev.cluster", "keep", "--folder", str(folder)]
    with _log_file(folder).open("wb") as log, ExitStack() as failed:
        keeper = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        failed.callback(_end, keeper)
        while not _state_file(folder).is_file():
            if keeper.poll() is not None:
                raise ServerDown(f"the cluster did not start:\n{tail_of(_log_file(folder))}")
            Event().wait(_LOOK_S)
        failed.pop_all()
    return status(folder)


def stop(folder: Path) -> None:
    """Stop what runs there; return when it has ended."""
    pid = _keeper(folder)
    if pid is None:
        print(f"nothing runs in {folder}")
        return
    os.kill(pid, signal.SIGTERM)
    while _keeper(folder) == pid:
        Event().wait(_LOOK_S)
    print(f"stopped; its data is kept in {folder}")


def env(folder: Path) -> None:
    """Print the exports that make clients find it, for `eval`. Raises ServerDown when it does not run."""
    found = _running(folder).variables | {AUTH_VARIABLE: own_credentials(folder / CREDENTIALS)}
    for name, value in found.items():
        print(f"export {name}={shlex.quote(value)}")


def status(folder: Path) -> None:
    """Show what is where. Raises ServerDown when it does not run."""
    found = _running(folder)
    addresses = {
        "zookeeper": found.registry,
        "kafka": found.kafka,
        "namenode": f"{found.hdfs}, {found.hdfs_web}",
        "resourcemanager": found.yarn_web,
    }
    names = dict.fromkeys((*addresses, "datanode-0", "nodemanager-0", "nodemanager-1"))
    rows = [(name, str(found.pids.get(name, "has died")), addresses.get(name, "")) for name in names]
    render.console().print(render.table(("server", "process", "where"), rows))
    option = "" if folder == scribengin_home() / "cluster" else f" --folder {shlex.quote(str(folder))}"
    print(f'HADOOP_CONF_DIR is {found.conf_directory}; for this and more: eval "$({_COMMAND} env{option})"')
    print(f"stop it with: {_COMMAND} stop{option}")


def keep(folder: Path) -> None:
    """Run the servers until a signal comes. Raises ServerDown, ArtifactUnavailable, JavaMissing."""
    with _locked(folder), ExitStack() as opened:
        zookeeper = opened.enter_context(EmbeddedZooKeeper(folder / "zookeeper"))
        with connect(zookeeper.hosts, auth=own_credentials(folder / CREDENTIALS)) as registry:
            take_hold(registry, folder / "logs", folder)
        kafka = opened.enter_context(KafkaServer(folder / "kafka"))
        hdfs = opened.enter_context(HdfsServers(folder / "hdfs"))
        yarn = opened.enter_context(YarnServers(folder / "yarn", hdfs=hdfs))
        opened.callback(_state_file(folder).unlink, missing_ok=True)

        def running() -> dict[str, int]:
            alone = {"zookeeper": zookeeper.pid, "kafka": kafka.pid}
            return {name: pid for name, pid in alone.items() if pid is not None} | hdfs.pids | yarn.pids

        shown: Pids = {}
        while True:
            pids = running()
            if pids != shown:
                conf = str(yarn.conf_directory)
                _write(
                    folder,
                    DevCluster(zookeeper.hosts, kafka.bootstrap, hdfs.url, hdfs.web_url, yarn.web_url, conf, pids),
                )
                shown = pids
            Event().wait(_LOOK_S)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder, with this process's number in its lock file. Raises ServerDown when somebody holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(_lock_file(folder), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServerDown(f"a cluster runs in {folder} already: stop it first, or use another folder") from None
        os.ftruncate(file, 0)
        os.write(file, str(os.getpid()).encode())
        yield
    finally:
        os.close(file)


def _keeper(folder: Path) -> int | None:
    """The process that holds the folder, None when nobody does."""
    try:
        file = os.open(_lock_file(folder), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.read(file, 20) or b"0") or None
    finally:
        os.close(file)
    return None


def _running(folder: Path) -> DevCluster:
    if _keeper(folder) is None or not _state_file(folder).is_file():
        raise ServerDown(f"no cluster runs in {folder}: `{_COMMAND} start` starts one")
    return DevCluster(**json.loads(_state_file(folder).read_text(encoding="utf-8")))


def _write(folder: Path, found: DevCluster) -> None:
    whole = _state_file(folder).with_suffix(".new")
    whole.write_text(json.dumps(asdict(found), indent=2), encoding="utf-8")
    whole.replace(_state_file(folder))


def _end(keeper: subprocess.Popen[bytes]) -> None:
    """End a keeper that is no use, and wait until its servers have ended."""
    keeper.terminate()
    keeper.wait()


def _state_file(folder: Path) -> Path:
    return folder / "cluster.json"


def _log_file(folder: Path) -> Path:
    return folder / "cluster.log"


def _lock_file(folder: Path) -> Path:
    return folder / "lock"


if __name__ == "__main__":
    typer.run(cluster)
