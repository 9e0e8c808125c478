"""Which logs a name or a pattern means, at a moment."""

from __future__ import annotations

from collections.abc import Container
from fnmatch import fnmatchcase

from scribengin.base.names import natural
from scribengin.log.metadata.names import WILDCARD
from scribengin.log.namespace import LogNamespace


def logs_matching(namespace: LogNamespace, pattern: str, known: Container[str] = ()) -> list[str]:
    """The names of the logs that a name or a pattern of fnmatch means just now, in the order in which people count.

    Whoever looks again and again hands in what it has found before, as `LogNamespace.names` wants it.

    Raises InvalidLogName for a name that no log can have.
    """
    magic = WILDCARD.search(pattern)
    if magic is None:
        return [pattern] if namespace.exists(pattern) else []
    beginning_alike = namespace.names(pattern[: magic.start()], known)
    return sorted((name for name in beginning_alike if fnmatchcase(name, pattern)), key=natural)
