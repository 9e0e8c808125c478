"""`python -m scribengin.operations.submit.preflight_checks`: in a container, check what masters and workers of a
dataflow need there.

Each check stands alone, so that one look shows everything that is missing. The engine is imported by the first check
that needs it: YARN waits for a master to register, and a cold machine takes its time to import.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.text.counting import many
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import LogNotFound, ScribenginError, SourceMissing
from scribengin.launcher.yarn.application_master.preflight import (
    REQUEST_VARIABLE,
    PreflightCheck,
    PreflightMaster,
    PreflightReport,
    PreflightRequest,
    decoded_request,
)
from scribengin_registry.java.runtime import find_java
from scribengin_registry.opening import connect
from scribengin_registry.references import resolve_variables

if TYPE_CHECKING:
    from scribengin.connectors import Environment
    from scribengin.dataflow.config import DataflowConfig
    from scribengin_registry.contract import Registry

_DISK_BYTES_MIN = 1 << 30
_SKEW_MS_MAX = 5_000
_START_MS_MAX = 10 * 60_000
"""A container may wait so long for its queue before it looks at its clock."""
_FAILURES = (ScribenginError, OSError, ImportError, ValueError, RuntimeError)
"""What a connector or its client raises where a system is not to be had."""


def checks(request: PreflightRequest, directory: Path) -> Iterator[PreflightCheck]:
    """Check this machine for a dataflow, one thing after the other; `directory` is where its containers work. Changes
    nothing that stays."""
    yield _python(request.python)
    yield _attempt("packages", lambda: _packages(request.packages), "install them in the environment, or pack it anew")
    java = "install Java 17 on the nodes, or pack it: pip install 'scribengin[java]', then `scribengin yarn package`"
    yield _attempt("java", _java, java)
    yield _attempt("disk", lambda: _disk(directory), "free room where yarn.nodemanager.local-dirs are")
    yield _clock(request.sent_ms)
    try:
        from scribengin.connectors import Environment
        from scribengin.dataflow.config import DataflowConfig

        config = DataflowConfig.parse(request.config, source="the dataflow")
    except (ScribenginError, ImportError) as error:  # also where a connector's client is not installed
        yield PreflightCheck(name="dataflow", ok=False, found=_words(error), next_step="pack the environment anew")
        return
    try:
        registry = connect(request.registry)
    except ScribenginError as error:
        step = "every node must reach ZooKeeper: name it by an address that is good there, and open its port"
        yield PreflightCheck(name="registry", ok=False, found=_words(error), next_step=step)
        return  # connectors cannot be opened without it
    with registry:
        yield _attempt("registry", lambda: _registry(registry), "see SCRIBENGIN_REGISTRY_AUTH, and ZooKeeper's log")
        environment = Environment(registry=registry, dataflow=config.name, nodes=STREAM_NODES, looking=True)
        step = "it must be reachable, under this name, from every node"
        for name in config.sources:
            yield _attempt(f"source {name}", partial(_source, config, name, environment), step)
        for name in config.sinks:
            yield _attempt(f"sink {name}", partial(_sink, config, name, environment), step)


def _attempt(name: str, check: Callable[[], str], next_step: str) -> PreflightCheck:
    try:
        return PreflightCheck(name=name, ok=True, found=check())
    except _FAILURES as error:
        return PreflightCheck(name=name, ok=False, found=_words(error), next_step=next_step)


def _words(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return words if isinstance(error, ScribenginError) else f"{type(error).__name__}: {words}"


def _python(wanted: str) -> PreflightCheck:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = f"{platform.python_version()} in {sys.prefix}"
    step = f"masters and workers need Python {wanted}, as here: pack it with `scribengin yarn package`"
    return PreflightCheck(name="python", ok=version == wanted, found=found, next_step="" if version == wanted else step)


def _packages(names: list[str]) -> str:
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(f"{name} ({_words(error)})")
    if missing:
        raise ImportError(", ".join(missing))
    return ", ".join(names)


def _java() -> str:
    found = find_java()
    return f"Java {found.major} in {found.home}"


def _disk(directory: Path) -> str:
    free = shutil.disk_usage(directory).free
    words = f"{free / (1 << 30):.1f} GiB free in {directory}"
    if free < _DISK_BYTES_MIN:
        raise OSError(words)
    return words


def _clock(sent_ms: int) -> PreflightCheck:
    """A container starts after it was asked for, and not for ever after."""
    ahead_ms = SYSTEM_CLOCK.now_ms() - sent_ms
    ok = -_SKEW_MS_MAX <= ahead_ms <= _START_MS_MAX
    found = (
        "agrees" if ok else f"{abs(ahead_ms) / 1000:.0f} s {'behind' if ahead_ms < 0 else 'ahead of'} the submitter's"
    )
    return PreflightCheck(name="clock", ok=ok, found=found, next_step="" if ok else "run NTP on the nodes")


def _registry(registry: Registry) -> str:
    """A session that can write."""
    node = f"/scribengin-preflight-{uuid.uuid4().hex}"
    registry.create(node, b"", ephemeral=True)
    registry.delete(node)
    return f"a session of {registry.session_timeout_s:g} s with {registry.hosts}"


def _source(config: DataflowConfig, name: str, environment: Environment) -> str:
    from scribengin.connectors import open_source

    source = open_source(name, config.sources[name], environment)
    try:
        streams = source.streams()
        if streams:
            reader = source.open_reader(streams[0])
            try:
                reader.lag(reader.initial_position())
            finally:
                reader.close()
        return many(len(streams), "stream")
    except SourceMissing as error:
        return f"reachable, and empty: {_words(error)}"
    finally:
        source.close()


def _sink(config: DataflowConfig, name: str, environment: Environment) -> str:
    from scribengin.connectors import open_sink

    sink = open_sink(name, config.sinks[name], environment)
    try:
        sink.refuse_unwritable()  # by the user that containers run as
        next(iter(sink.committed(sink.streams(1)[0])), None)
        return sink.resource
    except LogNotFound:
        return f"{sink.resource}, to be made"
    finally:
        sink.close()


def main() -> int:
    """Answer the request of the environment. Returns the exit code."""
    try:
        resolve_variables()
        request = decoded_request(os.environ.get(REQUEST_VARIABLE, ""))
        master = PreflightMaster()
        done = list(checks(request, Path.cwd()))
        return master.end(PreflightReport(host=socket.gethostname(), checks=done))
    except ScribenginError as error:
        print(f"the check ended: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
