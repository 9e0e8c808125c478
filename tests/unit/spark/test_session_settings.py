"""What the JVM of a session is told, before there is one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from scribengin.base.process.scratch import ScratchDirectory
from scribengin.spark.session import session
from scribengin.spark.session.spark_master import settings_for
from scribengin_registry.java.runtime import JavaRuntime
from tests.temporary import temporary_directory

OPTIONS = "spark.driver.extraJavaOptions"
SHUFFLE = "spark.sql.shuffle.partitions"
ZIPS = "PYSPARK_ARCHIVES_PATH"


@pytest.mark.parametrize(
    ("brief", "conf", "levels"),
    [
        (True, {}, ["1"]),
        (False, {}, []),
        (True, {OPTIONS: "-XX:TieredStopAtLevel=3"}, ["1", "3"]),
        (False, {OPTIONS: "-XX:TieredStopAtLevel=3"}, ["3"]),
    ],
)
def test_a_brief_session_compiles_lightly_and_any_other_as_ever_and_the_users_word_is_the_last(
    brief: bool, conf: Mapping[str, str], levels: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def started(*given: object) -> None:
        conf, scratch = given[3], given[5]
        assert isinstance(conf, dict)
        assert isinstance(scratch, ScratchDirectory)
        told.append(dict(session._spark_conf("x", "local[1]", 512, conf, scratch, "").getAll())[OPTIONS])
        scratch.remove()
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "_start", started)
    monkeypatch.setattr(session, "_java", lambda: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        session.start_session("x", master="local[1]", conf=conf, brief=brief)
    assert [word[-1] for word in told[0].split() if "Tiered" in word] == levels


@pytest.mark.parametrize(("deep", "sockets"), [("d", "true"), ("d" * 100, "false")])
def test_a_temporary_directory_of_a_long_path_has_no_sockets(
    deep: str, sockets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their paths must be short."""
    with temporary_directory() as place:
        directory = Path(place) / deep
        directory.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(directory))
        scratch = ScratchDirectory("x-")
        told = dict(session._spark_conf("x", "local[1]", 512, {}, scratch, "").getAll())
        scratch.remove()
    assert told["spark.python.unix.domain.socket.enabled"] == sockets


@pytest.mark.parametrize(
    ("master", "said", "sent"),
    [("yarn", "", ["py4j", "pyspark"]), ("yarn", "hdfs:///mine.zip", ["mine"]), ("local[2]", "", [])],
)
def test_executors_of_yarn_are_sent_what_the_home_of_links_has_not(
    master: str, said: str, sent: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ZIPS, said)
    java = JavaRuntime(tmp_path, tmp_path / "java", 17)
    with session._environment(java, master, tmp_path / "spark.properties", tmp_path):
        found = [Path(zip_).stem.partition("-")[0] for zip_ in os.environ[ZIPS].split(",") if zip_]
    assert (found, os.environ[ZIPS]) == (sent, said)


@pytest.mark.parametrize(
    ("master", "conf", "tasks"),
    [
        ("local[3]", {}, "3"),
        ("local", {}, "1"),
        ("local[ 2 ]", {}, "1"),
        ("local[*, 4]", {}, str(os.cpu_count())),
        ("local[2]", {SHUFFLE: "7"}, "7"),
        ("yarn", {}, None),
    ],
)
def test_a_shuffle_has_as_many_tasks_as_threads_unless_the_user_says_otherwise(
    master: str, conf: Mapping[str, str], tasks: str | None, tmp_path: Path
) -> None:
    java = JavaRuntime(tmp_path, tmp_path / "java", 17)
    assert (settings_for(master, java) | conf).get(SHUFFLE) == tasks
