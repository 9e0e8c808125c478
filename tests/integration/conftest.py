"""Fixtures of the integration tests: one Spark session for all that need one, and packages as users write them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scribengin.dataflow.config import DataflowConfig
from scribengin.launcher.contract import ContainerRequest
from scribengin.log import LogNamespace
from scribengin.log.metadata.writer_lock import HeldLock
from scribengin.operations import editing
from scribengin.operations.submit import submit as submitting
from scribengin.spark import runtime
from scribengin.spark.log_format.format import register
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect
from tests.integration.cli_runner import CommandLine
from tests.servers.jvms import COMPILED


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """This process's Spark session, stopped at the end of the run."""
    yield runtime.start("scribengin-tests", master="local[2]")
    runtime.stop()


@pytest.fixture
def session_of_commands(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in this process, and want a Spark session, have the one that tests share."""
    monkeypatch.setattr(runtime, "start", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(runtime, "stop", lambda: None)


@pytest.fixture
def compiled_plans(spark: SparkSession) -> Iterator[None]:
    """Sessions that begin meanwhile have their plans compiled, as users' have."""
    conf = spark._jsc.sc().conf()
    before = {name: spark.conf.get(name) for name in COMPILED}  # which fixes those of the session that tests share
    for name, value in COMPILED.items():
        conf.set(name, value)
    yield
    for name, value in before.items():
        conf.set(name, value)


@pytest.fixture
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry's word that a lock was taken comes too late: a writer learns it from its fence."""
    monkeypatch.setattr(HeldLock, "_on_change", lambda _lock, _event: None)


@pytest.fixture
def package(tmp_path: Path) -> Callable[..., Path]:
    """Write the modules of a user's package and return its directory."""

    def write(**modules: str) -> Path:
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        return tmp_path

    return write


@pytest.fixture
def elsewhere(namespace: LogNamespace, registry_hosts: str) -> Iterator[LogNamespace]:
    """The test's own `namespace`, through a session of its own, as another process has it."""
    with connect(registry_hosts, session_timeout_s=100) as session:
        yield LogNamespace.open(namespace.path, registry=session)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands put containers and packages."""
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever edits waits for the master's verdict as long as it takes on a busy machine, and does not go on without
    one: for tests that assert on it, or on the config in force."""
    monkeypatch.setattr(editing, "_VERDICT_S", 60.0)


@pytest.fixture
def no_standbys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masters that commands launch have nobody behind them, who would start, and be told to end with them: for tests
    that are about nothing of that."""
    asked = submitting.master_request

    def alone(config: DataflowConfig, name: str, hosts: str, home: Path, standbys: int) -> ContainerRequest:
        return asked(config, name, hosts, home, standbys=0)

    monkeypatch.setattr(submitting, "master_request", alone)


@pytest.fixture
def line(
    registry: Registry,
    registry_hosts: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> CommandLine:
    """The command line, for a registry of its own with a namespace of logs at `/logs`."""
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    monkeypatch.setenv("SCRIBENGIN_REGISTRY", registry_hosts)
    return CommandLine(registry_hosts, capfd)


@pytest.fixture(scope="module")
def log_session(spark: SparkSession) -> Iterator[SparkSession]:
    """The same session, with the format `scribengin-log`; other tests get back the settings they had."""
    register(spark)
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
