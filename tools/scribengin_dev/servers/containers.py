"""Servers in containers of a Docker engine on this machine, as another way to run the process of a server.

The container has the host's network, the same user, and the server's folder under the same path. So what a server's
module says about configuration, ports, data and logs is true of both ways. Images need what the official ones of Apache
have: `zkServer.sh` on their PATH, or `kafka-run-class.sh` in /opt/kafka/bin.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from docker import DockerClient, from_env
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from testcontainers.core.container import DockerContainer

from scribengin.errors import ServerDown
from scribengin_dev.servers.java_server import JavaServer, failure_of

IMAGES: Mapping[str, str] = {"kafka": "apache/kafka:4.3.1", "zookeeper": "zookeeper:3.9"}
"""The servers that can run in containers, and the image that each has unless another is named."""

# Kafka's image has its scripts there, and not on its PATH. What is said goes where a process of ours would write it.
_ENTRY = 'PATH="$PATH:/opt/kafka/bin"; out="$1" err="$2" in="$3"; shift 3; exec "$@" >"$out" 2>"$err" <"$in"'
_TOOL_TIMEOUT_S = 600.0


def engine() -> str:
    """The Docker engine that answers on this machine, as in `Docker 28.1`; "" for none."""
    try:
        client = from_env()
    except DockerException:
        return ""
    try:
        return f"Docker {client.version()['Version']}" if _is_local(client) else ""
    except DockerException:
        return ""
    finally:
        client.close()


def has_image(image: str) -> bool:
    """Whether the engine has an image already. There must be an engine."""
    client = from_env()
    try:
        client.images.get(image)
    except ImageNotFound:
        return False
    finally:
        client.close()
    return True


class ContainerProcess:
    """One container that runs one command: `command` is what the image's own scripts are called with."""

    def __init__(
        self, image: str, command: Sequence[str], *, folder: Path, out: Path, err: Path, stdin: Path | None = None
    ) -> None:
        words = ["/bin/sh", "-c", _ENTRY, "server", str(out), str(err), str(stdin or "/dev/null")]
        self._container = DockerContainer(image)
        self._container.with_kwargs(
            entrypoint=words,
            network_mode="host",
            user=f"{os.getuid()}:{os.getgid()}",
            working_dir=str(folder),
        )
        self._container.with_command(list(command))
        self._container.with_volume_mapping(str(folder), str(folder), "rw")
        self._container.with_envs(LOG_DIR=str(folder), ZOO_LOG_DIR=str(folder), LC_ALL="C.UTF-8")
        try:
            self._container.start()
        except DockerException as error:
            self._container.stop()
            raise ServerDown(
                f"no container of {image} could be started ({error}): is that the image's name?"
            ) from error

    @property
    def pid(self) -> int | None:
        """The process in it, as this machine counts; None when it has ended."""
        wrapped = self._container.get_wrapped_container()
        try:
            wrapped.reload()
        except NotFound:
            return None
        state = wrapped.attrs["State"]
        return int(state["Pid"]) if state["Running"] else None

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; its exit status."""
        return int(self._container.get_wrapped_container().wait(timeout=timeout_s)["StatusCode"])

    def kill(self) -> None:
        """End it with SIGKILL. Idempotent."""
        try:
            self._container.get_wrapped_container().kill()
        except APIError:
            return  # it has ended already

    def stop(self, timeout_s: float) -> None:
        """End it: with SIGTERM, and with SIGKILL after `timeout_s`; then remove it. Idempotent."""
        try:
            self._container.get_wrapped_container().stop(timeout=int(timeout_s))
        except NotFound:
            return
        self._container.stop()


class ContainerServer(JavaServer):
    """A server in a container of `image`."""

    def __init__(self, name: str, folder: Path, command: Sequence[str], *, image: str) -> None:
        super().__init__(name, folder, command)
        self._image = image

    def kill(self) -> None:
        """End it as a crash would, with SIGKILL; its data stays. Idempotent."""
        if isinstance(self._process, ContainerProcess):
            self._process.kill()
        self.stop()

    def _launch(self, log: IO[bytes]) -> ContainerProcess:
        place = Path(log.name)
        return ContainerProcess(self._image, self._command, folder=self.folder, out=place, err=place)


def run_tool_in_container(what: str, command: Sequence[str], *, image: str, folder: Path, stdin: str = "") -> str:
    """Run a tool to its end and return its standard output. Raises ServerDown with what it said when it fails."""
    base = folder / f".tool-{uuid.uuid4().hex[:12]}"
    given, out, err = (base.with_suffix(suffix) for suffix in (".in", ".out", ".err"))
    given.write_text(stdin, encoding="utf-8")
    try:
        process = ContainerProcess(image, command, folder=folder, out=out, err=err, stdin=given)
        try:
            status = process.wait(_TOOL_TIMEOUT_S)
        finally:
            process.stop(0)
        said = out.read_text(encoding="utf-8")
        if status:
            raise failure_of(what, status, said + err.read_text(encoding="utf-8"))
        return said
    finally:
        for path in (given, out, err):
            path.unlink(missing_ok=True)


def _is_local(client: DockerClient) -> bool:
    """Whether the engine shares this machine's network and files."""
    return str(client.api.base_url).startswith(("http+docker://", "unix://"))
