"""A JVM in this process with the Hadoop client that comes inside PySpark, through JPype: for YARN, and for HDFS. Other
clients are added to its class path (`add_jars`), such as BookKeeper's.

Rules of such a process: it never forks once the JVM runs (start children before, or with `subprocess`, which execs at
once), and signals stay Python's (`-Xrs`). There is one JVM a process, and with it one HADOOP_CONF_DIR. Threads may be
in Java when the process ends.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

from scribengin.errors import ConfigInvalid, LauncherError
from scribengin_registry.errors import JavaMissing
from scribengin_registry.java.jars import pyspark_jars
from scribengin_registry.java.runtime import find_java

CONF_VARIABLE = "HADOOP_CONF_DIR"
OPTIONS_VARIABLE = "SCRIBENGIN_JVM_OPTIONS"
"""More options for the JVM that our processes have for YARN, HDFS and BookKeeper, with blanks between: `-Xmx1g`."""
LIGHT = "-XX:TieredStopAtLevel=1"
"""For a JVM that ends before it would be compiled well, or waits most of its time."""
_OPTIONS = ("-Xmx160m", "-Xss512k", "-XX:+UseSerialGC", LIGHT, "-XX:-UsePerfData")
_JARS = (
    "hadoop-client-api-*",
    "hadoop-client-runtime-*",
    "slf4j-api-*",
    "log4j-1.2-api-*",
    "log4j-api-*",
    "log4j-core-*",
    "log4j-slf4j2-impl-*",
    "jcl-over-slf4j-*",
)
_SITES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml")
_END_MAX_S = 120
_lock = threading.Lock()
_added: set[Path] = set()


JvmUse = Literal["all", "open"]
"""What the clients of a system have a JVM in their processes for: all of it, or only what is still being written."""


def start_jvm() -> None:
    """Start it, unless it runs, with the directory of HADOOP_CONF_DIR in its class path if there is one.

    Raises ConfigInvalid (no JPype), LauncherError (no Java).
    """
    jpype = _jpype()
    with _lock:
        if jpype.isJVMStarted():
            return
        directory = named_directory()
        classpath = [*([str(directory)] if directory else []), *map(str, client_jars())]
        jpype.config.destroy_jvm = False  # Hadoop's threads would keep a process that has done its work
        try:
            start_jvm_with(classpath, [*_OPTIONS, "-Dlog4j2.level=ERROR"])
        except JavaMissing as error:
            raise LauncherError(f"Hadoop's client needs Java: {error}") from error


def start_jvm_with(classpath: Sequence[str], options: Sequence[str]) -> None:
    """Start it with these jars and directories alone, and no Hadoop: for the clients of other systems, in a process
    that has no JVM yet and nothing of ours but them. Raises ConfigInvalid (no JPype), JavaMissing."""
    library = next(find_java().home.glob("**/libjvm.so"), None)
    place = str(library) if library else None
    asked = os.environ.get(OPTIONS_VARIABLE, "").split()
    words = ["-Xrs", *options, "-Djava.net.preferIPv4Stack=true", *asked]
    _jpype().startJVM(place, *words, classpath=list(classpath), convertStrings=False)
    _keep_java_out_of_python()
    atexit.register(_let_threads_wait)


def _keep_java_out_of_python() -> None:
    """JPype has a thread of Java's that calls Python: behind each collection of Java's it has Python search for
    garbage, too, in all that there is. That was a third of what a reader of BookKeeper cost. And where Python was
    ending just then, it aborted the process.

    It also tells Python what Java lets go of, of the Python objects that Java was given: such as a function that Java
    is to call. We give it none."""
    java("org.jpype.ref.JPypeReferenceQueue").getInstance().stop()


def _let_threads_wait() -> None:
    """Before Python ends. A thread that comes back from Java later finds no interpreter, and Python before 3.14 ends it
    by unwinding its stack. JPype's frames let nothing through: C++ would abort the process, whatever its exit status
    should be. So C++ is to read a character of an empty stdin instead, which this thread has locked: the others wait
    for the lock until the process ends. They hold nothing that the end needs.

    The thread that ends the process has the lock. It finds no character, and C++ aborts as it would have. What hangs
    all the same is ended by SIGALRM."""
    if sys.version_info >= (3, 14):
        return
    try:
        libc, cpp = ctypes.CDLL(None), ctypes.CDLL("libstdc++.so.6")
        set_terminate = cpp._ZSt13set_terminatePFvvE  # std::set_terminate(void (*)())
        libc.gnu_get_libc_version  # noqa: B018 - others have no stdin that could be another one
    except (OSError, AttributeError):
        return  # a system with other libraries: threads there may abort the process
    libc.fopen.restype = ctypes.c_void_p
    empty = ctypes.c_void_p(libc.fopen(b"/dev/null", b"r"))
    if empty.value is None:
        return  # no more files may be open, or there are no devices
    libc.flockfile(empty)
    ctypes.c_void_p.in_dll(libc, "stdin").value = empty.value  # C's: Python reads by a file descriptor of its own
    set_terminate.restype = ctypes.c_void_p
    set_terminate(ctypes.cast(libc.getchar, ctypes.c_void_p))
    if threading.current_thread() is threading.main_thread():  # nobody else may say what a signal does
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_END_MAX_S)


def add_jars(jars: Sequence[Path]) -> None:
    """Let the JVM, which runs, find classes of these jars, too. What it finds elsewhere already goes first."""
    jpype = _jpype()
    with _lock:
        for jar in jars:
            if jar not in _added:
                jpype.addClassPath(str(jar))
                _added.add(jar)


def silence(*packages: str) -> None:
    """Nothing is logged of these packages from here on. The JVM must run."""
    off = java("org.apache.logging.log4j.Level").OFF
    for package in packages:
        java("org.apache.logging.log4j.core.config.Configurator").setLevel(package, off)


def named_directory() -> Path | None:
    """The directory that HADOOP_CONF_DIR names, which need not be there; None if it names none."""
    place = os.environ.get(CONF_VARIABLE)
    return Path(place) if place else None


def configuration_directory() -> Path:
    """The directory that says which cluster it is. Raises ConfigInvalid."""
    place = named_directory()
    if place is None:
        raise ConfigInvalid(
            f"{CONF_VARIABLE} is not set: name the directory with the cluster's core-site.xml and yarn-site.xml"
        )
    if not (place / "yarn-site.xml").is_file():
        raise ConfigInvalid(f"{CONF_VARIABLE} is {place}, and there is no yarn-site.xml: name the cluster's directory")
    return place


def client_jars() -> list[Path]:
    """Hadoop's client, as PySpark has it. Raises LauncherError."""
    return pyspark_jars(_JARS, LauncherError)


