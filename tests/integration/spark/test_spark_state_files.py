"""The files that a batch of a query with state makes: without a process for each. And what it sends of Hadoop."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scribengin.spark.session.local_files import make_files_in_process
from scribengin_registry.contract import Registry
from tests.integration.state_flow import StateFlow, drain

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNTS = "SELECT window.start AS start, who, count(*) AS n FROM src GROUP BY window(at, '10 seconds'), who"
OF_ENDED_CHILDREN = 8
"""The field behind the name in /proc/PID/stat with the page faults of children that have ended."""
STICKY = 0o1777


def faults_of_ended_children(spark: SparkSession) -> int:
    """Of the JVM: as many as before, and no process that it has started has ended since."""
    jvm: Any = spark._jvm
    text = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat").read_text()
    return int(text.rpartition(")")[2].split()[OF_ENDED_CHILDREN])


def origins(spark: SparkSession) -> set[Any]:
    """Where some of Hadoop's settings come from, as it knows."""
    conf: Any = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    assert (conf.get("fs.defaultFS"), conf.get("io.file.buffer.size")) == ("file:///", "65536")
    return {conf.getPropertySources(name) for name in ("fs.defaultFS", "io.file.buffer.size", "fs.trash.interval")}


def test_a_batch_starts_no_process(memory_registry: Registry, spark: SparkSession, tmp_path: Path) -> None:
    """It started twelve: `chmod`, for each file and for the one with its checksum."""
    flow = StateFlow(memory_registry, spark, tmp_path, sql=COUNTS)
    flow.append("in/0", [(10, "a", 1)])
    with flow.owner() as owner:
        owner.take_over()
        drain(owner)
        before = faults_of_ended_children(spark)
        flow.append("in/0", [(20, "a", 1), (100, "b", 1)])
        drain(owner)
        assert faults_of_ended_children(spark) == before
        assert origins(spark) == {None}, "else they are most of what is sent of Hadoop's settings with each batch"
        owner.release()
    changed = list((tmp_path / "state").rglob("*.changelog"))
    assert changed
    assert all((file.parent / f".{file.name}.crc").exists() for file in changed), "Hadoop's checksums are there still"


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o750, STICKY])
def test_permissions_are_set_as_hadoop_does_it(spark: SparkSession, tmp_path: Path, mode: int) -> None:
    hadoop, files = local_files(spark)
    made = tmp_path / "with space and ü"
    made.mkdir()
    files.setPermission(hadoop.fs.Path(str(made)), hadoop.fs.permission.FsPermission(f"{mode:o}"))
    assert stat.S_IMODE(os.stat(made).st_mode) == mode


def test_nothing_is_renamed_over_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """As with what Spark has for `file:`: of two who plan the same batch one would overwrite the other's plan."""
    hadoop, files = local_files(spark)
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("first")
    second.write_text("second")
    assert not files.rename(hadoop.fs.Path(str(second)), hadoop.fs.Path(str(first)))
    assert (first.read_text(), second.read_text()) == ("first", "second")
    assert files.rename(hadoop.fs.Path(str(second)), hadoop.fs.Path(str(tmp_path / "third")))
    assert (tmp_path / "third").read_text() == "second"


def local_files(spark: SparkSession) -> tuple[Any, Any]:
    """Hadoop, and what its code has for `file:`."""
    make_files_in_process(spark)
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop
    files = hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), hadoop.conf.Configuration())
    assert files.getClass().getName() == "localfiles.LocalFiles"
    return hadoop, files
