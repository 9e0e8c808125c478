"""`scribengin yarn`: what can be said without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scribengin_dev.servers.hadoop.hadoop import write_site
from tests.integration.cli_runner import CommandLine

FLOW = """
name: loud
launcher: yarn
sources: {words: {kind: log, logs: "words/*"}}
sinks: {loud: {kind: log, log: loud}}
sql: SELECT payload FROM words
container: {memory_mb: 1500, cores: 2}
yarn: {queue: second, python: {path: /opt/python/bin/python3}}
"""


@pytest.fixture
def flow(tmp_path: Path) -> str:
    path = tmp_path / "loud.yaml"
    path.write_text(FLOW)
    return str(path)


def test_an_archive_that_yarn_would_not_unpack_is_refused(line: CommandLine, tmp_path: Path) -> None:
    refused = line("yarn", "package", "--output", str(tmp_path / "environment.zip"))
    assert refused.code == 2
    assert "call it .tar.gz" in refused.err
    assert list(tmp_path.glob("*.zip")) == []


def test_a_requirement_that_nobody_has_is_named(line: CommandLine, tmp_path: Path) -> None:
    refused = line("yarn", "package", "--with", str(tmp_path / "no-such-package"))
    assert refused.code == 2
    assert "pip could not install" in refused.err


@pytest.mark.parametrize("words", [("yarn", "preflight"), ("submit", "--no-preflight")])
def test_without_a_configuration_directory_the_cluster_is_not_known(
    line: CommandLine, flow: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))
    line.ok("log", "create", "words/0")
    refused = line(*words, flow)
    assert refused.code == 2
    assert "HADOOP_CONF_DIR is not set: name the directory" in refused.err
    assert line.ok("list", "--json").json == []


def test_the_specification_for_skein_is_printed_and_nothing_is_asked_of_a_cluster(
    line: CommandLine, flow: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_site(tmp_path / "core-site.xml", {"fs.defaultFS": "hdfs://127.0.0.1:1"})
    write_site(tmp_path / "yarn-site.xml", {})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))
    done = line.fed("", "yarn", "spec", flow)  # a process of its own: it starts a JVM
    assert done.code == 0, done.err
    spec = yaml.safe_load(done.out)
    assert (spec["name"], spec["queue"]) == ("loud", "second")
    assert spec["services"]["worker"]["resources"] == {"memory": "1500 MiB", "vcores": 2}
    master = spec["services"]["master"]
    assert f"/opt/python/bin/python3 -m scribengin.master --registry {line.hosts}" in master["script"]
    assert master["files"]["hadoop-conf"]["source"].startswith("hdfs://127.0.0.1:1/user/")
