"""An archive of the classes that Spark loads (Java's class data sharing): with it a session starts in two thirds of the
processor's time.

It is made once for each Java and Spark, by a process of its own beside the first session, which does not wait for it:
Spark writes down what it loads, and Java packs that. That process belongs to no container, whose memory it would take:
it holds 300 MB for a while. Java looks itself whether an archive fits, and does without where none does. It is never a
reason to fail. An empty file says that this Java cannot make one; who deletes it has it tried again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark

from scribengin.base.jvm import CONF_VARIABLE
from scribengin.base.process.variables import CONTAINER_VARIABLE
from scribengin.spark.session import spark_home
from scribengin.spark.session.spark_master import python_path
from scribengin_registry.java.process import LOOPBACK
from scribengin_registry.java.runtime import JavaRuntime, cache_directory, find_java

ARCHIVE_VARIABLE = "SCRIBENGIN_CLASS_ARCHIVE"
"""`off`: Spark's JVMs neither make nor use an archive of the classes that they load."""
_TIMEOUT_S = 300.0
_NICENESS = 19
_makers: list[subprocess.Popen[bytes]] = []


def options(java: JavaRuntime, user_options: str, environ: Mapping[str, str] = os.environ) -> str:
    """What a JVM of Spark is told to use the archive, or nothing. Where there is no archive yet, one is begun beside.
    What the user says of archives goes before."""
    said = f"{user_options} {environ.get('SPARK_SUBMIT_OPTS', '')}"
    if environ.get(ARCHIVE_VARIABLE) == "off" or "-Xshare" in said or "SharedArchiveFile" in said:
        return ""
    try:
        path = cache_directory() / f"spark-classes-{mark(java)}.jsa"
    except RuntimeError:  # a user without a home
        return ""
    try:
        if path.stat().st_size == 0:
            return ""  # this Java takes none
    except FileNotFoundError:
        _begin(path, environ)
        return ""
    except OSError:
        return ""
    return using(path)


def using(path: Path) -> str:
    """The JVM's options. Without a word where the archive does not fit."""
    return f"-Xshare:auto -XX:SharedArchiveFile={path} -Xlog:disable -Xlog:all=error:stderr"


def mark(java: JavaRuntime) -> str:
    """What an archive is good for: this Java and this Spark, in the class path that its home gives. Java takes the jars
    for others once they were installed anew, though they are the same."""
    try:
        release = (java.home / "release").read_text()
    except OSError:
        release = ""
    parts = (java.home, java.major, release, spark_home.cached(), pyspark.__version__, *_installed_jars())
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def _installed_jars() -> Iterator[tuple[str, int, int]]:
    """What Java looks at: name, bytes, and when it was written."""
    for path in sorted((spark_home.installed() / "jars").glob("*.jar")):
        about = path.stat()
        yield path.name, about.st_size, about.st_mtime_ns


def make(path: Path, java: JavaRuntime, jvm_options: str = "", *, waits: bool = True) -> None:
    """Make the archive at `path`, for JVMs with those options; an empty file when this Java cannot, and none when it
    had no time to.

    Several may try at once: one makes it. The others wait for that, or leave it to that one. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            return
        if path.is_file():
            return
        unfinished = path.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        try:
            _pack(unfinished, java, jvm_options)
        except subprocess.TimeoutExpired:  # which says nothing of that Java: the next one tries again
            unfinished.unlink(missing_ok=True)
            return
        except subprocess.SubprocessError:
            unfinished.unlink(missing_ok=True)
            unfinished.touch()
        unfinished.replace(path)


def _begin(path: Path, environ: Mapping[str, str]) -> None:
    if "CONTAINER_ID" in environ:
        return  # what a container of YARN leaves behind is killed
    of_no_container = {name: value for name, value in environ.items() if name != CONTAINER_VARIABLE}
    try:
        maker = subprocess.Popen(
            [sys.executable, "-m", "scribengin.spark.session.class_archive", str(path)],
            env={**of_no_container, ARCHIVE_VARIABLE: "off", "PYTHONPATH": python_path()},
            cwd="/",  # a container's directory goes with it, and no Java starts in one that is gone
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return
    _makers.append(maker)  # else it would be waited for, and complained about, as garbage


def _pack(archive: Path, java: JavaRuntime, jvm_options: str) -> None:
    classes, class_path = archive.with_suffix(".classes"), archive.with_suffix(".class-path")
    environ = {
        **os.environ,
        ARCHIVE_VARIABLE: "off",
        "JAVA_HOME": str(java.home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_SUBMIT_OPTS": f"{jvm_options} -Xshare:off -XX:DumpLoadedClassList={classes}".strip(),
    }
    for in_class_path in (CONF_VARIABLE, "YARN_CONF_DIR"):
        environ.pop(in_class_path, None)
    try:
        _run([sys.executable, "-m", "scribengin.spark.session.loaded_classes", str(class_path)], environ)
        common = [*jvm_options.split(), f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]
        of_spark = ["-cp", class_path.read_text()]
        pack = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}"]
        _run([str(java.executable), *common, *pack, *of_spark], environ)
        _run([str(java.executable), *common, "-Xshare:on", *of_spark, "-version"], environ)
    finally:
        classes.unlink(missing_ok=True)
        class_path.unlink(missing_ok=True)


def _run(command: list[str], environ: dict[str, str]) -> None:
    nowhere = subprocess.DEVNULL
    subprocess.run(command, env=environ, check=True, timeout=_TIMEOUT_S, stdin=nowhere, stdout=nowhere, stderr=nowhere)


if __name__ == "__main__":
    os.nice(_NICENESS)
    make(Path(sys.argv[1]), find_java(), waits=False)
