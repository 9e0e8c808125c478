"""Sources and sinks: the contracts, and one file a system."""

from scribengin.connectors.kinds import KINDS, AnySinkConfig, AnySourceConfig, open_sink, open_source
from scribengin.connectors.opening import Environment

__all__ = ["KINDS", "AnySinkConfig", "AnySourceConfig", "Environment", "open_sink", "open_source"]
