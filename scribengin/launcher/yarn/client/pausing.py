"""Letting a moment pass between two looks at YARN, which tells nobody of anything by itself."""

from __future__ import annotations

import threading

LOOK_S = 0.2


def pause() -> None:
    """A moment."""
    threading.Event().wait(LOOK_S)
