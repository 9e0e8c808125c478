"""Several clients that are measured as one."""

from __future__ import annotations

import threading

from scribengin_dev.bench.clients.together import rate_of_all


def test_readers_run_together_and_their_records_count_together() -> None:
    both = threading.Barrier(2)

    def read() -> int:
        both.wait(100)  # nobody comes through alone
        return 5

    assert rate_of_all([read, read]) > 0
    assert rate_of_all([lambda: 0]) == 0
