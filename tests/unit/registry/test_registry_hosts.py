"""What names no registry is said at once: the client would look for it on a thread of its own, which ends with a
traceback, or would take it for something else."""

from __future__ import annotations

import pytest

from scribengin_registry.client import is_host
from scribengin_registry.errors import RegistryError, RegistryUnreachable
from scribengin_registry.opening import connect

ODD_HOSTS = ("zk1..x", ".zk1", ".", "a" * 64 + ".de", "é..x", "a\u3002\u3002b", "\udce9", "a b", "a\0b", "zk\u200d1")


@pytest.mark.parametrize("host", ODD_HOSTS, ids=ascii)
def test_a_host_that_nothing_can_be_called_is_told(host: str) -> None:
    assert not is_host(host)
    for hosts in (host, f"{host}:2181", f"127.0.0.1:1,{host}:2181/x"):
        with pytest.raises(RegistryError, match=r"does not name a registry \(.*\): write host:port") as failure:
            connect(hosts, connect_timeout_s=0.01)
        assert type(failure.value) is RegistryError


@pytest.mark.parametrize(
    "hosts",
    ["ada@127.0.0.1:1", "127.0.0.1:1?x", "127.0.0.1:1#x", "127.0.0.1:0", "127.0.0.1:1\n2", "zk1:x", "zk1:99999",
     "127.0.0.1:1,,127.0.0.1:2", ",", " ", "[zz]:1", "[::1", "http://zk1:1"],
    ids=ascii,
)  # fmt: skip
def test_what_would_be_taken_for_another_registry_is_told(hosts: str) -> None:
    with pytest.raises(RegistryError, match="does not name a registry") as failure:
        connect(hosts, connect_timeout_s=0.01)
    assert type(failure.value) is RegistryError


@pytest.mark.parametrize("hosts", ["127.0.0.1:1", " 127.0.0.1:1, [::1]:1", "localhost.:1", "[fe80::1%lo]:1/x"])
def test_what_may_be_one_is_looked_for(hosts: str) -> None:
    with pytest.raises(RegistryUnreachable, match="no ZooKeeper server answered"):
        connect(hosts, connect_timeout_s=0.01)


@pytest.mark.parametrize("host", ["zk1", "zk1.example.", "ü.example", "xn--tda.example", "127.0.0.1", "::1", "my_zk-1"])
def test_usual_names_are_hosts(host: str) -> None:
    assert is_host(host)
