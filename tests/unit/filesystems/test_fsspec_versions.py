"""What object stores call a version of an object is its identity: one that was rewritten with the same size is new."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from fsspec.spec import AbstractFileSystem

from scribengin.filesystems.fsspec import open_url


class Versioned(MemoryFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """An object store that has one word for the version of an object, and no time at which it was made."""

    protocol = "s3"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    word: ClassVar[str] = ""
    version: ClassVar[int] = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return f"/{str(path).removeprefix('s3://').strip('/')}"

    find = AbstractFileSystem.find

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        found = super().ls(path, detail=True, **options)
        told = [{key: value for key, value in info.items() if key != "created"} for info in found]
        told = [info | ({self.word: f"v{self.version}"} if info["type"] == "file" else {}) for info in told]
        return told if detail else [info["name"] for info in told]


@pytest.mark.parametrize("word", ["ETag", "etag", "generation", "content_md5"])
def test_an_object_that_was_rewritten_is_another_one(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_registry, "s3", Versioned)
    monkeypatch.setattr(Versioned, "word", word)
    Versioned.store.clear()
    files, root = open_url("s3://bucket/in")
    identities = []
    for version, text in enumerate((b"one\n", b"two\n"), 1):
        monkeypatch.setattr(Versioned, "version", version)
        Versioned(skip_instance_cache=True).pipe_file("/bucket/in/a", text)
        (found,) = files.find(root)
        identities.append(found.identity)
    assert identities == ["=v1", "=v2"]
