"""Spark as a worker needs it: a session, and the tables of any format that the connector of `kind: spark` asks for."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from scribengin.connectors.spark.contract import use_spark_tables
from scribengin.spark.session.session import scratch_directory, start_session, stop_session
from scribengin.spark.session.spark_master import files_are_shared
from scribengin.spark.tables import SessionTables


def start(
    name: str,
    *,
    master: str = "local[2]",
    memory_mb: int | None = None,
    beside_mb: int = 0,
    conf: Mapping[str, str] | None = None,
    log_path: Path | None = None,
    brief: bool = False,
) -> SparkSession:
    """Start this process's Spark session, as `scribengin.spark.session.start_session`, and offer its tables. Raises the
    same."""
    session = start_session(
        name, master=master, memory_mb=memory_mb, beside_mb=beside_mb, conf=conf, log_path=log_path, brief=brief
    )
    tables = scratch_directory() / "tables"
    tables.mkdir(mode=0o700)
    use_spark_tables(SessionTables(session, tables, files_are_shared=files_are_shared(master)))
    return session


def stop() -> None:
    """Stop the session, and with it its tables. Idempotent; works on a JVM that died."""
    use_spark_tables(None)
    stop_session()


@contextmanager
def brief_session(name: str, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session of one core while the block lasts, for a command that looks at something. Raises as `start`.

    Nothing is logged meanwhile: PySpark logs every error with the JVM's whole stack, and commands say it in a line.
    """
    logging.disable()
    try:
        yield start(name, master="local[1]", conf=conf, brief=True)
    finally:
        stop()
        logging.disable(logging.NOTSET)
