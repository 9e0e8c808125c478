"""Sources and sinks: the contracts, and one file a system.

What knows all systems is imported when it is asked for: who reads one of them, as Spark's Python workers do, imports
that one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scribengin.connectors.kinds import KINDS, AnySinkConfig, AnySourceConfig, open_sink, open_source
    from scribengin.connectors.opening import Environment


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'opening' if name == 'Environment' else 'kinds'}"), name)


__all__ = ["KINDS", "AnySinkConfig", "AnySourceConfig", "Environment", "open_sink", "open_source"]
