"""The JVMs of a test run: started lightly, with what the user had set kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scribengin_dev.servers.java_server import OPTIONS_VARIABLE, java_command
from scribengin_registry.java.runtime import find_java
from tests.servers.jvms import start_jvms_lightly


@pytest.mark.spark
def test_sparks_jvm_is_light_and_its_classes_come_from_the_archive(spark: SparkSession) -> None:
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # there is one
    arguments = Path(f"/proc/{jvm}/cmdline").read_bytes().decode().split("\0")
    assert "-XX:TieredStopAtLevel=1" in arguments
    archives = [word.partition("=")[2] for word in arguments if word.startswith("-XX:SharedArchiveFile=")]
    assert archives or find_java().major > 17, "later ones may come without, or refuse it"
    assert all(archive in Path(f"/proc/{jvm}/maps").read_text() for archive in archives), "the JVM does not use it"


@pytest.mark.spark
def test_what_the_user_has_set_is_kept_and_nothing_is_set_twice() -> None:
    environ = {"SPARK_SUBMIT_OPTS": "-Dhis=own"}
    start_jvms_lightly(environ)
    once = dict(environ)
    start_jvms_lightly(environ)
    assert environ == once
    assert environ["SPARK_SUBMIT_OPTS"].startswith("-Dhis=own -XX:")


def test_a_server_gets_the_options_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTIONS_VARIABLE, "-Done=1 -Dtwo=2")
    command = java_command("a.Main", ["word"], jars=[tmp_path / "a.jar"], heap_mb=64, folder=tmp_path)
    assert command[-6:] == ["-Done=1", "-Dtwo=2", "-cp", str(tmp_path / "a.jar"), "a.Main", "word"]
