"""Numbers of things, as people read them."""

from __future__ import annotations


def many(count: int, thing: str) -> str:
    """A number of things: `1 record`, `2,000 records`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
