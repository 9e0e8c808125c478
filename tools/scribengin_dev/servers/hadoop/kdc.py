"""A Kerberos KDC (Apache Kerby's) in a process of its own, with the principals that a test wants and their keytab."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from scribengin_dev.servers.jars.artifacts import jars_of
from scribengin_dev.servers.java_server import JavaServer, java_command, listens, ports_of, settings_text

REALM = "EXAMPLE.COM"
_MAIN = "org.apache.hadoop.minikdc.MiniKdc"
_HEAP_MB = 128
_START_TIMEOUT_S = 120.0
_DAY_MS = 24 * 3600 * 1000


class KdcServer:
    """A KDC of the realm EXAMPLE.COM with its files in `folder`. Its principals (`flow`, `nn/localhost`) are made at
    every start, and with them the keytab. Not thread-safe."""

    def __init__(self, folder: Path | str, principals: Sequence[str]) -> None:
        self.folder = Path(folder).absolute()
        self._principals = tuple(principals)
        self._server: JavaServer | None = None
        self._port = 0

    @property
    def keytab(self) -> Path:
        """The keys of all principals."""
        return self.folder / "principals.keytab"

    @property
    def krb5_conf(self) -> Path:
        """What Kerberos's clients have as krb5.conf (`-Djava.security.krb5.conf`)."""
        return self.folder / "krb5.conf"

    def start(self) -> KdcServer:
        """Start it, and wait until it answers. Raises ArtifactUnavailable, ServerDown, JavaMissing."""
        self.stop()
        [self._port] = ports_of(self.folder, 1)
        (self.folder / "kdc.properties").write_text(settings_text(self._settings()), encoding="utf-8")
        arguments = [str(self.folder), str(self.folder / "kdc.properties"), str(self.keytab), *self._principals]
        command = java_command(_MAIN, arguments, jars=jars_of("kdc"), heap_mb=_HEAP_MB, folder=self.folder)
        self.keytab.unlink(missing_ok=True)
        self._server = JavaServer("kdc", self.folder, command)
        self._server.start()
        self._server.await_answer(self._answers, _START_TIMEOUT_S)
        return self

    def stop(self) -> None:
        """End it. Idempotent."""
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> KdcServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _answers(self) -> bool:
        """Its last act is the keytab, then it says that it runs."""
        said = self._server.log_path.read_bytes() if self._server is not None else b""
        return b"Standalone MiniKdc Running" in said and self.keytab.is_file() and listens(self._port)

    def _settings(self) -> dict[str, object]:
        organisation, domain = REALM.split(".")
        return {
            "org.name": organisation,
            "org.domain": domain,
            "kdc.bind.address": "localhost",
            "kdc.port": self._port,
            "instance": "Scribengin",
            "max.ticket.lifetime": _DAY_MS,
            "max.renewable.lifetime": 7 * _DAY_MS,
            "transport": "TCP",
            "debug": "false",
        }
