"""In which order tests begin, and which of them share a process of the run.

Unit tests and their like run first: they fail soonest, and jars and Spark's classes are fetched meanwhile. Then come
whole systems: those that need Spark use the processors, those with servers and those with outages mostly wait. So the
three kinds are mixed, evenly: one after the other, they left the processors idle for a third of a run. Of each kind
the files that take long begin first, the longest at the head: what begins last is short, and nobody waits for it. A
file stays together, because its fixtures are dear; and all files that need YARN stay together, so that a run has one
YARN, and unpacks our environment once a node. They begin before all other whole systems, and YARN is stopped behind
them. Those that need bookies stay together, too: a run has three.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.servers.hadoop import YARN

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
ON_BOOKIES = (
    *("test_log_store_bookkeeper", "test_servers_bookkeeper", "test_log_reader_starts", "test_log_reader_options"),
    *("test_log_writer", "test_log_end_of_stream"),
)
"""The files whose tests use the fixture `bookkeeper` in every run: three bookies serve all of them."""
_TOGETHER = dict.fromkeys(ON_YARN, "on YARN") | dict.fromkeys(ON_BOOKIES, "on bookies")


_SYSTEMS = ("crash", "integration")
"""The folders whose tests are of whole systems. Whatever needs Spark or servers is such a test, wherever it stands."""
_Place = tuple[int, float]
"""Where a file stands in a run: a part of it, and where in that."""


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say what needs servers, and put everything in its order."""
    kinds: dict[Path, int] = {}
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if _SERVERS.intersection(fixtures):
            item.add_marker(pytest.mark.servers)
        if _SLOW_TO_START.intersection(fixtures) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SLOW_TIMEOUT_S))
        if "yarn" in fixtures and item.path.stem not in ON_YARN:
            raise pytest.UsageError(f"{item.path.name} needs YARN: add it to ON_YARN in tests/order.py")
        if _needs_bookies(item) and item.path.stem not in ON_BOOKIES:
            raise pytest.UsageError(f"{item.path.name} needs bookies: add it to ON_BOOKIES in tests/order.py")
        kinds[item.path] = max(kinds.get(item.path, 0), _kind(item))
    places = _places(kinds)
    items.sort(key=lambda item: (places[item.path], item.path))


def _needs_bookies(item: pytest.Item) -> bool:
    """Whether it does in every run: most tests of logs (`log_place`) do with `--full` only."""
    place = getattr(getattr(item, "callspec", None), "params", {}).get("log_place")
    in_every_run = place == "bk" and item.get_closest_marker("real_stores") is not None
    return "bookkeeper" in getattr(item, "fixturenames", ()) or in_every_run


def _kind(item: pytest.Item) -> int:
    """0: it needs nothing; 1: it is of a whole system; 2: it needs Spark; 3: servers."""
    if item.get_closest_marker("servers") is not None:
        return 3
    if item.get_closest_marker("spark") is not None:
        return 2
    _outside, _tests, inside = f"/{item.path.as_posix()}".rpartition("/tests/")
    return int(PurePosixPath(inside).parts[0] in _SYSTEMS)


def _places(kinds: dict[Path, int]) -> dict[Path, _Place]:
    """The place of each file: of a kind that is mixed with others, its share of the way through the kind."""
    places: dict[Path, _Place] = {}
    for kind in set(kinds.values()):
        files = [path for path, its_kind in kinds.items() if its_kind == kind and path.stem not in ON_YARN]
        files.sort(key=lambda path: _FIRST.index(path.stem) if path.stem in _FIRST else len(_FIRST))
        for index, path in enumerate(files):
            places[path] = (2 if kind else 0), (index + 0.5) / len(files)
    return places | {path: (1, ON_YARN.index(path.stem)) for path in kinds if path.stem in ON_YARN}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Behind the last test of a file that needs YARN, stop it: its three idle JVMs compute for the rest of the run."""
    result = yield
    config = item.config
    servers = config.stash.get(YARN, None)
    if config.getoption("failedfirst", False) or config.getoption("newfirst", False):
        return result  # then tests that need it are not together
    on_yarn = [one is not None and one.path.stem in ON_YARN for one in (item, nextitem)]
    if servers is not None and on_yarn == [True, False]:
        servers.stop()
    return result


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody asks
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Who shares tests out by files takes those on YARN as one, and those on bookies."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(super()._split_scope(nodeid))

    return Together(config, log)


def together(file: str) -> str:
    """What all files have in common that one process of the run takes, as a name."""
    return _TOGETHER.get(PurePosixPath(file).stem, file)
