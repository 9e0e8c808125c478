"""Skein's client: the one place that imports it.

Submitting takes skein's driver, a Java process beside this one that lives as long as the submission. It asks a command
`yarn` for Hadoop's class path; it is given one that names the client inside PySpark, so that no Hadoop need be here.
"""

from __future__ import annotations

import functools
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scribengin.base import jvm
from scribengin.base.process.private import private_directory
from scribengin.errors import ConfigInvalid, LauncherError
from scribengin.launcher.contract import tail_of_log
from scribengin.launcher.skein.spec import MASTER, WORKER
from scribengin_registry.java.process import wait_or_kill
from scribengin_registry.java.runtime import find_java
from scribengin_registry.threads import background

ANSWER_S = 10.0
"""So long skein's application master may take to answer."""
DRIVER_S = 1800.0
"""So long skein's driver may: it brings files to the cluster, and waits a quarter of an hour for a ResourceManager."""
DRIVER_START_S = 180.0
"""So long it may take to begin to answer: a JVM starts."""
_AGAIN_S = 1.0
"""When it is looked for again, if it had not even begun by then."""
DRIVER_END_S = 10.0
"""So long it may take to end, once nobody wants it."""
ACTIVE = ("WAITING", "REQUESTED", "RUNNING")
ENDED = ("SUCCEEDED", "FAILED", "KILLED")
_DRIVER_OPTIONS = "SKEIN_DRIVER_JAVA_OPTIONS"
_FIRST_MASTER = f"{MASTER}_0"
_environment = threading.Lock()


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of the service `worker`: `id` as in `worker_3`, `state` one of ACTIVE or ENDED; `yarn_id` and `web`,
    its node's address, once there is room for it."""

    id: str
    state: str
    yarn_id: str | None
    web: str | None
    message: str


def submit(spec: Mapping[str, Any], folder: Path) -> str:
    """Submit an application, and return its id; `folder` is for the driver's log. Raises ConfigInvalid, LauncherError.

    Whoever talks to the application later proves itself by credentials that are made here, and that only its own
    containers are given.
    """
    skein = _skein()
    log = folder / "driver.log"
    try:
        with _driver_environment(folder) as pid_file, _ended_if_silent(pid_file):
            kind = _driver_class(skein)
            options = [jvm.LIGHT, *os.environ.get(_DRIVER_OPTIONS, "").split()]
            new = skein.Security.new_credentials()
            driver = kind(security=new, log=str(log), log_level="WARN", java_options=options)
        with driver:
            return str(driver.submit(dict(spec)))
    except (skein.SkeinError, ValueError, TypeError, OSError, subprocess.SubprocessError) as error:
        said = tail_of_log(log, 3)
        raise LauncherError(
            f"skein does not take dataflow '{spec['name']}': {error}" + (f" ({log}: {said})" if said else "")
        ) from error


def _driver_class(skein: Any) -> Any:
    """Skein's client with a driver of its own, without its waiting for ever for one that hangs."""

    class Driver(skein.Client):  # type: ignore[misc]  # skein has no types
        _proc: Any

        def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
            try:
                return super()._call(method, request, timeout=timeout or DRIVER_S)
            except TimeoutError:
                self._proc.kill()  # skein waits for its end
                raise

        def close(self) -> None:
            """End the driver. What it has submitted is YARN's by then."""
            process, self._proc = getattr(self, "_proc", None), None
            if process is not None:
                process.stdin.close()
                wait_or_kill(process, DRIVER_END_S)
            super().close()

    return Driver


