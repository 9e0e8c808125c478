"""A process that has a JVM ends as it wants to, whoever is in Java just then, and does end. Its options can be set."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from scribengin.base.jvm import OPTIONS_VARIABLE

_IN_JAVA = """
import sys, threading
from scribengin.base.jvm import java, start_jvm

start_jvm()
sleep = java("java.lang.Thread").sleep
begun = threading.Event()

def come_and_go():
    while True:
        sleep(1)
        begun.set()

for _ in range(3):
    threading.Thread(target=come_and_go, daemon=True).start()
if not begun.wait(100):
    sys.exit("no thread has come back from Java")
sys.exit(int(sys.argv[1]))
"""
_COLLECTS = """
import sys, threading
from scribengin.base.jvm import java, start_jvm

start_jvm()
invoke = "java.lang.invoke."
nothing = java(f"{invoke}MethodType").methodType(java("java.lang.Void").TYPE)
found = java(f"{invoke}MethodHandles").publicLookup().findStatic(java("java.lang.System").class_, "gc", nothing)
collect = java(f"{invoke}MethodHandleProxies").asInterfaceInstance(java("java.lang.Runnable").class_, found)
again_and_again = java("java.util.concurrent.Executors").newScheduledThreadPool(1)
again_and_again.scheduleWithFixedDelay(collect, 0, 1, java("java.util.concurrent.TimeUnit").MILLISECONDS)
beans = java("java.lang.management.ManagementFactory").getGarbageCollectorMXBeans()
while sum(int(bean.getCollectionCount()) for bean in beans) < 5:
    pass
sys.exit(7)
"""
_NAMES_THREADS = """
from scribengin.base.jvm import java, start_jvm

start_jvm()
print(*(thread.getName() for thread in java("java.lang.Thread").getAllStackTraces().keySet()), sep="\\n")
"""
_AT_THE_END = """
import atexit, sys
from scribengin.base.jvm import start_jvm

atexit.register(exec, sys.argv[2], {})  # before the JVM's own, and so it runs after that
start_jvm()
exec(sys.argv[1])
"""
_ABORTS = 'import ctypes; ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev()'
_HANGS = "import threading; threading.Event().wait()"
_NOT_LONG = "from scribengin.base import jvm; jvm._END_MAX_S = 1"
_NO_LIBRARY = """
import ctypes, sys
found = ctypes.CDLL
def missing(name):
    if name == "libstdc++.so.6":
        raise OSError("libstdc++.so.6: cannot open shared object file")
    return found(name)
ctypes.CDLL = missing
sys.exit(7)
"""
_NO_FILES_LEFT = """
import ctypes, resource, sys
from scribengin.base import jvm

ctypes.CDLL("libstdc++.so.6")  # it is there already where a JVM runs
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
jvm._let_threads_wait()
sys.exit(7)
"""
_OPTIONS = """
from scribengin.base.jvm import java, start_jvm

start_jvm()
print(java("java.lang.System").getProperty("said"), java("java.lang.Runtime").getRuntime().maxMemory() >> 20)
"""


def ended(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    settings = {**os.environ, **environment}
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=300)


def test_what_is_set_for_the_jvm_goes_before_what_we_say() -> None:
    done = ended(_OPTIONS, **{OPTIONS_VARIABLE: "-Dsaid=this -Xms400m -Xmx400m -Xmn100m"})
    assert (done.returncode, done.stderr) == (0, "")
    said, heap_mb = done.stdout.split()
    assert said == "this"
    assert int(heap_mb) > 300, "ours is 160 MB"


@pytest.mark.parametrize("code", [0, 7])
def test_threads_that_are_in_java_do_not_change_the_exit_status(code: int) -> None:
    done = ended(_IN_JAVA, str(code))
    assert done.returncode == code, done.stderr


def test_a_collection_of_javas_does_not_change_the_exit_status() -> None:
    done = ended(_COLLECTS)
    assert done.returncode == 7, done.stderr


def test_no_thread_of_javas_has_python_search_for_garbage() -> None:
    done = ended(_NAMES_THREADS)
    threads = done.stdout.splitlines()
    assert "main" in threads, done
    assert not [name for name in threads if "Python" in name]


def test_what_c_aborts_in_the_thread_that_ends_the_process_is_aborted() -> None:
    done = ended(_AT_THE_END, "", _ABORTS)
    assert done.returncode == -signal.SIGABRT, done.stderr


def test_an_end_that_hangs_is_ended() -> None:
    done = ended(_AT_THE_END, _NOT_LONG, _HANGS)
    assert done.returncode == -signal.SIGALRM, done.stderr


def test_a_system_without_that_library_ends_without_a_word() -> None:
    done = ended(_AT_THE_END, _NO_LIBRARY, "")
    assert (done.returncode, done.stderr) == (7, "")


def test_an_end_at_the_limit_of_open_files_keeps_its_exit_status() -> None:
    done = ended(_NO_FILES_LEFT)
    assert (done.returncode, done.stderr) == (7, "")
