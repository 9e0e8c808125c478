"""Hadoop's settings, as Spark sends them along with every batch of a query with state: once for each operator at least.

Hadoop writes with each of its 1,100 settings where it comes from, compressed by itself. That was most of the time that
sending them took, and nobody asks for it.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from scribengin.spark.session.failures import failure

_CLASS = "org.apache.hadoop.conf.Configuration"
_ORIGINS = "updatingResource"
"""The field that says by setting where it comes from. An empty one is what a setting of nowhere has."""


def forget_origins(session: SparkSession) -> None:
    """From now on, what is sent of Hadoop's settings is what they say. Idempotent; where Hadoop has read more of its
    files meanwhile, it is done again. Raises SparkUnavailable."""
    jvm: Any = session._jvm
    try:
        origins = jvm.java.lang.Class.forName(_CLASS).getDeclaredField(_ORIGINS)
        origins.setAccessible(True)
        known = origins.get(session.sparkContext._jsc.hadoopConfiguration())
        if known is not None:  # None: nothing has been read yet
            known.clear()
    except Py4JError as error:
        raise failure(error, "preparing Hadoop's settings") from error