class SkeinApplication:
    """The application that this process is a container of. Thread-safe."""

    def __init__(self) -> None:
        """Raises ConfigInvalid; LauncherError: this is no container of a skein application, or nobody answers."""
        skein = _skein()
        if skein.properties.container_id is None:
            raise LauncherError("this process is in no skein application: submit the dataflow")
        self.yarn_id = os.environ["CONTAINER_ID"]
        self.first_master = skein.properties.container_id == _FIRST_MASTER and attempt_of(self.yarn_id) == 1
        """Whether this is the first master of the application."""
        self.web = f"{os.environ['NM_HOST']}:{os.environ['NM_HTTP_PORT']}"
        """This process's container, and the address of its node."""
        self._errors = (skein.SkeinError, ValueError, KeyError)
        self._client = skein.ApplicationClient.from_current()
        # Its methods wait for ever where its master hangs, and take no deadline; all of them go through this one.
        self._client._call = functools.partial(self._client._call, timeout=ANSWER_S)
        found = self._asked("its specification", self._client.get_specification)
        self.worker_memory_mb = int(found.services[WORKER].resources.memory)
        """What a worker's container has."""

    def add(self, env: Mapping[str, str]) -> str:
        """Have another worker run, with these variables. Returns its id. Raises LauncherError."""
        return str(self._asked("room for a worker", lambda: self._client.add_container(WORKER, env=dict(env))).id)

    def kill(self, worker: str) -> None:
        """Have a worker end. Raises LauncherError: it has ended before, or nobody answers."""
        self._asked(f"{worker} to be killed", lambda: self._client.kill_container(worker))

    def workers(self, states: tuple[str, ...] = ACTIVE) -> dict[str, Instance]:
        """The workers in these states, by id. Raises LauncherError."""
        found = self._asked("the workers", lambda: self._client.get_containers(services=[WORKER], states=list(states)))
        return {one.id: _instance(one) for one in found}

    def shutdown(self, *, succeeded: bool, message: str) -> None:
        """The application is over, and what runs of it is killed, this process as well. Raises LauncherError."""
        status = "SUCCEEDED" if succeeded else "FAILED"
        self._asked("the application to end", lambda: self._client.shutdown(status, message))

    def close(self) -> None:
        """End the connection; containers go on."""
        self._client.close()

    def _asked(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._errors as error:
            raise LauncherError(f"skein's application master was asked for {what}: {error}") from error


def _instance(container: Any) -> Instance:
    return Instance(
        str(container.id),
        str(container.state),
        container.yarn_container_id or None,
        container.yarn_node_http_address or None,
        container.exit_message or "",
    )


def attempt_of(yarn_id: str) -> int:
    """Which of its application's attempts a container belongs to: container_<application>_<attempt>_<number>."""
    return int(yarn_id.split("_")[-2])


@contextmanager
def _ended_if_silent(pid_file: Path) -> Iterator[None]:
    """Raises TimeoutError: the driver did not begin to answer in time. Skein waits for as long as its process lives."""
    answered, silent = threading.Event(), threading.Event()

    def end() -> None:
        wait_s = DRIVER_START_S
        while not answered.wait(wait_s):
            with suppress(OSError, ValueError):  # it has ended meanwhile, or not begun: a machine may be that slow
                os.kill(int(pid_file.read_text()), signal.SIGKILL)
                silent.set()
                return
            wait_s = _AGAIN_S

    background("skein-driver-limit", end).start()
    try:
        yield
    except Exception as error:
        if not silent.is_set():
            raise
        raise TimeoutError(
            f"its driver, a Java process, did not answer for {DRIVER_START_S:g} s and was ended; see whether this "
            "machine is overloaded, and submit again"
        ) from error
    finally:
        answered.set()


@contextmanager
def _driver_environment(folder: Path) -> Iterator[Path]:
    """What skein's driver finds in this process's environment when it is started; the file that has its process then,
    of which skein says nothing while it waits for it."""
    commands = folder / "bin"
    private_directory(commands)
    classpath = ":".join(map(str, [jvm.configuration_directory(), *jvm.client_jars()]))
    yarn = commands / "yarn"
    yarn.write_text(f"#!/bin/sh\n# Made by Scribengin, for `yarn classpath --glob`.\necho {shlex.quote(classpath)}\n")
    yarn.chmod(0o700)
    pid_file, java = folder / "driver.pid", commands / "java"
    with _environment:
        found = find_java()
        java.write_text(
            f"#!/bin/sh\n# Made by Scribengin, for skein's driver.\nset -C\necho $$ >{shlex.quote(str(pid_file))}\n"
            f'JAVA_HOME={shlex.quote(str(found.home))} exec {shlex.quote(str(found.executable))} "$@"\n'
        )
        java.chmod(0o700)
        wanted = {"PATH": f"{commands}:{os.environ.get('PATH', os.defpath)}", "JAVA_HOME": str(folder)}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield pid_file
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _skein() -> Any:
    try:
        if sys.version_info >= (3, 12):
            import setuptools  # noqa: F401  skein imports distutils, which Python has no more and this brings
        import skein
    except ImportError:
        raise ConfigInvalid("launcher: skein needs skein: pip install 'scribengin[skein]'") from None
    return skein
