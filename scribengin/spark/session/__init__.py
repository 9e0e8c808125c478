"""The Spark session: how it is started, its scratch directory, its failures."""

from scribengin.spark.session.session import activate, scratch_directory, start_session, stop_session

__all__ = ["activate", "scratch_directory", "start_session", "stop_session"]
