"""Transcripts: files that say what happens and what comes of it, as a specification.

A transcript is a list of blocks: a line that says what happens, `----`, and what comes of it, up to an empty line.
Lines that begin with # are kept. `pytest tests/scenario --rewrite-transcripts` writes what happens now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Do = Callable[[str], Sequence[str]]
"""Does what a line says. The lines that come of it."""


def replay(transcript: str, do: Do) -> str:
    """The transcript with what happens now."""
    written: list[str] = []
    lines = iter(transcript.splitlines())
    for line in lines:
        written.append(line)
        if not line or line.startswith("#"):
            continue
        for old in lines:
            if not old:
                break
        written += ["----", *do(line), ""]
    return "\n".join(written).rstrip("\n") + "\n"


def expect_transcript(path: Path, do: Do, config: pytest.Config) -> None:
    """The transcript is what happens; or it is from now on, if that was asked for."""
    written = path.read_text()
    happened = replay(written, do)
    if config.getoption("--rewrite-transcripts", default=False):
        path.write_text(happened)
        return
    assert happened == written, f"{path.name}: read the difference; if it is meant, --rewrite-transcripts"
