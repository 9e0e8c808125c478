"""The JVMs of a test run: started lightly, with what the user had set kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scribengin.spark.session.class_archive import ARCHIVE_VARIABLE, mark
from scribengin.spark.session.session import session_beside
from scribengin_dev.servers.java_server import OPTIONS_VARIABLE, java_command
from scribengin_registry.java.runtime import find_java
from tests.servers.jvms import CACHE, COMPILED, start_jvms_lightly, with_compiled_plans


@pytest.mark.spark
def test_sparks_jvm_is_light_and_its_classes_come_from_the_archive(spark: SparkSession) -> None:
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # there is one
    arguments = Path(f"/proc/{jvm}/cmdline").read_bytes().decode().split("\0")
    assert "-XX:TieredStopAtLevel=1" in arguments
    archives = [word.partition("=")[2] for word in arguments if word.startswith("-XX:SharedArchiveFile=")]
    assert archives or find_java().major > 17, "later ones may come without, or refuse it"
    assert spark.conf.get("spark.sql.codegen.wholeStage") == "false"
    assert all(archive in Path(f"/proc/{jvm}/maps").read_text() for archive in archives), "the JVM does not use it"


@pytest.mark.spark
def test_plans_are_compiled_where_a_test_wants_them_as_users_have_them(
    spark: SparkSession, compiled_plans: None
) -> None:
    beside = session_beside(spark)
    assert {name: beside.conf.get(name) for name in COMPILED} == COMPILED
    assert "*(1) " in str(beside.range(3).selectExpr("id + 1")._jdf.queryExecution().executedPlan())


_SESSION = """
import sys
from pathlib import Path
from scribengin.spark.session import class_archive, start_session, stop_session
class_archive.cache_directory = lambda: Path(sys.argv[1])
jvm = start_session("archived").sparkContext._gateway.proc.pid
print(Path(f"/proc/{jvm}/maps").read_text())
stop_session()
"""


@pytest.mark.full
@pytest.mark.spark
def test_a_users_session_takes_its_classes_from_the_archive_of_the_cache(tmp_path: Path, spark: SparkSession) -> None:
    archive = CACHE / f"spark-classes-{mark(find_java())}.jsa"
    (tmp_path / archive.name).symlink_to(archive)
    environ = {**os.environ, ARCHIVE_VARIABLE: "", "SPARK_SUBMIT_OPTS": ""}
    maps = subprocess.run(
        [sys.executable, "-c", _SESSION, tmp_path], env=environ, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    assert (str(archive) in maps) == bool(archive.stat().st_size)


@pytest.mark.spark
def test_what_the_user_has_set_is_kept_and_nothing_is_set_twice() -> None:
    environ = {"SPARK_SUBMIT_OPTS": "-Dhis=own"}
    start_jvms_lightly(environ)
    once = dict(environ)
    start_jvms_lightly(environ)
    assert environ == once
    assert environ["SPARK_SUBMIT_OPTS"].startswith("-Dhis=own -XX:")
    assert "codegen" in environ["SPARK_SUBMIT_OPTS"]
    assert "codegen" not in with_compiled_plans(environ["SPARK_SUBMIT_OPTS"])


def test_a_server_gets_the_options_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTIONS_VARIABLE, "-Done=1 -Dtwo=2")
    command = java_command("a.Main", ["word"], jars=[tmp_path / "a.jar"], heap_mb=64, folder=tmp_path)
    assert command[-6:] == ["-Done=1", "-Dtwo=2", "-cp", str(tmp_path / "a.jar"), "a.Main", "word"]
