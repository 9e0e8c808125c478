"""Who gives a command, as the history of a config keeps it."""

from __future__ import annotations

import getpass
import socket


def author() -> str:
    """Who edits: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
