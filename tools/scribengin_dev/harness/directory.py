"""Where the demo and the soak do everything: a directory of their own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from scribengin.errors import ConfigInvalid


@contextmanager
def own_directory(program: str, parent: Path | None, keep: bool, console: Console) -> Iterator[Path]:
    """A directory of a run's own in `parent` (default: where temporary files go), removed at the end unless it is to be
    kept. Raises ConfigInvalid."""
    try:
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=f"scribengin-{program}-", dir=parent)).absolute()
    except OSError as error:
        raise ConfigInvalid(
            f"cannot make a directory for the {program}: {error}; name another place with --dir"
        ) from None
    try:
        yield place
    finally:
        if keep:
            console.print(f"kept {place}", highlight=False, soft_wrap=True)
        else:
            shutil.rmtree(place)
