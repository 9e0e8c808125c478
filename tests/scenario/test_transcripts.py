"""Every transcript in this folder is what happens: events in, the master's decisions out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenario.transcripts import expect_transcript
from tests.scenario.world import World

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_transcript_is_what_happens(path: Path, request: pytest.FixtureRequest) -> None:
    expect_transcript(path, World().run, request.config)


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8
