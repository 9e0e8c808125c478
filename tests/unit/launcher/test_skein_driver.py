"""A submission through skein whose driver, a process of its own, hangs: none of it waits for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scribengin.errors import LauncherError
from scribengin.launcher.skein import client
from scribengin_registry.java.runtime import JavaRuntime

skein = client._skein()  # newer Pythons miss something that it imports
HANGS = "import sys, threading; print('up', flush=True); threading.Event().wait()"


class Driver:
    """Stands in for what skein starts: it runs until it is killed, and `answers` so much of what it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: set[str]) -> None:
        self.asked: list[tuple[str, float | None]] = []
        self.options: list[str] = []
        self.process = subprocess.Popen([sys.executable, "-c", HANGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.process.stdout.readline()

        def call(_client: Any, method: str, _request: Any, timeout: float | None = None) -> Any:
            self.asked.append((method, timeout))
            if method not in answers:
                raise skein.exceptions.TimeoutError("Unable to connect to driver")
            return SimpleNamespace(id="application_1_0001")

        def start(**settings: Any) -> tuple[str, subprocess.Popen[bytes]]:
            self.options = settings["java_options"]
            return "127.0.0.1:1", self.process

        monkeypatch.setattr(skein.core, "_start_driver", start)
        monkeypatch.setattr(skein.Client, "_call", call)
        monkeypatch.setattr(client, "DRIVER_END_S", 0.1)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(autouse=True)
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))


SPEC = {"name": "flow", "services": {"worker": {"resources": {"memory": "1 GiB", "vcores": 1}, "script": "true"}}}


def test_a_driver_that_does_not_end_is_ended_and_what_it_has_submitted_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(monkeypatch, {"ping", "submit"})
    monkeypatch.setenv("SKEIN_DRIVER_JAVA_OPTIONS", "-Done=1 -Dtwo=2")
    try:
        assert client.submit(SPEC, tmp_path) == "application_1_0001"
        assert driver.process.poll() is not None
        assert driver.options == ["-XX:TieredStopAtLevel=1", "-Done=1", "-Dtwo=2"], "the user's go before"
        assert [(method, limit is not None) for method, limit in driver.asked] == [("ping", True), ("submit", True)]
    finally:
        driver.close()


@pytest.mark.parametrize("answers", [set(), {"ping"}], ids=["at its beginning", "at the submission"])
def test_a_driver_that_does_not_answer_is_ended_and_said_to_be_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: set[str]
) -> None:
    driver = Driver(monkeypatch, answers)
    try:
        with pytest.raises(LauncherError, match="skein does not take dataflow 'flow': Unable to connect to driver"):
            client.submit(SPEC, tmp_path)
        assert driver.process.poll() is not None
    finally:
        driver.close()


@pytest.mark.parametrize("begins", ["at once", "behind the first look"])
def test_a_java_that_hangs_before_skein_has_heard_of_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexec cat\n")  # to the end of what it is told, which does not come
    java.chmod(0o700)
    monkeypatch.setattr(client, "find_java", lambda: JavaRuntime(tmp_path / "home", java, 17))
    monkeypatch.setattr(client, "DRIVER_START_S", 0.0 if begins == "behind the first look" else 0.5)
    monkeypatch.setattr(client, "_AGAIN_S", 0.05)
    with pytest.raises(LauncherError, match=r"flow': its driver, a Java process, did not answer for .* and was ended"):
        client.submit(SPEC, tmp_path)
