"""Every transcript in this folder is what happens: events in, the master's decisions out.

A transcript is a list of blocks: a line that says what happens, `----`, and what the master decides, up to an empty
line. Lines that begin with # are kept. `pytest tests/scenario --rewrite-transcripts` writes what happens now.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenario.world import World

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


def replay(transcript: str) -> str:
    """The transcript with the answers that are given now."""
    world, written = World(), []
    lines = iter(transcript.splitlines())
    for line in lines:
        written.append(line)
        if not line or line.startswith("#"):
            continue
        for old in lines:
            if not old:
                break
        written += ["----", *world.run(line), ""]
    return "\n".join(written).rstrip("\n") + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_transcript_is_what_happens(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text()
    happened = replay(written)
    if request.config.getoption("--rewrite-transcripts", default=False):
        path.write_text(happened)
        return
    assert happened == written, f"{path.name}: read the difference; if it is meant, --rewrite-transcripts"


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8
