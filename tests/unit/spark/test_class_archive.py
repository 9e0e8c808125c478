"""The archive of Spark's classes: when it is used, when it is begun, and that it never gets in the way."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from scribengin.base.process.variables import CONTAINER_VARIABLE
from scribengin.spark.session import class_archive, spark_home
from scribengin_registry.java.runtime import JavaRuntime

JAVA = JavaRuntime(Path("/nowhere/java"), Path("/nowhere/java/bin/java"), 17)


class Makers(list[list[str]]):
    """The processes that would have been started, and where the last."""

    environ: Mapping[str, str]
    directory: str

    def __call__(self, command: list[str], *, env: Mapping[str, str], cwd: str, **_how: object) -> Makers:
        self.append(command)
        self.environ = env
        self.directory = cwd
        return self


@pytest.fixture
def makers(monkeypatch: pytest.MonkeyPatch) -> Makers:
    found = Makers()
    monkeypatch.setattr(subprocess, "Popen", found)
    monkeypatch.setattr(class_archive, "_makers", [])
    return found


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive of that Java belongs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "scribengin" / f"spark-classes-{class_archive.mark(JAVA)}.jsa"


def test_where_there_is_none_one_is_begun_and_the_session_does_without(makers: Makers, archive: Path) -> None:
    assert class_archive.options(JAVA, "", {}) == ""
    assert [command[-1] for command in makers] == [str(archive)]


def test_the_maker_is_not_of_the_container_whose_memory_it_would_take(makers: Makers, archive: Path) -> None:
    """A worker of the smallest container was ended for what its machine's first archive took. The maker outlives it,
    and its directory: where that was gone, Java did not start, and seemed to be one that can make no archive."""
    class_archive.options(JAVA, "", {CONTAINER_VARIABLE: "worker-1", "LANG": "C"})
    assert makers.environ["LANG"] == "C"
    assert CONTAINER_VARIABLE not in makers.environ
    assert makers.directory == "/"
    assert Path(makers.environ["PYTHONPATH"].split(os.pathsep)[0]).is_dir(), "what is imported is found from there"


def test_one_that_is_there_is_used(makers: Makers, archive: Path) -> None:
    archive.parent.mkdir()
    archive.write_bytes(b"classes")
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.options(JAVA, "", {})
    assert not makers


def test_one_of_jars_that_were_installed_anew_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ones, of the same Spark: Java takes them for others, and does without the archive, without a word."""
    jar = tmp_path / "pyspark" / "jars" / "spark.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"classes")
    monkeypatch.setattr(spark_home, "installed", lambda: tmp_path / "pyspark")
    before = class_archive.mark(JAVA)
    assert class_archive.mark(JAVA) == before
    os.utime(jar, (1_000_000_000, 1_000_000_000))
    assert class_archive.mark(JAVA) != before


def test_a_java_that_can_make_none_is_not_asked_again(makers: Makers, archive: Path) -> None:
    archive.parent.mkdir()
    archive.touch()
    assert class_archive.options(JAVA, "", {}) == ""
    assert not makers


@pytest.mark.parametrize(
    ("user_options", "environ"),
    [
        ("-Xshare:off", {}),
        ("-XX:SharedArchiveFile=/my/own.jsa", {}),
        ("", {"SPARK_SUBMIT_OPTS": "-XX:SharedArchiveFile=/my/own.jsa"}),
        ("", {class_archive.ARCHIVE_VARIABLE: "off"}),
    ],
)
def test_what_the_user_says_goes_before(
    user_options: str, environ: dict[str, str], makers: Makers, archive: Path
) -> None:
    assert class_archive.options(JAVA, user_options, environ) == ""
    assert not makers


def test_a_container_of_yarn_begins_none_since_its_processes_end_with_it(makers: Makers, archive: Path) -> None:
    assert class_archive.options(JAVA, "", {"CONTAINER_ID": "container_1"}) == ""
    assert not makers


def test_a_cache_that_cannot_be_read_is_no_reason_to_fail(makers: Makers, archive: Path) -> None:
    archive.parent.write_text("a file where the directory belongs")
    assert class_archive.options(JAVA, "", {}) == ""
    assert not makers


def test_a_java_that_can_make_none_leaves_an_empty_file(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(unfinished: Path, *_of: object) -> None:
        unfinished.write_bytes(b"half")
        raise subprocess.CalledProcessError(1, "java")

    monkeypatch.setattr(class_archive, "_pack", fail)
    class_archive.make(archive, JAVA)
    assert archive.read_bytes() == b""
    monkeypatch.setattr(class_archive, "_pack", None)  # it is not tried again
    class_archive.make(archive, JAVA)


def test_a_machine_that_is_too_busy_says_nothing_of_its_java(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def be_late(unfinished: Path, *_of: object) -> None:
        unfinished.write_bytes(b"half")
        raise subprocess.TimeoutExpired("java", 300)

    monkeypatch.setattr(class_archive, "_pack", be_late)
    class_archive.make(archive, JAVA)
    assert [path.suffix for path in archive.parent.iterdir()] == [".lock"]
    monkeypatch.setattr(class_archive, "_pack", lambda unfinished, *_of: unfinished.write_bytes(b"classes"))
    class_archive.make(archive, JAVA)
    assert archive.read_bytes() == b"classes"


def test_of_several_makers_beside_sessions_one_works(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "_pack", lambda unfinished, *_of: unfinished.write_bytes(b"classes"))
    archive.parent.mkdir()
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        class_archive.make(archive, JAVA, waits=False)
        assert not archive.exists()
    class_archive.make(archive, JAVA, waits=False)
    assert archive.read_bytes() == b"classes"
