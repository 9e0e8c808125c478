"""A NameNode that wants Kerberos, and programs that speak to it, each a process with a JVM of its own.

Directories and tokens are the NameNode's business alone, so there are no DataNodes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scribengin_dev.servers.hadoop.hadoop import HOST, ask_json, daemon_command, write_site
from scribengin_dev.servers.hadoop.kdc import REALM, KdcServer
from scribengin_dev.servers.java_server import JavaServer, ports_of, run_tool

_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_START_TIMEOUT_S = 120.0
_HEAP_MB = 256
RENEW_MS = 24_000
LIFE_MS = 40_000
"""Tokens of this NameNode are good for so long from one renewal to the next, and for so long altogether. A quarter of
the first is what a renewal may be late: on a busy machine that has to be seconds."""


@dataclass(frozen=True, slots=True)
class SecureHdfs:
    """The NameNode, its KDC, and the configuration of its clients."""

    kdc: KdcServer
    url: str
    conf_directory: Path

    def start_program(self, code: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a Python program that speaks to the cluster."""
        krb5 = f"-Djava.security.krb5.conf={self.kdc.krb5_conf}"
        own = {
            "HADOOP_CONF_DIR": str(self.conf_directory),
            "JAVA_TOOL_OPTIONS": krb5,
            "KRB5CCNAME": str(self.conf_directory / "no-ticket"),
        }
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@contextmanager
def secure_hdfs(folder: Path) -> Iterator[SecureHdfs]:
    """A KDC and a NameNode below `folder`. Principals: `flow` for clients, `rm/localhost` for YARN."""
    with KdcServer(folder / "kdc", ["flow", f"nn/{HOST}", f"HTTP/{HOST}", f"rm/{HOST}"]) as kdc:
        home = folder / "namenode"
        rpc, web = ports_of(home, 2)
        conf = home / "conf"
        write_site(conf / "core-site.xml", _core(f"hdfs://{HOST}:{rpc}", home))
        write_site(conf / "hdfs-site.xml", _hdfs(kdc, rpc, web, home))
        write_site(conf / "yarn-site.xml", {"yarn.resourcemanager.principal": f"rm/{HOST}@{REALM}"})
        words = ["-format", "-force", "-nonInteractive"]
        run_tool("the formatting of HDFS", _command(kdc, words, home, conf), folder=home)
        server = JavaServer("namenode", home, _command(kdc, [], home, conf))
        server.start()
        try:
            bean = f"http://{HOST}:{web}/jmx?qry=Hadoop:service=NameNode,name=NameNodeStatus"
            server.await_answer(lambda: "active" in str(ask_json(bean)), _START_TIMEOUT_S)
            yield SecureHdfs(kdc, f"hdfs://{HOST}:{rpc}", conf)
        finally:
            server.stop()


def _command(kdc: KdcServer, words: list[str], home: Path, conf: Path) -> list[str]:
    command = daemon_command(_NAME_NODE, words, home, conf, heap_mb=_HEAP_MB)
    place = command.index("-cp")
    return [*command[:place], f"-Djava.security.krb5.conf={kdc.krb5_conf}", *command[place:]]


def _core(url: str, home: Path) -> dict[str, object]:
    return {
        "fs.defaultFS": url,
        "hadoop.tmp.dir": home / "tmp",
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": True,
        "ipc.client.connect.max.retries": 3,
    }


def _hdfs(kdc: KdcServer, rpc: int, web: int, home: Path) -> dict[str, object]:
    return {
        "dfs.namenode.rpc-address": f"{HOST}:{rpc}",
        "dfs.namenode.http-address": f"{HOST}:{web}",
        "dfs.namenode.name.dir": (home / "name").as_uri(),
        "dfs.namenode.kerberos.principal": f"nn/{HOST}@{REALM}",
        "dfs.namenode.keytab.file": kdc.keytab,
        "dfs.web.authentication.kerberos.principal": f"HTTP/{HOST}@{REALM}",
        "dfs.web.authentication.kerberos.keytab": kdc.keytab,
        "dfs.block.access.token.enable": True,
        "dfs.permissions.enabled": False,
        "dfs.namenode.safemode.threshold-pct": 0,
        "dfs.namenode.safemode.extension": 0,
        "dfs.namenode.delegation.token.renew-interval": RENEW_MS,
        "dfs.namenode.delegation.token.max-lifetime": LIFE_MS,
    }
