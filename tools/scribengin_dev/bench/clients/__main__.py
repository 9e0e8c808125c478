"""`python -m scribengin_dev.bench.clients < JOB`: one job of a benchmark in this process; `jobs` starts it."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

_SYSTEMS = ("log", "kafka", "distributedlog", "spark", "dafka", "proxy", "hdfs")


def main(text: str) -> None:
    """Do the job and print its result."""
    job = json.loads(text)
    system = job["system"]
    assert system in _SYSTEMS, f"there is no client of {system}"
    jobs = import_module(f"scribengin_dev.bench.clients.{system}").JOBS  # ours shall not carry Java's in its memory
    print(json.dumps(jobs[job["job"]](job)), flush=True)


if __name__ == "__main__":
    main(sys.stdin.read())
    os._exit(0)  # at once: a JVM in this process would wait for threads that its clients have left behind
