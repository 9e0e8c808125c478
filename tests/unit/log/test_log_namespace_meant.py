"""Who names a namespace that there is not is told which one may be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.errors import ConfigInvalid, NamespaceNotBound
from scribengin.log import LogNamespace
from scribengin.testing.memory.registry import MemoryRegistry


@pytest.fixture
def bound(memory_registry: MemoryRegistry, tmp_path: Path) -> MemoryRegistry:
    """With two namespaces, and other nodes beside them."""
    for name in ("/logs", "/team/archive"):
        LogNamespace.bind(name, tmp_path / name[1:], registry=memory_registry)
    memory_registry.create("/locs", b"{}")
    return memory_registry


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/logz", "/logz is bound to no store: did you mean '/logs'? Else bind it (`scribengin log bind --namespace"),
        ("/team/archiv", "did you mean '/team/archive'?"),
        ("/nope", "/nope is bound to no store: bind it (`scribengin log bind --namespace /nope`, or"),
        ("/nobody/archive", "/nobody/archive is bound to no store: bind it ("),
    ],
)
def test_the_namespace_that_is_like_it_is_named(bound: MemoryRegistry, name: str, said: str) -> None:
    with pytest.raises(NamespaceNotBound) as refused:
        LogNamespace.open(name, registry=bound)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["logs", "logs/"])
def test_a_path_without_its_slash_is_told_with_it(bound: MemoryRegistry, name: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"'logs/?' is no namespace: did you mean '/logs'\? Expected a node of"):
        LogNamespace.open(name, registry=bound)


def test_a_uri_of_proxies_says_what_to_name() -> None:
    with pytest.raises(ConfigInvalid) as refused:
        LogNamespace.open("distributedlog-proxy://host:1/logs")
    assert str(refused.value) == (
        "'distributedlog-proxy://host:1/logs' names the proxies of the namespace distributedlog://host:1/logs: name "
        "that one here; to read and write through its proxies, open it with scribengin.proxy.ProxiedNamespace"
    )


def test_a_uri_of_no_store_says_which_there_are() -> None:
    with pytest.raises(ConfigInvalid, match="there is no store 'zz' here, but file, hdfs, bk"):
        LogNamespace.open("distributedlog-zz://host:1/logs")
