"""The Spark session of a process: one local JVM, quiet, with a scratch directory of its own. Its executors are threads
of that JVM, or containers of YARN (session/spark_master.py).

PySpark allows one JVM a process. Every thread shares the session that `start_session` returns; transformations keep
their views and settings apart by themselves.
"""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from scribengin.base.jvm import LIGHT
from scribengin.base.process.scratch import ScratchDirectory
from scribengin.errors import SparkUnavailable
from scribengin.spark.python_daemon import MODULE as PYTHON_DAEMON
from scribengin.spark.session import class_archive
from scribengin.spark.session.memory import heap_mb
from scribengin.spark.session.spark_home import spark_home, zips
from scribengin.spark.session.spark_master import (
    files_are_shared,
    makes_a_key,
    python_path,
    refuse_unusable,
    settings_for,
)
from scribengin_registry.errors import JavaMissing
from scribengin_registry.java.process import LOOPBACK, wait_or_kill
from scribengin_registry.java.runtime import JavaRuntime, find_java
from scribengin_registry.references import resolved_all

_SOCKET_PATH_MAX = 100
_SOCKET_NAME = ".00000000-0000-0000-0000-000000000000.sock"
_JVM_EXIT_TIMEOUT_S = 10.0
_JAVA_EPILOGUE = ("Error: Could not create the Java Virtual Machine", "Error: A fatal exception has occurred")

# Failed tasks reach us as exceptions; written down with their stacks too, a chronic bad record would fill the disk.
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
"""
SCRATCH_PREFIX = "scribengin-spark-"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_ARENAS = "MALLOC_ARENA_MAX"
_ARENAS_MAX = "2"
_ZIPS = "PYSPARK_ARCHIVES_PATH"
_THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class _Running:
    scratch: ScratchDirectory
    gateway: Any
    session: SparkSession


_lock = threading.Lock()
_running: _Running | None = None


def start_session(
    name: str,
    *,
    master: str = "local[2]",
    memory_mb: int | None = None,
    beside_mb: int = 0,
    conf: Mapping[str, str] | None = None,
    log_path: Path | None = None,
    brief: bool = False,
) -> SparkSession:
    """Start this process's Spark session.

    `memory_mb` is what this process, its JVM and Spark's Python workers may use together: half of it becomes the heap
    (default: a heap of 1 GiB), or less where `beside_mb` of it are wanted beside the heap. `conf` goes over what is set
    here; `${env:...}` and `${file:...}` in it are what they name. Spark's own output goes to `log_path`, or to a file
    that is deleted with the session. A `brief` one is to live for seconds: its JVM compiles lightly, and starts in less
    of the processor's time.

    Raises SparkUnavailable (no Java, Spark does not start, there is a session already), ConfigInvalid (`master`),
    ReferenceMissing.
    """
    global _running
    refuse_unusable(master)
    with _lock:
        if _running is not None:
            raise SparkUnavailable(
                "this process has a Spark session already: use it, or stop it with stop_session first"
            )
        java = _java()
        scratch = _scratch()
        try:
            settings = _briefly(conf or {}) if brief else conf or {}
            heap = heap_mb(memory_mb, beside_mb)
            _running = _start(name, master, heap, settings, java, scratch, log_path or scratch.path / "spark.log")
        except BaseException:
            _forget_gateway()
            scratch.remove()
            raise
        atexit.register(stop_session)
        return _running.session


def stop_session() -> None:
    """Stop the session and its JVM, and delete its scratch directory. Idempotent; works on a JVM that died."""
    global _running
    with _lock:
        running, _running = _running, None
        if running is None:
            return
        atexit.unregister(stop_session)
        try:
            if _jvm_runs(running.gateway):
                running.session.stop()
        except (Py4JError, OSError):
            pass  # the JVM died; the end that follows is the same
        finally:
            _forget_session()
            _end_jvm(running.gateway)
            _forget_gateway()
            running.scratch.remove()


def session_beside(session: SparkSession, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Another session of the same JVM, with `settings`. Its views and settings are its own; the JVM and what is
    broadcast are not. Its plans stay as they were checked."""
    beside = session.newSession()
    for key, value in {"spark.sql.adaptive.enabled": "false", **(settings or {})}.items():
        beside.conf.set(key, value)
    return beside


