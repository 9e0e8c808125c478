"""Where tests and their helpers stand: a test in the folder of the room that it is about, a helper with who uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import PurePosixPath

from tests.house.rooms import imported_modules, room
from tests.house.tree import SourceFile

BY_ROOM = ("unit", "contract", "integration")
"""The folders of tests that have the rooms as folders."""
NO_ROOM = {"docs": "pages, and what they show", "machines": "several machines, whatever stands on them"}
"""Folders beside those of rooms, and what their tests are about."""
_NAMES = {"registry": "scribengin_registry", "tools": "scribengin_tools", "dev": "scribengin_dev"}
_NAMED = re.compile(r"\bscribengin(?:_\w+)?(?:\.\w+)+|\bscribengin_\w+")
_OWN_HOMES = ("tests", "tests/servers")
"""Where pytest's own helpers stand, and the servers that fixtures offer to every folder."""


def stray_tests(files: Iterable[SourceFile]) -> list[str]:
    """Tests in the folder of a room that they neither import of, by themselves or by their helpers, nor name."""
    known = {file.module: file for file in files}
    found = []
    for file in known.values():
        parts = PurePosixPath(file.path).parts
        if len(parts) < 4 or parts[1] not in BY_ROOM or not parts[3].startswith("test_") or parts[2] in NO_ROOM:
            continue
        wanted = _NAMES.get(parts[2], parts[2])
        if wanted not in set(_rooms_of(file, known, set())):
            found.append(f"{file.path} has nothing of {wanted}")
    return sorted(found)


def stray_helpers(files: Iterable[SourceFile]) -> list[str]:
    """Helpers that the tests of one folder alone use, and that stand in another one."""
    known = {file.module: file for file in files}
    users: dict[str, set[str]] = {}
    for file in known.values():
        for module, _line in imported_modules(file):
            if module in known and module != file.module:
                users.setdefault(module, set()).add(_folder(file))
    found = []
    for module, folders in users.items():
        name, own = PurePosixPath(known[module].path).name, _folder(known[module])
        if name.startswith(("test_", "conftest", "__init__")) or own in _OWN_HOMES:
            continue
        if len(folders) == 1 and folders != {own}:
            found.append(f"{known[module].path} is of {folders.pop()}")
    return sorted(found)


def _rooms_of(file: SourceFile, known: Mapping[str, SourceFile], seen: set[str]) -> Iterator[str]:
    """The outermost rooms that a test is about: as modules that it or its helpers import, or in strings."""
    seen.add(file.module)
    yield from _named_rooms(file)
    for module, _line in imported_modules(file):
        if module in known and module not in seen and not module.startswith("tests.house"):
            yield from _rooms_of(known[module], known, seen)


@cache
def _named_rooms(file: SourceFile) -> frozenset[str]:
    return frozenset(room(name).split(".")[0] for name in _NAMED.findall(file.text))


def _folder(file: SourceFile) -> str:
    return str(PurePosixPath(file.path).parent)
