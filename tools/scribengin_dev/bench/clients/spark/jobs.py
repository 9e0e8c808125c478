"""What Spark is asked to do, by name."""

from __future__ import annotations

from scribengin_dev.bench.clients.spark import kafka, nexmark

JOBS = {**kafka.JOBS, **nexmark.JOBS}
