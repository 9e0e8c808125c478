"""tools/dev.py: the parts that decide, its command line, and that Ctrl-C ends it and what it started."""

from __future__ import annotations

import ast
import importlib.util
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest

from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.hadoop.yarn import PASSED_ON
from tests.house.tree import ROOT

DEV = ROOT / "tools" / "dev.py"

DRIVER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("dev", sys.argv[1])
dev = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dev)
dev.set_up = lambda _extras: None
dev.COMMANDS["child"] = lambda arguments: dev.run([sys.executable, "-c", *arguments])
sys.exit(dev.main(["child", *sys.argv[2:]]))
"""
CHILD = """
import pathlib, sys, threading
try:
    pathlib.Path(sys.argv[1]).touch()
    while True:  # a signal that came just before a wait without end would not end it
        threading.Event().wait(0.1)
except KeyboardInterrupt:
    pathlib.Path(sys.argv[2]).write_text("cleaned up")
"""


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", DEV)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_containers_of_a_test_cluster_carry_the_marks_of_the_run_that_started_it(dev: ModuleType) -> None:
    """A NodeManager starts them in sessions of their own, and they outlive it: nobody would find them."""
    assert {dev.RUN_VARIABLE, dev.PATIENCE_VARIABLE} <= set(PASSED_ON)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25-ea"', 25),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", 0),
    ],
)
def test_the_major_version_of_java_is_read(dev: ModuleType, text: str, major: int) -> None:
    assert dev.parse_java_major(text) == major


def test_no_java_is_found_where_there_is_none_that_is_new_enough(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'java version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert dev.find_java() is None
    old.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    assert dev.find_java() == (str(old), 17)


def test_each_kind_of_test_run_leaves_out_what_it_says(dev: ModuleType) -> None:
    every_run = ["-m", "not full", "--durations=15", "-k", "dlsn", *dev.SIDE_BY_SIDE]
    assert dev.pytest_arguments("", ["-k", "dlsn"]) == (every_run, True)
    full, everything = dev.pytest_arguments("--full", ["--full", "-x"])
    assert (full[0], "-m" in full, everything) == ("--durations=15", False, True)
    assert dev.pytest_arguments("", ["tests/house"]) == (["-m", "not full", "--durations=15", "tests/house"], False)
    fast, everything = dev.pytest_arguments("--fast", ["--fast"])
    assert fast[:2] == ["-m", "not spark and not servers and not long and not full"]
    assert "tests/house" in fast
    assert "tests/integration" not in fast
    assert not everything
    assert dev.pytest_arguments("--fast", ["--fast", "tests/house"])[0][3:] == ["tests/house"]


@pytest.mark.parametrize("code", [0, 1, 2, 5])
def test_the_code_of_the_tests_is_pytests(dev: ModuleType, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(dev, "run", lambda command, folder: 0 if "compileall" in command else code)
    monkeypatch.setattr(dev, "prepared_meanwhile", nullcontext)
    assert dev.run_tests([]) == code


@pytest.mark.parametrize(("kind", "room", "place"), [("", True, "memory"), ("--full", True, None), ("", False, None)])
def test_tests_write_to_memory_where_it_has_room(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, kind: str, room: bool, place: str | None
) -> None:
    places: list[str | None] = []

    def run(_command: list[str], folder: Path) -> int:
        places.append(os.environ.get(dev.TEMPORARY_VARIABLE))
        return 0

    monkeypatch.delenv(dev.TEMPORARY_VARIABLE, raising=False)
    monkeypatch.setattr(dev, "run", run)
    monkeypatch.setattr(dev, "prepared_meanwhile", nullcontext)
    monkeypatch.setattr(dev, "MEMORY", Path("memory"))
    monkeypatch.setattr(dev, "has_room", lambda memory: room and memory == Path("memory"))
    assert dev.run_tests([kind] if kind else []) == 0
    assert places == [None, place]  # the first compiles


def test_memory_has_room_where_it_is_large_and_can_be_written(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "MEMORY_FREE_MIN_BYTES", 4096)
    assert dev.has_room(tmp_path)
    assert not dev.has_room(tmp_path / "missing")
    monkeypatch.setattr(dev, "MEMORY_FREE_MIN_BYTES", 2**60)
    assert not dev.has_room(tmp_path)


def test_the_set_up_is_repeated_when_its_grounds_change(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("one")
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    stamp = dev.stamp_text()
    assert stamp == dev.stamp_text()
    (tmp_path / "pyproject.toml").write_text("two")
    assert dev.stamp_text() != stamp


def test_the_demo_installs_only_what_it_needs(dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []
    for name in ("STAMP", "DEMO_STAMP"):
        monkeypatch.setattr(dev, name, tmp_path / name)
    monkeypatch.setattr(dev, "SETUP_LOG", tmp_path / "log" / "setup.log")
    monkeypatch.setattr(dev, "_environment_works", lambda: True)
    monkeypatch.setattr(dev, "VENV_PYTHON", Path(sys.executable))
    monkeypatch.setattr(dev, "step", lambda _what, command: installed.append(command[-1]))
    monkeypatch.setattr(dev, "find_java", lambda: dev.Java("java", 17))
    for _ in range(2):
        dev.set_up(dev.extras_for("demo", ["--records", "5"]))
    dev.set_up(dev.extras_for("setup", []))
    assert installed == [".[demo,web]"]
    monkeypatch.setattr(dev, "find_java", lambda: None)
    dev.set_up(dev.extras_for("demo", []))
    assert installed[1:] == [".[demo,web,java]"]
    dev.set_up(dev.extras_for("demo", ["--launcher=yarn"]))
    assert installed[2:] == [".[dev,demo]"]
    for command in ("demo", "test", "lint", "bench", "soak", "cluster"):
        dev.set_up(dev.extras_for(command, []))
    assert len(installed) == 3


def test_the_set_up_alone_says_what_is_next(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "set_up", lambda _extras: None)
    assert dev.main(["setup"]) == 0
    assert "`scribengin sandbox`" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["setup", "lint", "clean"])
def test_a_command_that_takes_no_arguments_refuses_them_before_anything_is_installed(
    command: str, dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    touched: list[object] = []
    monkeypatch.setattr(dev, "set_up", touched.append)
    monkeypatch.setattr(dev, "GENERATED", ())
    monkeypatch.setattr(dev, "run", touched.append)
    assert dev.main([command, "all"]) == 2
    assert f"{command} takes no arguments, and got all" in capsys.readouterr().err
    assert touched == []


def test_a_python_that_cannot_make_environments_names_the_package_to_install(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=f"install the package python3.{sys.version_info.minor}-venv"):
        dev.make_environment()


def test_a_home_directory_that_cannot_be_used_does_not_stop_the_set_up(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "new"))
    assert dev.cache_options() == []
    monkeypatch.setenv("HOME", "/dev/null/none")
    assert dev.cache_options() == ["--no-cache-dir"]


def test_an_older_python_can_read_the_file_far_enough_to_say_so() -> None:
    tree = ast.parse(DEV.read_text(encoding="utf-8"), feature_version=(3, 7))
    check = next(
        n for n, node in enumerate(tree.body) if isinstance(node, ast.If) and "version_info" in ast.unparse(node)
    )
    assert all(isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) for node in tree.body[:check])


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0), (["tests"], 2)])
def test_a_wrong_command_line_is_refused_before_anything_is_set_up(arguments: list[str], code: int) -> None:
    ended = subprocess.run([sys.executable, str(DEV), *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert "python3 tools/dev.py" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_being_told_to_stop_ends_the_command_cleanly(tmp_path: Path, number: signal.Signals, code: int) -> None:
    running, cleaned = tmp_path / "running", tmp_path / "cleaned"
    command = [sys.executable, "-c", DRIVER, str(DEV), CHILD, str(running), str(cleaned)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(running.exists, what="the command to run")
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (code, "")
    assert cleaned.read_text() == "cleaned up"


def test_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(DEV)]
    assert subprocess.run([*command, "raise SystemExit(7)"], check=False).returncode == 7
    assert subprocess.run([*command, "import os; os.abort()"], check=False).returncode == 128 + signal.SIGABRT


def test_continuous_integration_runs_two_commands_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if line.startswith("python3")] == lines[-2:]
    assert lines[-2:] == ["python3 tools/dev.py lint", "python3 tools/dev.py test"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


TESTS_DRIVER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("dev", sys.argv[1])
dev = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dev)
dev.set_up = lambda _extras: None
dev.VENV_PYTHON = sys.executable
dev.MEANWHILE = ()  # what later tests need is fetched, and packed, for minutes: nothing of that is asked here
sys.exit(dev.main(["test", "--version", *sys.argv[2:]]))
"""
LEAVES_A_CONTAINER = """
import pathlib, subprocess, sys, threading
forever = [sys.executable, "-c", "import threading; threading.Event().wait()"]
left = subprocess.Popen(forever, start_new_session=True)
pathlib.Path(FILE).write_text(str(left.pid))
while INTERRUPTED:
    threading.Event().wait(0.1)
"""


