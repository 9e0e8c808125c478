"""What counts as a registry of this machine alone: there, others are its users only."""

from __future__ import annotations

import pytest

from scribengin.base.process.openness import is_local


@pytest.mark.parametrize(
    ("hosts", "local"),
    [
        ("127.0.0.1:2181", True),
        ("127.0.0.1:2181/chroot", True),
        ("localhost:2181, 127.8.9.1:2182/a,b", True),
        ("[::1]:2181", True),
        ("127.0.0.1", True),
        ("zookeeper-1:2181/scribengin", False),
        ("127.0.0.1:2181,zookeeper-1:2181", False),
        ("10.0.0.1:2181", False),
        ("[fe80::1]:2181", False),
        ("localhost.evil.example:2181", False),
        ("127.0.0.1.evil.example:2181", False),
    ],
)
def test_only_loopback_addresses_are_this_machine(hosts: str, local: bool) -> None:
    assert is_local(hosts) is local
