"""Where the code of a dataflow came from, as this user remembers it.

The registry says it, too, and whoever writes to the registry can say something else: then a restart would ship their
directory. So a restart asks, unless this user has submitted it from there.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from scribengin.base.process.private import private_directory


def remember_origin(home: Path, hosts: str, dataflow: str, package: str) -> None:
    """This user ships the package of a dataflow from there. What cannot be written down is asked about later."""
    file = _file(home, hosts, dataflow)
    with suppress(OSError):
        private_directory(file.parent)
        file.write_text(package, encoding="utf-8")


def remembered_origin(home: Path, hosts: str, dataflow: str) -> str | None:
    """Where this user has last shipped it from, if ever."""
    try:
        return _file(home, hosts, dataflow).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def remembered_packages(home: Path, hosts: str) -> list[Path]:
    """Where this user has shipped any dataflow of that registry from."""
    return [
        Path(file.read_text(encoding="utf-8", errors="surrogateescape"))
        for file in sorted(_file(home, hosts, "").parent.glob(f"{_file(home, hosts, '').name}*"))
    ]


def _file(home: Path, hosts: str, dataflow: str) -> Path:
    return home / "origins" / f"{hashlib.sha256(hosts.encode()).hexdigest()[:16]}-{dataflow}"