def activate(session: SparkSession) -> None:
    """Make `session` the one that calls without a session mean in this thread (`getActiveSession`, data sources by
    name). Else it is the one that last made a DataFrame from Python values here, which may be another."""
    SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)


def scratch_directory() -> Path:
    """Where transformations of this process may put files. Raises SparkUnavailable when there is no session."""
    running = _running
    if running is None:
        raise SparkUnavailable("this process has no Spark session: start one with start_session")
    return running.scratch.path


def _java() -> JavaRuntime:
    try:
        return find_java()
    except JavaMissing as error:
        raise SparkUnavailable(f"Spark needs Java: {error}") from error


def _scratch() -> ScratchDirectory:
    try:
        return ScratchDirectory(SCRATCH_PREFIX)
    except OSError as error:
        raise SparkUnavailable(f"Spark needs a temporary directory that it can write ({error}): set TMPDIR") from error


def _start(
    name: str,
    master: str,
    heap: int,
    conf: Mapping[str, str],
    java: JavaRuntime,
    scratch: ScratchDirectory,
    log_path: Path,
) -> _Running:
    conf = settings_for(master, java) | resolved_all(dict(conf))
    archive = class_archive.options(java, conf.get(_JAVA_OPTIONS, ""))
    spark_conf = _spark_conf(name, master, heap, conf, scratch, archive)
    properties = scratch.path / "spark.properties"
    properties.touch(mode=0o600)
    properties.write_text(_properties(spark_conf.getAll()))  # on a command line everybody could read it
    with (
        _environment(java, master, properties, spark_home(scratch.path)),
        _interrupt_handler_kept(),
        _open_log(log_path) as log,
    ):
        try:
            # The current directory of the JVM and of Python workers is one that can be written.
            options = {"stdout": log, "stderr": subprocess.STDOUT, "cwd": str(scratch.path)}
            gateway = launch_gateway(None, options)  # type: ignore[no-untyped-call]  # PySpark has none for it
            SparkContext(conf=spark_conf, gateway=gateway)
            return _Running(scratch, gateway, SparkSession.builder.getOrCreate())
        except (PySparkException, Py4JError, OSError) as error:
            raise SparkUnavailable(f"Spark did not start: {_reason(log_path, error)}") from error


def _briefly(conf: Mapping[str, str]) -> dict[str, str]:
    """Of two options that say the same a JVM takes the last one: the user's."""
    return {**conf, _JAVA_OPTIONS: f"{LIGHT} {conf.get(_JAVA_OPTIONS, '')}".strip()}


