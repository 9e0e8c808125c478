"""Where the registry keeps the streams of sources."""

from __future__ import annotations

SOURCES_NODE = "/scribengin/locks/sources"
"""Below it every source of a dataflow has its node, and below that every stream."""
