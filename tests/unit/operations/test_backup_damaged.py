"""`registry restore` of a file in which some bit has fallen over: it is refused in one line, and nothing is deleted."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from scribengin.errors import ConfigInvalid
from scribengin.operations.registry.backup import back_up, restore
from scribengin.testing.memory.registry import MemoryEnsemble

NAME_AT = 10
"""Where gzip's header has the name of the file, which ends with a NUL: what is before and in it may be anything."""


def test_a_backup_with_a_damaged_byte_anywhere_restores_nothing(tmp_path: Path) -> None:
    file = tmp_path / "registry.backup"
    with MemoryEnsemble().connect() as registry:
        for number in range(20):
            registry.create(f"/{number}", os.urandom(40))
        back_up(registry, file)
        whole = file.read_bytes()
        registry.create("/later", b"1")
        begin = whole.index(b"\0", NAME_AT) + 1
        for at in range(begin, len(whole)):
            damaged = bytearray(whole)
            damaged[at] ^= 0xFF
            file.write_bytes(damaged)
            with pytest.raises(ConfigInvalid, match=r"backup .* take another|no backup of a registry"):
                restore(registry, file, replace=True)
        assert registry.get("/later").data == b"1"


@pytest.mark.parametrize("nodes", [[5], ["relative"], ["/a//b"], ["/", "/a/b"], ["/a", "/a"]])
def test_a_backup_that_somebody_has_edited_into_no_tree_restores_nothing(tmp_path: Path, nodes: list[object]) -> None:
    file = tmp_path / "registry.backup"
    with MemoryEnsemble().connect() as registry:
        registry.create("/later", b"1")
        back_up(registry, file)
        first = gzip.decompress(file.read_bytes()).splitlines()[0].decode()
        edited = [first, *(json.dumps({"path": path, "data": ""}) for path in nodes), json.dumps({"nodes": len(nodes)})]
        file.write_bytes(gzip.compress("\n".join(edited).encode()))
        with pytest.raises(ConfigInvalid, match=r"backup .* is damaged .* take another"):
            restore(registry, file, replace=True)
        assert registry.get("/later").data == b"1"
