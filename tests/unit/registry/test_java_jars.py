"""The jars inside PySpark are found wherever PySpark is imported from."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from scribengin_registry.java.jars import pyspark_jars

_SAY = "from scribengin_registry.java.jars import pyspark_jars; print(pyspark_jars(['zookeeper-[0-9]*'], OSError)[0])"


def test_a_python_worker_of_spark_finds_them_though_its_pyspark_is_in_an_archive() -> None:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    archive = Path(spec.submodule_search_locations[0], "python", "lib", "pyspark.zip")
    assert archive.is_file()
    first = f"import sys; sys.path.insert(0, {str(archive)!r}); sys.path[1:1] = {sys.path!r}; "
    told = subprocess.run([sys.executable, "-c", first + _SAY], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip() == str(pyspark_jars(["zookeeper-[0-9]*"], OSError)[0])
