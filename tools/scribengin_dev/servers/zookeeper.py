"""A ZooKeeper ensemble: servers that elect a leader, and can be killed. (One alone: `scribengin_registry.embedded`.)"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.errors import ServerDown
from scribengin_dev.servers.host import THIS_HOST, Host
from scribengin_dev.servers.java_server import JavaServer, java_command, ports_of, settings_text
from scribengin_registry.embedded import SERVER_CLASS, SERVER_JARS, ask_server
from scribengin_registry.java.jars import pyspark_jars

_START_TIMEOUT_S = 120.0
_HEAP_MB = 256
_PORTS_OF_SERVER = 3


class ZooKeeperServers:
    """An ensemble of `servers` with its data in `folder`. `settings` override those of zoo.cfg. With an `image`, they
    run in containers (see `containers`). All are on one `host`.

    It answers as long as more than half of its servers run. Started again there, they have their ports and their
    nodes. Not thread-safe.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        servers: int = 3,
        settings: Mapping[str, object] | None = None,
        image: str = "",
        host: Host = THIS_HOST,
    ) -> None:
        self.folder = Path(folder).absolute()
        self._image = image
        self._host = host
        self.count = servers
        self._settings = dict(settings or {})
        self._ports: list[int] = []
        self._servers: list[JavaServer] = []

    @property
    def hosts(self) -> str:
        """`host:port` of every server, as clients want it. Known once they were started."""
        assert self._ports, "the ensemble was not started yet"
        return ",".join(f"{self._host.address}:{self._client_port(number)}" for number in range(self.count))

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run, by name: `zookeeper-0` and so on."""
        return {server.name: server.pid for server in self._servers if server.pid is not None}

    def start(self) -> ZooKeeperServers:
        """Start those that do not run, and wait until all of them answer. Raises ServerDown, JavaMissing."""
        if not self._servers:
            self._ports = ports_of(self.folder, _PORTS_OF_SERVER * self.count)
            self._servers = [self._server(number) for number in range(self.count)]
        with ExitStack() as failed:
            failed.callback(self.stop)
            for server in self._servers:
                server.start()
            self._await_ready()
            failed.pop_all()
        return self

    def stop(self) -> None:
        """Stop them; their data stays. Idempotent."""
        for server in self._servers:
            server.stop()

    def leader(self) -> int:
        """The number of the server that leads, from 0 on. Raises ServerDown when none does."""
        for number in range(self.count):
            if self._mode(number) in ("leader", "standalone"):
                return number
        raise ServerDown(f"no server of {self.hosts} leads just now: ask again in a moment")

    def kill(self, number: int) -> None:
        """Kill a server with SIGKILL."""
        self._servers[number].kill()

    def start_server(self, number: int) -> None:
        """Start a server again and wait until it follows or leads. Raises ServerDown."""
        self._servers[number].start()
        self._await_ready()

    def __enter__(self) -> ZooKeeperServers:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _await_ready(self) -> None:
        deadline_s = SYSTEM_CLOCK.monotonic_s() + _START_TIMEOUT_S
        for number, server in enumerate(self._servers):
            if server.pid is not None:
                left_s = max(1.0, deadline_s - SYSTEM_CLOCK.monotonic_s())
                server.await_answer(partial(self._takes_part, number), left_s)

    def _takes_part(self, number: int) -> bool:
        return self._mode(number) in ("leader", "follower", "standalone")

    def _mode(self, number: int) -> str:
        """What a server says that it is; "" when it does not answer."""
        if self._servers[number].pid is None:
            return ""
        lines = ask_server(self._client_port(number), "srvr", self._host.address).splitlines()
        return next((line.removeprefix("Mode: ") for line in lines if line.startswith("Mode: ")), "")

    def _client_port(self, number: int) -> int:
        return self._ports[_PORTS_OF_SERVER * number]

    def _server(self, number: int) -> JavaServer:
        name = f"zookeeper-{number}"
        folder = self._host.place(self.folder)
        place = folder / name
        (place / "data").mkdir(parents=True, exist_ok=True)
        (place / "data" / "myid").write_text(str(number + 1))
        (place / "zoo.cfg").write_text(settings_text(self._configuration(number)), encoding="utf-8")
        configuration = str(place / "zoo.cfg")
        if self._image:
            from scribengin_dev.servers.containers import ContainerServer

            command = ["zkServer.sh", "start-foreground", configuration]
            return ContainerServer(name, folder, command, image=self._image)
        jars = pyspark_jars(SERVER_JARS, ServerDown)
        command = java_command(SERVER_CLASS, [configuration], jars=jars, heap_mb=_HEAP_MB, folder=folder)
        return JavaServer(name, folder, command, self._host)

    def _configuration(self, number: int) -> dict[str, object]:
        settings: dict[str, object] = {
            "dataDir": self._host.place(self.folder) / f"zookeeper-{number}" / "data",
            "clientPort": self._client_port(number),
            "clientPortAddress": self._host.address,
            "tickTime": 500,
            "initLimit": 40,  # ticks to catch up with the leader: machines that run tests are slow
            "syncLimit": 10,
            "minSessionTimeout": 500,
            "maxSessionTimeout": 120_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "conf,mntr,ruok,srvr",
            "preAllocSize": 1024,
        }
        for member in range(self.count):
            first = _PORTS_OF_SERVER * member + 1
            peers, election = self._ports[first : first + 2]
            settings[f"server.{member + 1}"] = f"{self._host.address}:{peers}:{election}"
        return {**settings, **self._settings}
