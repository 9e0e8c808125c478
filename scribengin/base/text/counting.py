"""Numbers of things, as people read them."""

from __future__ import annotations


def many(count: int, thing: str, things: str | None = None) -> str:
    """A number of things: `1 record`, `2,000 records`. `things` where the plural is no `thing` with an s."""
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def which(count: int, one: str, several: str) -> str:
    """The form that goes with a count: `1 task waits`, `2 tasks wait`."""
    return one if count == 1 else several
