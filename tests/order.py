"""In which order tests begin, and which of them share a process of the run.

What needs neither Spark nor servers runs first, what needs servers last: they are started when a process comes to its
first test of them, and then little else runs beside them. Of each part the files that take long begin first, the
longest at the head: what begins last is short, and nobody waits for it. A file stays together, because its fixtures
are dear; and all files that need YARN stay together, so that a run has one YARN, and unpacks our environment once a
node. They take as long as a third of what needs Spark, and begin before it.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

_SLOW_TO_START = frozenset({"bookkeeper", "browser", "hdfs", "own_bookkeeper", "own_hdfs", "own_yarn", "yarn"})
"""The browser may have to be installed first."""
_SERVERS = _SLOW_TO_START | {"kafka", "kafka_brokers", "own_kafka", "zookeeper_quorum"}
_SLOW_TIMEOUT_S = 900  # five Java processes on a machine that has other things to do, and then the test
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
    *("test_cluster_kills", "test_spark_session", "test_stateful_rounds", "test_page_readme", "test_page_operating"),
    *("test_spark_state_operators", "test_spark_log_kill", "test_demo", "test_spark_tables_kill", "test_page_chains"),
    *("test_cluster_state", "test_cluster_ends", "test_raising_functions", "test_pages_logs", "test_watching_flow"),
    *("test_faults", "test_kafka_source_flow", "test_cluster_registry", "test_kafka_brokers_killed", "test_sink_hdfs"),
    *("test_web_page", "test_yarn_deploy_kerberos", "test_web_editing", "test_hdfs_data_node", "test_hdfs_crashes"),
    *("test_log_bookkeeper", "test_log_faults", "test_kafka_sink_flow"),
)
ON_YARN = (
    *(
        "test_yarn_deploy",
        "test_yarn_dataflow",
        "test_yarn_chain",
        "test_yarn_state",
        "test_skein_launcher",
        "test_spark_yarn",
        "test_yarn_launcher",
    ),
    *("test_skein_dataflow", "test_yarn_staging", "test_servers_hadoop"),
)
"""The files whose tests use the fixture `yarn`. Who shares tests out sees names only."""


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say what needs servers, and put everything in its order."""
    parts: dict[Path, tuple[int, int]] = {}
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if _SERVERS.intersection(fixtures):
            item.add_marker(pytest.mark.servers)
        if _SLOW_TO_START.intersection(fixtures) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SLOW_TIMEOUT_S))
        if "yarn" in fixtures and item.path.stem not in ON_YARN:
            raise pytest.UsageError(f"{item.path.name} needs YARN: add it to ON_YARN in tests/order.py")
        parts[item.path] = max(parts.get(item.path, (0, 0)), _part(item))
    items.sort(key=lambda item: parts[item.path])


def _part(item: pytest.Item) -> tuple[int, int]:
    """The part of the run that a test belongs to, and where its file stands in that."""
    file = item.path.stem
    if file in ON_YARN:
        return 1, ON_YARN.index(file)
    rank = _FIRST.index(file) if file in _FIRST else len(_FIRST)
    if item.get_closest_marker("servers") is not None:
        return 3, rank
    return 2 * int(item.get_closest_marker("spark") is not None), rank


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody asks
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Who shares tests out by files takes those on YARN as one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(super()._split_scope(nodeid))

    return Together(config, log)


def together(file: str) -> str:
    """What all files have in common that one process of the run takes, as a name."""
    return "on YARN" if PurePosixPath(file).stem in ON_YARN else file
