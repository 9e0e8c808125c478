"""Where the registry keeps the streams of sources."""

from __future__ import annotations

from scribengin.base.commit_log import LOCKS

SOURCES_NODE = f"{LOCKS}/sources"
"""Below it every source of a dataflow has its node, and below that every stream."""
