"""Spark's home without the zip: where it is, what it has, and what of it is made again."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from scribengin.spark.session.spark_home import cached, installed, spark_home


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_it_has_what_a_session_needs_and_not_the_zip(tmp_path: Path) -> None:
    home = spark_home(tmp_path, {})
    assert home == cached()
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert list((installed() / "python" / "lib").glob("pyspark*.zip"))
    assert not (home / "python").exists()
    assert list(tmp_path.iterdir()) == [tmp_path / "cache"]


def test_a_link_that_was_removed_is_made_again(tmp_path: Path) -> None:
    (spark_home(tmp_path, {}) / "bin").unlink()
    assert (spark_home(tmp_path, {}) / "bin" / "spark-submit").is_file()


def test_where_the_cache_cannot_be_written_it_is_in_the_scratch_directory(tmp_path: Path, cache: Path) -> None:
    cache.write_text("not a directory")
    assert (spark_home(tmp_path, {}) / "bin" / "spark-submit").is_file()
    assert spark_home(tmp_path, {}).parent == tmp_path


def test_where_no_links_can_be_made_it_is_the_installed_one(tmp_path: Path, cache: Path) -> None:
    cache.write_text("not a directory")
    assert spark_home(cache, {}) == installed()


def test_it_has_a_path_that_is_good_in_every_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM is started in another one than ours. XDG's specification has relative paths ignored."""
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert cached().is_relative_to(Path.home() / ".cache")


def test_so_it_is_for_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert spark_home(tmp_path, {}).parent == tmp_path


def test_a_container_leaves_none_in_the_cache_and_takes_the_one_that_is_there(tmp_path: Path, cache: Path) -> None:
    in_container = {"CONTAINER_ID": "container_1_0001_01_000002"}
    assert spark_home(tmp_path, in_container).parent == tmp_path
    assert not cache.exists()
    outside = spark_home(tmp_path, {})
    assert spark_home(tmp_path, in_container) == outside


def test_another_installation_has_another_home(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cached()
    monkeypatch.setattr(pyspark, "__file__", "/elsewhere/pyspark/__init__.py")
    assert cached() != here