@pytest.mark.parametrize("interrupted", [True, False])
def test_nothing_that_tests_have_started_outlives_them(tmp_path: Path, *, interrupted: bool) -> None:
    """A module called pytest stands in for pytest; it leaves a process behind as a container is: in its own session."""
    written = tmp_path / "pid"
    begin = f"FILE, INTERRUPTED = {str(written)!r}, {interrupted}\n"
    (tmp_path / "pytest.py").write_text(begin + LEAVES_A_CONTAINER)
    process = subprocess.Popen(
        [sys.executable, "-c", TESTS_DRIVER, str(DEV)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: written.exists() and written.read_text(), 120, "the child's process to run")
        if interrupted:
            process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert "processes that tests have left behind" in output
    left = int(written.read_text())
    wait_until(lambda: not Path(f"/proc/{left}/cmdline").exists() or not _runs(left), 120, "it to be gone")


def test_a_process_that_shows_no_environment_yet_is_found_by_the_next_look(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
    looks = iter([set(), {child.pid}])
    monkeypatch.setattr(dev, "_marked", lambda _word: next(looks, set()))
    try:
        assert dev.end_marked("mark") == {child.pid}
        assert child.wait(120) == -signal.SIGKILL
    finally:
        child.kill()


LEAVES_A_TREE = """
import os, pathlib, signal, subprocess, sys, threading
from scribengin.launcher.contract import ContainerRequest
from scribengin.launcher.local.launcher import LocalLauncher
child = "import threading; threading.Event().wait()"
program = (
    "import os, pathlib, subprocess, sys, threading\\n"
    f"child = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\\n"
    "pathlib.Path(sys.argv[1]).write_text(f'{os.getppid()} {os.getpid()} {child.pid}')\\n"
    "threading.Event().wait()"
)
launcher = LocalLauncher(pathlib.Path(FOLDER) / "home")
launcher.launch(ContainerRequest("zk:1", "flow", "worker-1", [sys.executable, "-c", program, FILE], 256))
while True:
    threading.Event().wait(0.1)
"""


def test_after_ctrl_c_no_process_of_a_live_container_is_left(tmp_path: Path) -> None:
    """A real one: its keeper, its program, and what that has started in a session of its own."""
    written = tmp_path / "pids"
    begin = f"FOLDER, FILE = {str(tmp_path)!r}, {str(written)!r}\n"
    (tmp_path / "pytest.py").write_text(begin + LEAVES_A_TREE)
    path = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "registry", ROOT / "tools")))
    process = subprocess.Popen(
        [sys.executable, "-c", TESTS_DRIVER, str(DEV)], env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: written.exists() and written.read_text(), 120, "the container's processes to run")
        pids = [int(pid) for pid in written.read_text().split()]
        assert [pid for pid in pids if not _runs(pid)] == []
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    finally:
        process.kill()
    wait_until(lambda: not any(map(_runs, pids)), 120, "all of them to be gone")


def _runs(pid: int) -> bool:
    """Whether it is more than what its parent has not asked for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_the_site_is_made_with_is_installed_once_and_a_broken_link_fails_it(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(dev, "DOCS_STAMP", tmp_path / "stamp")
    monkeypatch.setattr(dev, "step", lambda _what, command: ran.append(list(command)))

    def run(command: list[str], folder: Path) -> int:
        assert folder == ROOT
        ran.append(command)
        return 1

    monkeypatch.setattr(dev, "run", run)
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "")
    assert dev.docs([str(tmp_path / "site")]) == 1
    assert dev.docs([]) == 1
    installed, built, again = ran
    assert installed[-1] == ".[docs]"
    assert "--strict" in built
    assert built[-1] == str(tmp_path / "site")
    assert again[-1] == str(ROOT / "build" / "site")
    assert dev.docs(["--port"]) == 2
    assert len(ran) == 3
