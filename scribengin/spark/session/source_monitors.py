"""The threads that Spark leaves behind of the Python processes of a query's sources.

For each such process Spark makes a factory of its own, and with it a thread that looks for processes to end. It has
none to look after, never ends, and keeps the sessions of the query in which it was started.
"""

from __future__ import annotations

from typing import Any

_NAMED = "Idle Worker Monitor"
_OF_SOURCES = "pyspark.sql.streaming.python_streaming_source_runner"


def end_monitors(jvm: Any) -> None:
    """End those of all sources: also where a query still runs, they have nothing to do. Raises what Spark raises."""
    for thread in jvm.Thread.getAllStackTraces().keySet():
        if str(thread.getName()).startswith(_NAMED) and _field(_field(thread, "$outer"), "workerModule") == _OF_SOURCES:
            thread.interrupt()


def _field(of: Any, name: str) -> Any:
    field = of.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(of)
