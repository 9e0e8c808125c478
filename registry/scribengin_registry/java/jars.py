"""The jars inside PySpark: ZooKeeper's server, Hadoop's client, Ivy. Found without importing pyspark."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path


def pyspark_jars(patterns: Iterable[str], error: type[Exception]) -> list[Path]:
    """For each pattern, as in `zookeeper-[0-9]*`, the last jar by name. Raises `error` when one is not there."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise error("this runs from the jars inside PySpark, and there is none: run pip install pyspark")
    directory = _installed(Path(spec.submodule_search_locations[0])) / "jars"
    jars = []
    for pattern in patterns:
        found = sorted(directory.glob(f"{pattern}.jar"))
        if not found:
            raise error(f"there is no {pattern}.jar in {directory}: install PySpark again")
        jars.append(found[-1])
    return jars


def _installed(package: Path) -> Path:
    """Where PySpark lies. Python workers of Spark import it from an archive, `pyspark/python/lib/pyspark.zip/pyspark`,
    which has no jars."""
    return package.parents[3] if package.parent.name == "pyspark.zip" else package