def _spark_conf(
    name: str, master: str, heap: int, conf: Mapping[str, str], scratch: ScratchDirectory, archive: str
) -> SparkConf:
    temp = scratch.subdirectory("tmp")
    log4j = scratch.path / "log4j2.properties"
    log4j.write_text(_LOG4J)
    user_options = conf.get(_JAVA_OPTIONS, "")
    settings = {
        "spark.app.name": name,
        "spark.master": master,
        "spark.driver.memory": f"{heap}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Nobody looks at what finished; kept, it costs heap and time.
        "spark.ui.retainedJobs": "4",
        "spark.ui.retainedStages": "4",
        "spark.ui.retainedTasks": "64",
        "spark.sql.ui.retainedExecutions": "4",
        "spark.local.dir": str(scratch.subdirectory("local")),
        "spark.sql.warehouse.dir": str(scratch.path / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        # A bad cast must raise, so that its record is found; null would be data that nobody wrote.
        "spark.sql.ansi.enabled": "true",
        # Narrow jobs have nothing to adapt, and a plan that changes while it runs cannot be checked before.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(8 * 1024 * 1024),
        "spark.python.unix.domain.socket.enabled": str(_socket_fits(temp)).lower(),
        "spark.python.daemon.module": PYTHON_DAEMON,
        **conf,
        # Other users of the machine reach its ports.
        **({"spark.authenticate": "true"} if makes_a_key(conf.get("spark.master", master)) else {}),
        # -Xss: Spark's own recursion (error texts of long plans) overflows the default stack.
        _JAVA_OPTIONS: f"-Xss16m -XX:-UsePerfData -Djava.io.tmpdir={temp} "
        f"-Dlog4j2.configurationFile={log4j.as_uri()} {archive} {user_options}".strip(),
    }
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


def _properties(settings: Iterable[tuple[str, str]]) -> str:
    """As Java reads a file of properties: whatever it would take for a sign of its own is written as a number."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings)


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", errors="surrogatepass")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 and chr(code).isalnum() else f"\\u{code:04x}" for code in codes)


def _socket_fits(directory: Path) -> bool:
    """Whether a unix socket in `directory` has a path short enough for the kernel. Small jobs take longer without."""
    return len(str(directory / _SOCKET_NAME)) <= _SOCKET_PATH_MAX


@contextmanager
def _environment(java: JavaRuntime, master: str, properties: Path, home: Path) -> Iterator[None]:
    """What the JVM and its Python workers inherit, in this process's environment only while they are started."""
    wanted = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(str(properties))} --load-spark-defaults pyspark-shell",
        "PYTHONPATH": python_path(),
        # RocksDB takes its memory by malloc, on many threads: glibc would keep what it gives back, in arenas of each.
        _ARENAS: os.environ.get(_ARENAS) or _ARENAS_MAX,
        # Processes that plan for a source import NumPy, and compute nothing. Spark says so itself to those of tasks.
        _THREADS: os.environ.get(_THREADS) or "1",
        # Of the JVM that only makes the command line of the other one.
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS") or LIGHT,
    }
    if files_are_shared(master):  # nobody else has to reach this session
        wanted["SPARK_LOCAL_IP"] = LOOPBACK
    else:  # executors are sent what the home has not
        wanted[_ZIPS] = os.environ.get(_ZIPS) or ",".join(map(str, zips()))
    unwanted = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE", "PYSPARK_PIN_THREAD")
    before = {key: os.environ.get(key) for key in (*wanted, *unwanted)}
    os.environ.update(wanted)
    for key in unwanted:
        os.environ.pop(key, None)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def _interrupt_handler_kept() -> Iterator[None]:
    """PySpark puts a SIGINT handler of its own over the process's; what Ctrl-C means here is not for it to say."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _open_log(path: Path) -> Iterator[BinaryIO]:
    try:
        log = path.open("ab")
    except OSError as error:
        raise SparkUnavailable(f"Spark's log {path} cannot be written ({error})") from error
    with log:
        yield log


def _reason(log_path: Path, error: Exception) -> str:
    """The line that says why, among all that Java prints before it gives up."""
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception).partition("\n")[0]
    lines = [line.strip() for line in log_path.read_text(errors="replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", *_JAVA_EPILOGUE))]
    telling = [line for line in lines if "Exception" in line or "Error" in line]
    return (telling or lines or [str(error)])[-1]


def _jvm_runs(gateway: Any) -> bool:
    return cast("subprocess.Popen[bytes]", gateway.proc).poll() is None


def _end_jvm(gateway: Any) -> None:
    """The JVM ends when its standard input does."""
    process = cast("subprocess.Popen[bytes]", gateway.proc)
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    wait_or_kill(process, _JVM_EXIT_TIMEOUT_S)


def _forget_session() -> None:
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def _forget_gateway() -> None:
    """PySpark keeps the gateway for the life of the process; the next session needs one that is alive."""
    SparkContext._gateway = None
    SparkContext._jvm = None
