"""The option that rewrites transcripts, to be read as a difference: `pytest tests/scenario --rewrite-transcripts`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-transcripts", action="store_true", help="write what happens now into the transcripts")
