"""`kind: spark` whose owners die around their write: at least once, and nothing is lost.

In every run within one process, on Parquet files; in full ones in processes that are killed, on a database file
(SQLite). Both sides are looked at through Arrow and Python's own sqlite3, never through the engine or Spark.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.spark.transform.transformation import Transformation
from scribengin.testing.failpoints import at_failpoint
from scribengin_dev.servers.jars.artifacts import jars_of
from scribengin_registry.contract import Registry
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.dying import Died, die
from tests.integration.cluster import running_cluster, start
from tests.integration.owners import owners_of
from tests.stalls import output_awaited

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * 600)]

ROWS, ROUND = 600, 50
_LIMIT_S = 600
"""A Spark session takes minutes to start on a machine that is busy with everything else."""
# One owner of one task, stopped at a point of its own choice; what it reads and writes are tables.
PROGRAM = """
import sys
from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors import Environment
from scribengin.dataflow.config import load_config
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.round.runner import RoundRunner
from scribengin.spark import runtime
from scribengin.spark.transform.transformation import Transformation
from scribengin.testing.failpoints import at_failpoint, kill_this_process
from scribengin_registry.opening import connect

hosts, descriptor, stop, generation = sys.argv[1:]
config = load_config(descriptor)
session = runtime.start("owner", conf=config.spark.conf)
with (
    connect(hosts, session_timeout_s=60) as registry,
    OpenedDataflow(config, Environment(registry, config.name, STREAM_NODES)) as resources,
):
    owner = RoundRunner(
        registry, config.name, resources.tasks()[0], owner=stop, generation=int(generation), sources=resources.sources,
        sinks=resources.sinks, transform=Transformation.load(resources.transformation_spec(), session),
        round_config=config.round, errors=config.errors, clock=SYSTEM_CLOCK,
    )
    owner.take_over()
    with at_failpoint(stop, kill_this_process, occurrence=2):
        while owner.run_round() is not None:
            pass
    owner.release()
