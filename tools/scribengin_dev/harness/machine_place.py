"""What the demo runs on with `--machines`: a cluster on machines of its own, logs on HDFS or BookKeeper."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.jvm import CONF_VARIABLE
from scribengin.log import LogNamespace
from scribengin.log.store.bookkeeper.client import JARS_VARIABLE
from scribengin_dev.harness.containers import YarnContainers
from scribengin_dev.harness.installation import NAMESPACE, Installation, registry_user
from scribengin_dev.servers.machine_room import MachineRoom
from scribengin_registry.opening import connect

_MEMORY_MB = {"hdfs": None, "bk": 3072}
"""Of a worker. Each of Spark's Python processes that reads or writes a log has a JVM: on BookKeeper 200 MB each."""


@contextmanager
def machine_place(
    directory: Path,
    *,
    machines: int,
    store: str,
    launcher: str,
    clock: Clock = SYSTEM_CLOCK,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Installation]:
    """Start everything below `directory`, which no machine sees but for its own folder, and stop it at the end.

    Raises JavaMissing, ServerDown (also: this host makes no machines), ArtifactUnavailable.
    """
    with ExitStack() as opened:
        say(f"making {machines} machines, and one that leads them")
        room = opened.enter_context(MachineRoom(directory / "room", machines, hidden=directory))
        opened.enter_context(registry_user(directory / "credentials", on_machines=True))
        registry = opened.enter_context(connect(room.zookeeper.hosts))
        say("starting HDFS, with a DataNode on each machine")
        hdfs = room.start_hdfs()
        environment = {}
        location = f"{hdfs.url}/logs"
        if store == "bk":
            say("starting a bookie on each machine, and one beside ZooKeeper")
            bookies = room.start_bookies()
            location = bookies.log_location("logs")
            environment[JARS_VARIABLE] = ":".join(map(str, bookies.jars))
            os.environ.update(environment)
        say("starting YARN, with a NodeManager on each machine")
        yarn = room.start_yarn(hdfs)
        os.environ[CONF_VARIABLE] = str(yarn.conf_directory)
        LogNamespace.bind(NAMESPACE, location, registry=registry, store=store)
        namespace = opened.enter_context(LogNamespace.open(NAMESPACE, registry=registry))
        containers = YarnContainers(launcher, hdfs, yarn, environment, _MEMORY_MB[store])
        home = directory / "home"
        place = Installation(registry, namespace, location, home, containers, clock, room.machines)
        opened.callback(place.end_processes)
        yield place
