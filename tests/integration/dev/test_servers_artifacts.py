"""Jars through Ivy, from a small repository on this machine: fetched, checked, kept, shared, and what goes wrong."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from scribengin.errors import ArtifactUnavailable
from scribengin_dev.servers.__main__ import main
from scribengin_dev.servers.jars import ivy
from scribengin_dev.servers.jars.artifacts import jars_of, refresh_lock
from scribengin_dev.servers.jars.lock import Artifact, Lock

SERVER = Artifact("org.example", "server", "1.0")
HELPER = Artifact("org.example", "helper", "2.0")
NATIVE = Artifact("org.example", "native", "3.0", "linux")
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>{0.organisation}</groupId><artifactId>{0.name}</artifactId><version>{0.revision}</version>{1}</project>"""
NEEDS = """<dependencies><dependency><groupId>{0.organisation}</groupId><artifactId>{0.name}</artifactId>
<version>{0.revision}</version></dependency></dependencies>"""


class Repository:
    """A Maven repository over HTTP on the loopback interface. The first `refusals` requests of a jar are refused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refusals = 0
        self.served: Counter[str] = Counter()
        repository = self

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments, directory=str(folder))

            def do_GET(self) -> None:
                name = self.path.rpartition("/")[2]
                if name.endswith(".jar"):
                    if repository.refusals > 0:
                        repository.refusals -= 1
                        self.send_error(503)
                        return
                    repository.served[name] += 1
                super().do_GET()

            def log_message(self, *_arguments: Any) -> None:
                """Nothing: a test's output is its own."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def put(self, artifact: Artifact, needs: Artifact | None = None) -> str:
        """Add a jar; its sum."""
        place = self.folder.joinpath(*artifact.organisation.split("."), artifact.name, artifact.revision)
        place.mkdir(parents=True, exist_ok=True)
        content = f"the jar of {artifact}".encode()
        (place / artifact.file_name).write_bytes(content)
        pom = POM.format(artifact, NEEDS.format(needs) if needs else "")
        (place / f"{artifact.name}-{artifact.revision}.pom").write_text(pom)
        return hashlib.sha256(content).hexdigest()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """The only repository that Ivy knows; an empty cache; a lock file `example` of three jars."""
    found = Repository(tmp_path / "repository")
    sums = {SERVER: found.put(SERVER, HELPER), HELPER: found.put(HELPER), NATIVE: found.put(NATIVE)}
    (tmp_path / "locks").mkdir()
    Lock((SERVER,), (NATIVE,), sums).write(tmp_path / "locks" / "example.txt")
    root = f"http://127.0.0.1:{found.server.server_port}/"
    (tmp_path / "ivy.xml").write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers>'
        f'<ibiblio name="here" m2compatible="true" root="{root}"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv(ivy.SETTINGS_VARIABLE, str(tmp_path / "ivy.xml"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(ivy, "_FIRST_PAUSE_S", 0.0)
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_jars_are_fetched_once_and_a_damaged_one_again(repository: Repository, tmp_path: Path) -> None:
    jars = jars_of("example", locks=tmp_path / "locks")
    assert [jar.name for jar in jars] == ["helper-2.0.jar", "native-3.0-linux.jar", "server-1.0.jar"]
    assert [jar.read_bytes() for jar in jars] == [f"the jar of {a}".encode() for a in (HELPER, NATIVE, SERVER)]
    once = Counter(jar.name for jar in jars)
    assert repository.served == once
    assert jars_of("example", locks=tmp_path / "locks") == jars
    assert repository.served == once
    jars[0].write_bytes(b"damaged")
    assert jars_of("example", locks=tmp_path / "locks")[0].read_bytes() == f"the jar of {HELPER}".encode()
    assert repository.served == once + Counter(["helper-2.0.jar"])
    left = [path.name for path in (tmp_path / "cache" / "scribengin" / "jars").glob(".*")]
    assert left == [".lock"]


def test_a_jar_that_is_not_the_one_of_the_lock_file_is_refused_and_not_kept(
    repository: Repository, tmp_path: Path
) -> None:
    place = next((tmp_path / "repository").rglob("server-1.0.jar"))
    place.write_bytes(b"something else")
    with pytest.raises(ArtifactUnavailable, match=r"org\.example:server:1\.0 is not what the lock file says"):
        jars_of("example", locks=tmp_path / "locks")
    assert list((tmp_path / "cache").rglob("server-1.0.jar")) == []


@pytest.mark.full
def test_a_repository_that_refuses_now_and_then_is_asked_again(repository: Repository, tmp_path: Path) -> None:
    repository.refusals = 4
    assert len(jars_of("example", locks=tmp_path / "locks")) == 3
    assert repository.refusals == 0


@pytest.mark.full
def test_a_jar_that_is_not_there_is_an_error_that_names_it(repository: Repository, tmp_path: Path) -> None:
    next((tmp_path / "repository").rglob("native-3.0-linux.jar")).unlink()
    with pytest.raises(ArtifactUnavailable, match=r"(?s)check the network, or name a repository.*native"):
        jars_of("example", locks=tmp_path / "locks")


@pytest.mark.full
def test_processes_that_want_the_same_jars_at_once_fetch_them_once(repository: Repository, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from scribengin_dev.servers.jars.artifacts import jars_of\n"
        "print(len(jars_of('example', locks=Path(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "locks")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=120)[0].strip() for process in processes] == ["3"] * 3
    assert repository.served == Counter(["helper-2.0.jar", "native-3.0-linux.jar", "server-1.0.jar"])


@pytest.mark.full
def test_refreshing_a_lock_file_finds_what_is_needed_and_takes_the_sums_that_there_are(
    repository: Repository, tmp_path: Path
) -> None:
    path = tmp_path / "locks" / "example.txt"
    before = Lock.read(path)
    path.write_text(f"root {SERVER}\nalone {NATIVE}\n")
    assert refresh_lock("example", locks=tmp_path / "locks") == before
    assert Lock.read(path) == before


def test_the_command_line_names_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "zookeeper"]) == 2
    assert "there is no lock file for 'zookeeper'" in capsys.readouterr().err
