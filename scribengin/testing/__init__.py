"""Published helpers for tests: conformance suites for your own connector, launcher or file system, failpoints,
waiting."""

from scribengin.testing.conformance.files import check_file_system
from scribengin.testing.conformance.launcher import check_launcher
from scribengin.testing.conformance.sink import check_sink
from scribengin.testing.conformance.source import check_source

__all__ = ["check_file_system", "check_launcher", "check_sink", "check_source"]
