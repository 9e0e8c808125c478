"""A ZooKeeper whose users are in its JAAS file: sessions that are one of them, by SASL."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from scribengin.testing.waiting import wait_until
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.errors import NotAuthorised, RegistryError
from scribengin_registry.java.jars import pyspark_jars
from scribengin_registry.opening import connect

_JAAS = """Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_flow="secret" user_other="hidden";
};
"""
_PROVIDER = "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"

_NETTY = tuple(f"netty-{part}-[0-9]*" for part in ("handler", "common", "buffer", "transport", "codec"))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("sasl")
    (folder / "jaas.conf").write_text(_JAAS)
    netty = ":".join(map(str, pyspark_jars(_NETTY, LookupError)))  # with SASL a server loads it, in use or not
    options = f"-Djava.security.auth.login.config={folder / 'jaas.conf'} {_PROVIDER} -Xbootclasspath/a:{netty}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JAVA_TOOL_OPTIONS", options)
        server = EmbeddedZooKeeper(folder / "zookeeper").start()
    yield server.hosts
    server.stop()


def test_a_user_of_the_jaas_file_owns_what_it_creates(hosts: str) -> None:
    with (
        connect(hosts, auth="sasl-digest:flow:secret") as flow,
        connect(hosts, auth="sasl-digest:other:hidden") as other,
        connect(hosts) as nobody,
    ):
        flow.create("/mine", b"1")
        assert other.get("/mine").data == b"1"
        for stranger in (other, nobody):
            with pytest.raises(NotAuthorised):
                stranger.set("/mine", b"2")
        flow.set("/mine", b"3")
        assert nobody.get("/mine").data == b"3"


def test_a_wrong_password_is_called_one(hosts: str) -> None:
    with pytest.raises(NotAuthorised, match="refused the user's credentials"):
        connect(hosts, auth="sasl-digest:flow:wrong", connect_timeout_s=60)


def test_a_wrong_password_is_called_one_however_late_we_look(hosts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo calls itself connected only until the server has not believed it."""
    start = KazooClient.start_async

    def started_and_refused(client: KazooClient) -> object:
        live = start(client)
        wait_until(client._connection.connection_stopped.is_set, 60, "kazoo to give the session up")
        return live

    monkeypatch.setattr(KazooClient, "start_async", started_and_refused)
    with pytest.raises(NotAuthorised, match="refused the user's credentials"):
        connect(hosts, auth="sasl-digest:flow:wrong", connect_timeout_s=2)


def test_kerberos_without_its_package_says_which_before_anybody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "kerberos" else find(name))
    with pytest.raises(RegistryError, match="needs the package kerberos: pip install kerberos"):
        connect("127.0.0.1:1", auth="sasl-gssapi")


@pytest.mark.parametrize("auth", ["sasl-digest:flow", "sasl-digest::secret", "flow", "sasl-digest"])
def test_what_names_no_user_is_refused(auth: str, tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="must be given as"):
        connect("127.0.0.1:1", auth=auth)
