"""A job of a benchmark in a process of its own, tools/scribengin_dev/bench/clients/jobs.py."""

from __future__ import annotations

import sys

import pytest

from scribengin.errors import ServerDown
from scribengin_dev.bench.clients.jobs import run_job

COUNTS_LOGS = "import json, sys; print(json.dumps({'logs': len(json.load(sys.stdin)['logs'])}))"
FAILS = "import sys; print('no room', file=sys.stderr); sys.exit(3)"


def test_a_job_may_name_ten_thousand_logs() -> None:
    job = {"system": "log", "job": "many", "logs": [f"bench-{number:032}" for number in range(10_000)]}
    assert run_job(job, [sys.executable, "-c", COUNTS_LOGS]) == {"logs": 10_000}


def test_a_job_that_fails_says_what_it_said() -> None:
    with pytest.raises(ServerDown, match=r"the client 'log many' failed [(]exit status 3[)](?s:.*)no room"):
        run_job({"system": "log", "job": "many"}, [sys.executable, "-c", FAILS])
