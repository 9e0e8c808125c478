"""Consistent hashing: which of the proxies is asked about a key. Pure.

Each proxy has a weight for each key, and the heaviest is asked: rendezvous hashing. Clients that never heard of each
other ask the same one. A proxy that comes takes its share of each of the others, and one that goes leaves its own to
all of them; no other key moves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def heaviest(key: str, addresses: Iterable[str]) -> str | None:
    """The address to ask about the key; None: there are none."""
    return max(addresses, key=lambda address: _weight(key, address), default=None)


def _weight(key: str, address: str) -> bytes:
    return hashlib.blake2b(f"{key}\0{address}".encode(), digest_size=8).digest()
