"""What HDFS and YARN have in common: their jars, their configuration files, a daemon, what a daemon tells over HTTP."""

from __future__ import annotations

import functools
import getpass
import http.client
import json
import shutil
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from scribengin.errors import ArtifactUnavailable
from scribengin_dev.servers.host import Host
from scribengin_dev.servers.jars.artifacts import jars_of
from scribengin_dev.servers.java_server import JavaServer, java_command, run_tool
from scribengin_registry.java.jars import pyspark_jars
from scribengin_registry.java.runtime import find_java

HOST = "localhost"
"""Hadoop's daemons look names up, back and forth, so they are given one, and not 127.0.0.1."""
LOCALHOST = Host(HOST)

_OF_PYSPARK = (
    "hadoop-client-api-*",
    "hadoop-client-runtime-*",
    "slf4j-api-*",
    "log4j-1.2-api-*",
    "log4j-api-*",
    "log4j-core-*",
    "log4j-slf4j2-impl-*",
    "jcl-over-slf4j-*",
    "jul-to-slf4j-*",
)
_PROXY_JAR = "hadoop-yarn-server-web-proxy-"
_OPENED = ("java.lang", "java.util", "java.net", "java.nio", "java.util.concurrent", "sun.nio.ch", "java.math")
_TOOL_HEAP_MB = 256
_HTTP_TIMEOUT_S = 30.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy of the environment has no localhost


def daemon_jars() -> list[Path]:
    """The class path of a daemon. Raises as `jars_of`."""
    return [jar for jar in _fetched_jars() if not jar.name.startswith(_PROXY_JAR)] + _client_jars()


def application_jars() -> list[Path]:
    """The class path of an application on YARN. It begins with a web filter that the daemons' jars have in another
    package than masters like Skein's look for. Raises as `jars_of`."""
    fetched = sorted(_fetched_jars(), key=lambda jar: not jar.name.startswith(_PROXY_JAR))
    return fetched + _client_jars()


def write_site(path: Path, settings: Mapping[str, object]) -> None:
    """Write one of Hadoop's `*-site.xml`."""
    properties = "".join(
        f"<property><name>{name}</name><value>{escape(_word(value))}</value></property>\n"
        for name, value in settings.items()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<configuration>\n{properties}</configuration>\n", encoding="utf-8")


def core_settings(folder: Path, file_system: str) -> dict[str, object]:
    """core-site.xml: the default file system, and that whoever runs the servers may act for everybody."""
    user = getpass.getuser()
    return {
        "fs.defaultFS": file_system,
        "hadoop.tmp.dir": folder / "tmp",
        "hadoop.http.staticuser.user": user,
        f"hadoop.proxyuser.{user}.hosts": "*",
        f"hadoop.proxyuser.{user}.groups": "*",
        "ipc.client.connect.max.retries": 3,
        "ipc.client.connect.retry.interval": 300,
    }


def copied_configuration(source: Path, target: Path) -> Path:
    """A daemon's own configuration directory, as it is in `source`; files in it are then overwritten."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    return target


def daemon(name: str, main: str, configuration: Path, *, heap_mb: int, host: Host) -> JavaServer:
    """A daemon that is not started yet. Its log and its working directory are where its configuration lies. Raises as
    `jars_of`."""
    folder = configuration.parent
    return JavaServer(name, folder, daemon_command(main, (), folder, configuration, heap_mb=heap_mb), host)


def daemon_command(
    main: str, arguments: Sequence[str], folder: Path, configuration: Path, *, heap_mb: int, level: str = "INFO"
) -> list[str]:
    """How a class of Hadoop's is called, its log from `level` on going to standard error. Raises as `jars_of`."""
    jars = [configuration, *daemon_jars()]
    java, *words = java_command(main, arguments, jars=jars, heap_mb=heap_mb, folder=folder, level=level)
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    options = [
        "-XX:TieredStopAtLevel=1",
        f"-Djava.io.tmpdir={temporary}",
        f"-Dhadoop.log.dir={folder}",
        f"-Dyarn.log.dir={folder}",
        *opened,
    ]
    environment = [f"JAVA_HOME={find_java().home}", f"HADOOP_CONF_DIR={configuration}"]
    return ["/usr/bin/env", *environment, java, *options, *words]


def run_client(tool: str, arguments: Sequence[str], folder: Path, configuration: Path) -> str:
    """Run one of Hadoop's tools, by its class, to its end; what it printed. Raises ServerDown."""
    command = daemon_command(tool, arguments, folder, configuration, heap_mb=_TOOL_HEAP_MB, level="WARN")
    return run_tool(tool.rpartition(".")[2], command, folder=folder)


def ask(url: str, *, method: str = "GET", body: bytes | None = None) -> bytes | None:
    """What a daemon answers over HTTP, None when it refuses or does not answer: it may not be ready. JSON is sent, and
    wanted."""
    headers = dict.fromkeys(("Content-Type", "Accept"), "application/json")
    request = urllib.request.Request(url, data=body, method=method, headers=headers)
    try:
        with _DIRECT.open(request, timeout=_HTTP_TIMEOUT_S) as answer:
            return bytes(answer.read())
    except (OSError, http.client.HTTPException):
        return None


def ask_json(url: str, *, method: str = "GET") -> dict[str, Any]:
    """The object that a daemon answers, {} for none."""
    try:
        answer = json.loads(ask(url, method=method) or b"{}")
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


@functools.cache
def _fetched_jars() -> tuple[Path, ...]:
    """Checked once a process: a cluster is many daemons."""
    return tuple(jars_of("hadoop"))


def _client_jars() -> list[Path]:
    return pyspark_jars(_OF_PYSPARK, ArtifactUnavailable)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
