"""Published helpers for tests: conformance suites for your own connector or launcher, failpoints, waiting."""

from scribengin.testing.conformance_sink import check_sink
from scribengin.testing.conformance_source import check_source
from scribengin.testing.launcher_conformance import check_launcher

__all__ = ["check_launcher", "check_sink", "check_source"]
