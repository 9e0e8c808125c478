"""In which order tests begin, and which of them share a process of the run.

What needs YARN or HDFS is one process's, and mostly waits: so it begins before all, beside what computes. In the other
processes unit tests and their like run first: they fail soonest, and jars and Spark's classes are fetched meanwhile.
Then come whole systems: those that need Spark use the processors, those with servers and those with outages mostly
wait. So the three kinds are mixed, evenly: one after the other, they left the processors idle for a third of a run. Of
each kind the files that take long begin first, the longest at the head: what begins last is short, and nobody waits for
it. A file stays together, because its fixtures are dear; and all files that need YARN or HDFS stay together, so that a
run has one of each, and unpacks our environment once a node. Those that share a broker of Kafka's stay together, too,
and so do those that need bookies: a run has three. YARN, HDFS and the broker are stopped behind the last file that
needs them: they compute for the rest of the run, and for clients that are left open.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.servers.hadoop import HDFS, YARN
from tests.servers.kafka import KAFKA

_SLOW_TO_START = frozenset({"bookkeeper", "browser", "first_node", "hdfs", "own_hdfs", "own_yarn", "yarn"})
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
    *("test_log_faults", "test_stateful_crashes", "test_spark_state_fits", "test_spark_log_sink", "test_spark_tables"),
    *("test_cli_dafka", "test_registry_embedded", "test_divided_state_crashes", "test_spark_state_refusals"),
    *("test_spark_state_divided", "test_cli_dataflows", "test_rewind", "test_spark_transformation", "test_monitor"),
    "test_web_server",
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
"""The files whose tests use the fixture `yarn`, or `first_node`, with which it begins. Who shares tests out sees names
only."""
ON_HDFS = (
    *("test_sink_hdfs", "test_hdfs_crashes", "test_state_on_hdfs", "test_log_store_hdfs", "test_source_open_files"),
    *("test_log_hdfs", "test_source_conformance", "test_files_flow", "test_log_cold", "test_file_systems"),
    *("test_source_rotation", "test_hdfs_permissions"),
)
"""The files that need no YARN, and whose tests use the fixture `hdfs` in every run: they come behind those on YARN."""
ON_KAFKA = (
    *("test_source_kafka", "test_sink_conformance", "test_late_crashes", "test_kafka_seam", "test_error_route"),
    *("test_kafka_sink", "test_kafka_state", "test_memory_kafka", "test_chain_kafka", "test_source_kafka_places"),
    *("test_kafka_headers_flow", "test_kafka_sink_flow"),
)
"""The files whose tests use the fixture `kafka`."""
ON_BOOKIES = (
    *("test_log_store_bookkeeper", "test_servers_bookkeeper", "test_log_reader_starts", "test_log_reader_options"),
    *("test_log_writer", "test_log_end_of_stream", "test_log_bookkeeper"),
)
"""The files whose tests use the fixture `bookkeeper` in every run: three bookies serve all of them, and that which
kills some is the last."""
_ON_HADOOP = (*ON_YARN, *ON_HDFS)
_TOGETHER = {
    **dict.fromkeys(_ON_HADOOP, "on Hadoop"),
    **dict.fromkeys(ON_KAFKA, "on Kafka"),
    **dict.fromkeys(ON_BOOKIES, "on bookies"),
}
_STOPPED_BEHIND = ((YARN, ON_YARN), (HDFS, _ON_HADOOP), (KAFKA, ON_KAFKA))
_BEGINNING = (*_ON_HADOOP, *ON_KAFKA, *ON_BOOKIES)
"""Of whole systems: in this order."""

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
        _refuse_unknown(item)
        kinds[item.path] = max(kinds.get(item.path, 0), _kind(item))
    places = _places(kinds)
    items.sort(key=lambda item: (places[item.path], item.path))


def _refuse_unknown(item: pytest.Item) -> None:
    """Raises UsageError for one whose servers are shared by files that it is not among."""
    fixtures, file = getattr(item, "fixturenames", ()), item.path.stem
    known: tuple[tuple[bool, str, str, Sequence[str]], ...] = (
        ("first_node" in fixtures, "YARN", "ON_YARN", ON_YARN),
        ("hdfs" in fixtures, "HDFS", "ON_HDFS", _ON_HADOOP),
        ("kafka" in fixtures, "a broker", "ON_KAFKA", ON_KAFKA),
        (_needs_bookies(item), "bookies", "ON_BOOKIES", ON_BOOKIES),
    )
    for needs, what, name, files in known:
        if needs and file not in files:
            raise pytest.UsageError(f"{item.path.name} needs {what}: add it to {name} in tests/order.py")


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
        files = [path for path, its_kind in kinds.items() if its_kind == kind and path.stem not in _BEGINNING]
        files.sort(key=lambda path: _FIRST.index(path.stem) if path.stem in _FIRST else len(_FIRST))
        for index, path in enumerate(files):
            places[path] = (2 if kind else 0), (index + 0.5) / len(files)
    for path in kinds:
        if path.stem in _BEGINNING:
            places[path] = (-1 if path.stem in _ON_HADOOP else 1), _BEGINNING.index(path.stem)
    return places


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Behind the last test of the files that need servers, stop them: they compute for the rest of the run."""
    result = yield
    config = item.config
    if config.getoption("failedfirst", False) or config.getoption("newfirst", False):
        return result  # then tests that need them are not together
    for key, files in _STOPPED_BEHIND:
        servers = config.stash.get(key, None)
        on_them = [one is not None and one.path.stem in files for one in (item, nextitem)]
        if servers is not None and on_them == [True, False]:
            servers.stop()
    return result


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody asks
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Who shares tests out by files takes those as one that share servers."""
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
