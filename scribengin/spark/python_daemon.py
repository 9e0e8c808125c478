"""PySpark's daemon, which Spark's Python workers are forked from; only that they search for garbage in less.

PySpark searches behind every task, among all objects of the process. Most of those are modules of PySpark, PyArrow and
pandas, and never garbage. A search takes 40 ms of a core, and four processes search in each round: for query 2 of
Nexmark that was a third of all. Python can be told to leave out what is there.

The JVM runs this module instead of PySpark's, where a setting of Spark names it.
"""

from __future__ import annotations

import gc
import socket
import sys

from pyspark import daemon

MODULE = __name__
"""What `spark.python.daemon.module` says."""
TIMES_MAX = 8
"""So often a process leaves out what it has imported. What lives then, and is garbage later, stays."""
_work = daemon.worker


class ImportsSpared:
    """What the search for garbage leaves out, in this process."""

    def __init__(self) -> None:
        self._modules = 0
        self._times = 0

    def before_a_task(self) -> None:
        """Leave out whatever is there, where modules came since the last time: some come while the first task ends.
        What is garbage by then is collected."""
        if len(sys.modules) == self._modules or self._times == TIMES_MAX:
            return
        gc.collect()
        gc.freeze()
        self._modules = len(sys.modules)
        self._times += 1


_SPARED = ImportsSpared()


def worker(sock: socket.socket, authenticated: bool) -> int:
    """One task, in a process of its own that the daemon has forked; nothing of the task is there yet."""
    _SPARED.before_a_task()
    return _work(sock, authenticated)


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
