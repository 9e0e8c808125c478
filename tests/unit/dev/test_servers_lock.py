"""Lock files of servers: which jars, with which sums; what a broken one is refused for."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.errors import ConfigInvalid
from scribengin_dev.servers.jars.lock import Artifact, Lock, lock_names, lock_path, sha256_of

SUM = "0123456789abcdef" * 4


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    jar = Artifact("org.example", "jar", "1.0")
    native = Artifact("org.example", "jar", "1.0", "linux-x86_64")
    lock = Lock((jar,), (native,), {native: SUM, jar: SUM[::-1]})
    lock.write(tmp_path / "example.txt")
    assert Lock.read(tmp_path / "example.txt") == lock
    assert lock_names(tmp_path) == ["example"]


def test_a_jar_is_called_as_repositories_call_it() -> None:
    assert Artifact.parse("a.b:name:1.0").file_name == "name-1.0.jar"
    assert Artifact.parse("a.b:name:1.0:linux").file_name == "name-1.0-linux.jar"


@pytest.mark.parametrize(
    "line", ["root only:two", f"{SUM} a:b", f"{SUM[1:]} a:b:1", f"{SUM} a:b:1:c:d", f"{SUM} ../a:b:1", "a:b:1", "x"]
)
def test_a_line_that_cannot_be_read_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "example.txt").write_text(f"# head\n\nroot a:b:1\n{line}\n")
    with pytest.raises(ConfigInvalid, match=r"example\.txt:4 cannot be read"):
        Lock.read(tmp_path / "example.txt")


def test_a_system_without_a_lock_file_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(ConfigInvalid, match="choose from bookkeeper, flink-kafka, hadoop, kafka"):
        lock_path("zookeeper")


def test_every_lock_file_of_ours_has_a_sum_for_each_jar_that_it_wants() -> None:
    for name in lock_names():
        lock = Lock.read(lock_path(name))
        assert {*lock.roots, *lock.alone} <= set(lock.sums), name
        assert len({artifact.file_name for artifact in lock.sums}) == len(lock.sums), name


def test_a_sum_is_that_of_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert sha256_of(tmp_path / "empty") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
