"""`python -m scribengin.spark.session.loaded_classes FILE`: load the classes that a worker's transformation does.

The JVM's class path is written to the file. For class_archive.py, in a JVM that ends by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scribengin.spark.session.session import start_session, stop_session


def use_spark(class_path: Path) -> None:
    """Raises SparkUnavailable."""
    conf = {"spark.sql.shuffle.partitions": "1"}  # of 200, each would run a task, which loads nothing new
    session = start_session("class-archive", master="local[1]", conf=conf)
    rows = session.createDataFrame([(number, str(number)) for number in range(100)], "a int, b string")
    rows.createOrReplaceTempView("t")
    session.sql("SELECT upper(b) AS c, count(*) AS n FROM t WHERE a > 3 GROUP BY 1").toArrow()
    session.table("t").mapInArrow(lambda batches: batches, "a int, b string").toArrow()
    assert session._jvm is not None
    class_path.write_text(session._jvm.java.lang.System.getProperty("java.class.path"))
    stop_session()


if __name__ == "__main__":
    use_spark(Path(sys.argv[1]))