def java(name: str) -> Any:
    """A Java class, as in `java("java.util.ArrayList")`. The JVM must run."""
    return _jpype().JClass(name)


def yarn_configuration() -> Any:
    """What the cluster's files say, a new `YarnConfiguration`. Starts the JVM. Raises ConfigInvalid (no Hadoop
    configuration), and as `start_jvm`."""
    directory = configuration_directory()
    start_jvm()
    return _with_sites(java("org.apache.hadoop.yarn.conf.YarnConfiguration")(), directory)


def hadoop_configuration() -> Any:
    """What HADOOP_CONF_DIR's files say, if there is such a directory, a new `Configuration`. Raises as `start_jvm`."""
    start_jvm()
    place = named_directory()
    configuration = java("org.apache.hadoop.conf.Configuration")()
    return _with_sites(configuration, place) if place else configuration


def _with_sites(configuration: Any, directory: Path) -> Any:
    for site in _SITES:  # named, because the variable may have changed since the JVM was given its class path
        if (directory / site).is_file():
            configuration.addResource(java("org.apache.hadoop.fs.Path")((directory / site).as_uri()))
    return configuration


def java_bytes(data: bytes | memoryview) -> Any:
    """A byte[]."""
    jpype = _jpype()
    return jpype.JArray(jpype.JByte)(data)


def java_room(size: int) -> Any:
    """A byte[] of that many bytes, to be read into; `bytes(room)` is what stands in it."""
    jpype = _jpype()
    return jpype.JArray(jpype.JByte)(size)


def java_outside_room(size: int) -> Any:
    """A ByteBuffer of that many bytes outside Java's heap, to be read into; `memoryview(room)` is what stands in it."""
    return java("java.nio.ByteBuffer").allocateDirect(size)


@contextmanager
def java_errors(what: str) -> Iterator[None]:
    """What Java throws in the block becomes a LauncherError that begins with `what`; its stack stays the cause."""
    with java_raising(lambda error: LauncherError(f"{what}: {java_reason(error)}")):
        yield


@contextmanager
def java_raising(turned: Callable[[Any], Exception]) -> Iterator[None]:
    """What Java throws in the block becomes what `turned` makes of it; its stack stays the cause."""
    try:
        yield
    except _jpype().JException as error:
        raise turned(error) from error


def java_error() -> type[Exception]:
    """What everything that Java throws is an instance of."""
    kind: type[Exception] = _jpype().JException
    return kind


def java_reason(error: Any) -> str:
    """The first line of a Java exception, with its class where that says more than the words."""
    kind = str(error.getClass().getSimpleName())
    words = str(error.getMessage() or "").strip().partition("\n")[0]
    return f"{kind}: {words}" if words else kind


def is_java(error: BaseException | None, *names: str) -> bool:
    """Whether an exception (there may be none), or what caused it, is one of these Java classes (simple names)."""
    current: Any = error
    while current is not None and isinstance(current, _jpype().JException):
        if str(current.getClass().getSimpleName()) in names:
            return True
        current = current.getCause()
    return False


@cache
def _jpype() -> Any:
    try:
        import jpype
        import jpype.config
    except ImportError:
        raise ConfigInvalid("YARN, and logs on HDFS or BookKeeper need JPype: pip install 'scribengin[yarn]'") from None
    return jpype
