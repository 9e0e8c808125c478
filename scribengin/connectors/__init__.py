"""Sources and sinks: the contracts, and one file a system."""

from scribengin.connectors.kinds import AnySinkConfig, AnySourceConfig, Environment, open_sink, open_source

__all__ = ["AnySinkConfig", "AnySourceConfig", "Environment", "open_sink", "open_source"]
