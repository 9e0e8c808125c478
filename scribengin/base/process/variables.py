"""Environment variables that hold more than text."""

from __future__ import annotations

import os
import threading

from scribengin.errors import ConfigInvalid

CONTAINER_VARIABLE = "SCRIBENGIN_CONTAINER"
"""Set by Scribengin: the container that a local process belongs to, so that what it has left is found."""


def seconds_of(variable: str, otherwise_s: float) -> float:
    """How many seconds an environment variable says, more than 0; `otherwise_s` where it says nothing. Raises
    ConfigInvalid."""
    text = os.environ.get(variable, "")
    try:
        seconds = float(text or otherwise_s)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise ConfigInvalid(f"{variable}={text}: write a number of seconds that is more than 0")
    return seconds