"""


class Tables:
    """Two database files: `src` with rows in it, `out` for the dataflow to fill. Its table has to be there: Spark makes
    one only in databases whose dialect it knows."""

    def __init__(self, directory: Path) -> None:
        self.jar = jars_of("sqlite")[0]
        self._files = {name: directory / f"{name}.db" for name in ("src", "out")}
        for file in self._files.values():
            self._run(file, "PRAGMA journal_mode = WAL")  # a look disturbs no writer
        self._run(self._files["src"], "CREATE TABLE src (id INTEGER PRIMARY KEY, name TEXT)")
        self._run(self._files["out"], "CREATE TABLE out (id INTEGER, name TEXT)")
        self.add(1, ROWS)

    def add(self, first: int, last: int) -> None:
        with closing(sqlite3.connect(self._files["src"])) as database, database:
            rows = [(number, f"name {number}") for number in range(first, last + 1)]
            database.executemany("INSERT INTO src VALUES (?, ?)", rows)

    def expect(self, wanted: Counter[tuple[int, str]]) -> None:
        """What is written is exactly that."""
        found = self.written()
        assert found == wanted, f"{found - wanted} too often, {wanted - found} missing"

    def written(self) -> Counter[tuple[int, str]]:
        """How often each row stands in `out`."""
        return Counter(self._run(self._files["out"], "SELECT id, name FROM out"))

    def wanted(self, last: int) -> set[tuple[int, str]]:
        return {(number, f"NAME {number}") for number in range(1, last + 1)}

    def config(self, name: str) -> dict[str, Any]:
        of_tables = {
            table: {
                "kind": "spark",
                "spark_format": "jdbc",
                "options": {
                    "url": f"jdbc:sqlite:{file}",
                    "dbtable": table,
                    "driver": "org.sqlite.JDBC",
                    "numPartitions": 1,
                },
            }
            for table, file in self._files.items()
        }
        return {
            "name": name,
            "sources": {"src": {**of_tables["src"], "increasing": "id", "poll_s": 0.2}},
            "sinks": {"out": of_tables["out"]},
            "sql": {"out": "SELECT id, upper(name) AS name FROM src"},
            "round": {"records_max": ROUND},
            "spark": {"conf": {"spark.jars": str(self.jar)}},
        }

    def _run(self, file: Path, statement: str) -> list[Any]:
        with closing(sqlite3.connect(file, timeout=120)) as database:
            return database.execute(statement).fetchall()


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def test_an_owner_that_dies_around_its_write_loses_nothing_and_repeats_one_round(
    memory_registry: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    """Before its second write; the next one after its second; the third one goes on to the end."""
    written = tmp_path / "out"
    rows = 6 * ROUND
    (tmp_path / "src").mkdir()
    pq.write_table(pa.table({"id": range(1, rows + 1)}), tmp_path / "src" / "rows.parquet")
    files = {"kind": "spark", "spark_format": "parquet"}
    described = {
        "name": "flow",
        "sources": {"src": {**files, "options": {"path": str(tmp_path / "src")}, "increasing": "id"}},
        "sinks": {"out": {**files, "options": {"path": str(written)}}},
        "sql": {"out": "SELECT id FROM src"},
        "round": {"records_max": ROUND},
    }
    config = DataflowConfig.parse(described, source="the test")
    environment = Environment(memory_registry, config.name, STREAM_NODES)

    def own(generation: int, stop: str) -> list[int]:
        """What is written by then. The owner dies at the second passing of the stop, if there is one."""
        with OpenedDataflow(config, environment) as resources, suppress(Died):
            transform = Transformation.load(resources.transformation_spec(), spark)
            [owner] = owners_of(memory_registry, resources, transform, generation=generation)
            with closing(owner), at_failpoint(stop, die, occurrence=2):
                owner.take_over()
                while owner.run_round() is not None:
                    pass
                owner.release()
        return sorted(pq.read_table(written).column("id").to_pylist())

    assert own(1, "spark.table_write:before") == [*range(1, ROUND + 1)]
    assert own(2, "spark.table_write:after") == [*range(1, 3 * ROUND + 1)]
    again = range(2 * ROUND + 1, 3 * ROUND + 1)  # written, and not committed
    assert own(3, "none") == sorted([*range(1, rows + 1), *again])


@pytest.mark.full
def test_an_owner_that_is_killed_around_its_write_loses_nothing_and_repeats_one_round(
    registry_hosts: str, tables: Tables, tmp_path: Path
) -> None:
    """Killed before its second write; the next one after its second; the third one goes on to the end."""
    descriptor = tmp_path / "flow.json"
    descriptor.write_text(json.dumps(tables.config("flow")))

    def own(stop: str, generation: int) -> int:
        words = [registry_hosts, str(descriptor), stop, str(generation)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", PROGRAM, *words]
        return subprocess.run(command, env=environment, timeout=_LIMIT_S, check=False).returncode

    assert own("spark.table_write:before", 1) == -signal.SIGKILL
    tables.expect(Counter(tables.wanted(ROUND)))
    assert own("spark.table_write:after", 2) == -signal.SIGKILL
    tables.expect(Counter(tables.wanted(3 * ROUND)))
    assert own("none", 3) == 0
    again = Counter(tables.wanted(ROWS))
    again.update(tables.wanted(3 * ROUND) - tables.wanted(2 * ROUND))  # written, and not committed
    tables.expect(again)


@pytest.mark.full
def test_a_dataflow_between_tables_survives_the_kill_of_its_worker(
    zookeeper: EmbeddedZooKeeper, tables: Tables, tmp_path: Path
) -> None:
    with running_cluster(zookeeper.hosts, tmp_path / "cluster") as cluster:
        # A second worker that is lost, by a session that expires, would repeat a second round.
        flow = start(cluster, **tables.config(f"tables-{tmp_path.name}"), session_timeout_s=30)
        due = random.Random(tmp_path.name).randrange(ROUND, ROWS // 2)
        flow.wait(lambda: len(tables.written()) >= due, f"{due} rows")
        [victim] = flow.ready_workers()
        os.kill(flow.view.worker(victim).pid, signal.SIGKILL)
        with output_awaited():
            flow.wait(lambda: len(tables.written()) == ROWS, "all rows")
            tables.add(ROWS + 1, ROWS + 10)
            flow.wait(lambda: len(tables.written()) == ROWS + 10, "the rows that were added later")
        assert flow.status.guarantees == {"out": "at least once"}
    written = tables.written()
    assert set(written) == tables.wanted(ROWS + 10), f"{written}"
    assert set(written.values()) <= {1, 2}, f"{written}"
    assert written.total() - len(written) <= ROUND, f"{written}"
