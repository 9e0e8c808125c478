"""Fixtures for all folders of tests. Each server has its module in `tests/servers`.

Tests run side by side in several processes (pytest-xdist); a file stays together, because its fixtures are dear.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from scribengin.base.diagnostics import unconfigure_logging
from tests.servers.bookkeeper import bookkeeper, own_bookkeeper
from tests.servers.browser import browser
from tests.servers.cold import cold_log
from tests.servers.hadoop import hdfs, own_hdfs, own_yarn, yarn
from tests.servers.jvms import start_jvms_lightly
from tests.servers.kafka import kafka, kafka_brokers
from tests.servers.memory import SERVED_STORES, log_place, memory_registry
from tests.servers.provider import (
    provider,
    pytest_addoption,
    pytest_configure,
    pytest_ignore_collect,
    pytest_report_header,
    pytest_terminal_summary,
)
from tests.servers.zookeeper import registry, registry_hosts, zookeeper, zookeeper_quorum

__all__ = [
    "bookkeeper",
    "browser",
    "cold_log",
    "hdfs",
    "kafka",
    "kafka_brokers",
    "log_place",
    "memory_registry",
    "own_bookkeeper",
    "own_hdfs",
    "own_yarn",
    "provider",
    "pytest_addoption",
    "pytest_configure",
    "pytest_ignore_collect",
    "pytest_report_header",
    "pytest_terminal_summary",
    "registry",
    "registry_hosts",
    "yarn",
    "zookeeper",
    "zookeeper_quorum",
]

pytest_plugins = ["tests.stalls"]

# How long anything takes says more about the machine than about what is tested.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")

# The browser may have to be installed first.
_SLOW_TO_START = frozenset({"bookkeeper", "browser", "hdfs", "own_bookkeeper", "own_hdfs", "own_yarn", "yarn"})
_SERVERS = _SLOW_TO_START | {"kafka", "kafka_brokers", "zookeeper_quorum"}
_SLOW_TIMEOUT_S = 900  # five Java processes on a machine that has other things to do, and then the test
# Of each part of a run the files that take long begin first, the longest at the head: what begins last is short, and
# nobody waits for it.
_FIRST = (
    *(
        "test_simulation_mistakes",
        "test_simulation",
        "test_simulation_sinks",
        "test_log_power_failure",
        "test_cli_sandbox",
        "test_round_crashes",
    ),
    *("test_chain_submit", "test_log_many_segments", "test_cli_restart", "test_registry_outages", "test_cli_config"),
    *("test_page_readme", "test_page_operating", "test_cluster_kills", "test_spark_log_kill", "test_demo"),
    *("test_spark_tables_kill", "test_page_chains", "test_cluster_ends", "test_watching_flow"),
    *("test_faults", "test_yarn_deploy", "test_yarn_dataflow", "test_cluster_registry", "test_kafka_source_flow"),
    *(
        "test_skein_launcher",
        "test_yarn_launcher",
        "test_kafka_brokers_killed",
        "test_sink_hdfs",
        "test_kafka_sink_flow",
    ),
)


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say what needs servers, and begin with what takes long."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if _is_of_a_served_store(item) and item.get_closest_marker("real_stores") is None:
            item.add_marker(pytest.mark.full)
        if _SERVERS.intersection(fixtures):
            item.add_marker(pytest.mark.servers)
        if _SLOW_TO_START.intersection(fixtures) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SLOW_TIMEOUT_S))
    parts: dict[Path, int] = {}
    for item in items:
        parts[item.path] = max(parts.get(item.path, 0), _part(item))
    items.sort(key=lambda item: (parts[item.path], _rank(item.path.stem)))


def _is_of_a_served_store(item: pytest.Item) -> bool:
    """Whether it is a variant of a test of logs, on HDFS or BookKeeper."""
    return (
        isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
        and (item.callspec.params.get("log_place") in SERVED_STORES)
    )


def _part(item: pytest.Item) -> int:
    """What needs neither Spark nor servers runs first, what needs servers last: they are started when a process comes
    to its first test of them, and then little else runs beside them."""
    if item.get_closest_marker("servers") is not None:
        return 2
    return int(item.get_closest_marker("spark") is not None)


def _rank(file: str) -> int:
    return _FIRST.index(file) if file in _FIRST else len(_FIRST)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What starts JVMs starts them lightly. A process of a run that shares its tests out has none itself."""
    marks = {mark.name for item in session.items for mark in item.iter_markers()}
    if marks & {"spark", "servers"} and not session.config.option.collectonly:
        start_jvms_lightly()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A test that is a process of ours writes lines as one; the next test does not."""
    yield
    unconfigure_logging()
