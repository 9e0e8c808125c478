"""Lock files: which jars a server runs from, each with its SHA-256 sum. One file a system, in `locks/`.

Every line is one of these, and every jar stands in it: nothing else is ever fetched.

    root org.example:server:1.0                      wanted, with all that it says it needs at run time
    alone org.example:odd:1.0                        wanted, just this jar: no dependency leads to it
    <64 hex digits> org.example:helper:2.1           a jar of all that
    <64 hex digits> org.example:native:3.0:linux     the same with a classifier
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scribengin.errors import ConfigInvalid

LOCKS = Path(__file__).parent / "locks"
"""The lock files of this project."""

_HEAD = "# Made by `python -m scribengin_dev.servers lock {name}`: not edited by hand, but for what is wanted.\n"
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
_LINE = re.compile(rf"(?P<what>root|alone|[0-9a-f]{{64}}) (?P<artifact>{_PART}(?::{_PART}){{2,3}})")
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, order=True)
class Artifact:
    """A jar in a repository, by its coordinates."""

    organisation: str
    name: str
    revision: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Artifact:
        """Of `organisation:name:revision[:classifier]`."""
        return cls(*text.split(":"))

    @property
    def file_name(self) -> str:
        """What the jar is called."""
        return "-".join(filter(None, (self.name, self.revision, self.classifier))) + ".jar"

    def __str__(self) -> str:
        return ":".join(filter(None, (self.organisation, self.name, self.revision, self.classifier)))


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file: what is wanted, and the SHA-256 sum of every jar."""

    roots: tuple[Artifact, ...]
    alone: tuple[Artifact, ...]
    sums: dict[Artifact, str]

    @classmethod
    def read(cls, path: Path) -> Lock:
        """Read a lock file. Raises ConfigInvalid with the line that cannot be read."""
        wanted: dict[str, list[Artifact]] = {"root": [], "alone": []}
        sums: dict[Artifact, str] = {}
        for number, line in enumerate(_text(path).splitlines(), 1):
            if not line or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line)
            if match is None:
                raise ConfigInvalid(
                    f"{path}:{number} cannot be read: '{line}'; make the file again with {_command(path)}"
                )
            artifact = Artifact.parse(match["artifact"])
            if match["what"] in wanted:
                wanted[match["what"]].append(artifact)
            else:
                sums[artifact] = match["what"]
        return cls(tuple(wanted["root"]), tuple(wanted["alone"]), sums)

    def write(self, path: Path) -> None:
        """Write the file, sorted, so that a difference shows what changed."""
        lines = [f"root {root}\n" for root in self.roots] + [f"alone {jar}\n" for jar in self.alone]
        lines += [f"{self.sums[artifact]} {artifact}\n" for artifact in sorted(self.sums)]
        path.write_text(_HEAD.format(name=path.stem) + "".join(lines), encoding="utf-8")


def lock_path(name: str, folder: Path = LOCKS) -> Path:
    """The lock file of a system. Raises ConfigInvalid, with the names there are."""
    path = folder / f"{name}.txt"
    if not path.is_file():
        there_are = ", ".join(lock_names(folder)) or "none"
        raise ConfigInvalid(f"there is no lock file for '{name}' in {folder}: choose from {there_are}")
    return path


def lock_names(folder: Path = LOCKS) -> Sequence[str]:
    """The systems that have a lock file."""
    return sorted(path.stem for path in folder.glob("*.txt"))


def sha256_of(path: Path) -> str:
    """The SHA-256 sum of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"the lock file {path} cannot be read ({error}): check out the project again") from error


def _command(path: Path) -> str:
    return f"`python -m scribengin_dev.servers lock {path.stem}`"
