"""The digests of an environment's files, kept from one look at it to the next: its gigabyte is read once, and not for
each dataflow that is submitted.

A file that has kept its size, its times and its inode has kept its content. One that was changed just before may be
changed once more within the same moment: its digest is not kept.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.process.private import replacing
from scribengin.errors import ScribenginError

_MOMENT_NS = 2_000_000_000
About = list[int]
"""Of a file: its size, when it was written, when anything of it was changed, its inode."""


class KnownDigests:
    """What a file of this user's says of files, by path. Thread-safe, for files that are told once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = _read(path)
        self._now: dict[str, tuple[About, str]] = {}

    def find(self, file: Path) -> str | None:
        """The digest of a file that is as it was. Raises OSError."""
        kept = self._before.get(str(file))
        if kept is None or kept[0] != about_file(file):
            return None
        self._now[str(file)] = kept
        return kept[1]

    def tell(self, file: Path, about: About, digest: str) -> None:
        """What was read of a file that was so, before."""
        if SYSTEM_CLOCK.now_ms() * 1_000_000 - max(about[1:3]) > _MOMENT_NS:
            self._now[str(file)] = about, digest

    def keep(self) -> None:
        """Write down what was found and told, if there is anything new. Where that cannot be, files are read again."""
        if self._now == self._before:
            return
        with suppress(OSError, ScribenginError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path, 0o600) as file:
                file.write(json.dumps(self._now).encode())


def about_file(file: Path) -> About:
    """What changes with a file. Raises OSError."""
    found = file.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _read(path: Path) -> dict[str, tuple[About, str]]:
    try:
        if path.stat().st_uid != os.getuid():
            return {}
        return {name: (list(known), str(digest)) for name, (known, digest) in json.loads(path.read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
