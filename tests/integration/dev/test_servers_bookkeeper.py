"""Three bookies for tests and benchmarks, and DistributedLog's own writer and reader on them."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from scribengin_dev.bench.clients.jobs import run_job
from scribengin_dev.servers.bookkeeper import BookKeeperServers


@pytest.mark.full
def test_distributedlog_reads_what_it_wrote_after_all_bookies_were_restarted(
    bookkeeper: BookKeeperServers,
) -> None:
    uri = bookkeeper.distributedlog_uri("restarted")
    job: dict[str, Any] = {
        "system": "distributedlog",
        "uri": uri,
        "log": "a",
        "records": 2_500,
        "record_bytes": 100,
        "jars": bookkeeper.jars,
        "log4j": bookkeeper.folder / "log4j2-warn.properties",
    }
    assert run_job({**job, "job": "append"})["records_per_s"] > 0
    before = bookkeeper.pids
    assert len(before) == 3
    bookkeeper.stop()
    assert [pid for pid in before if psutil.pid_exists(pid)] == []
    bookkeeper.start()
    assert len(bookkeeper.pids) == 3
    assert bookkeeper.distributedlog_uri("restarted") == uri  # bound already, and not anew
    assert run_job({**job, "job": "read"})["records_per_s"] > 0  # ends only when every record has come
