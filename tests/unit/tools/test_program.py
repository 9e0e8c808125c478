"""Ctrl-C while a program is still importing: it ends at once, without a traceback, whatever a module makes of it."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin_tools.cli import main as cli
from scribengin_tools.rendering import field_docs

PROGRAMS = ("scribengin_tools", "scribengin_dev.demo", "scribengin_dev.soak", "scribengin_dev.bench")
OUTPUT_FULL = "scribengin: the output cannot be written: No space left on device; make room, or send it elsewhere\n"
INTERRUPTED = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    [None for _ in range(1000)]  # it has arrived by now
except KeyboardInterrupt:
    pass
"""


def run(folder: Path, program: str, *arguments: str, before: Callable[[], object] | None = None) -> tuple[int, str]:
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-m", program, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        preexec_fn=before,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupt_that_a_module_would_swallow_ends_the_program(tmp_path: Path, program: str) -> None:
    (tmp_path / "typer.py").write_text(INTERRUPTED)
    assert run(tmp_path, program) == (-signal.SIGINT, "")


def test_what_was_started_to_ignore_interrupts_goes_on_ignoring_them(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ended = run(tmp_path, "scribengin_tools", "--help", before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert ended == (0, "")


@pytest.mark.parametrize("arguments", [("schema",), ("--version",), ("--help",)])
def test_an_output_for_which_there_is_no_room_is_one_line(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "scribengin_tools", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (1, OUTPUT_FULL)


def closed(*streams: int) -> Callable[[], None]:
    """What a shell does for `<&-`, `>&-` and `2>&-`."""

    def close() -> None:
        for stream in streams:
            os.close(stream)

    return close


def run_closed(streams: tuple[int, ...], *arguments: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        preexec_fn=closed(*streams),
        env={name: value for name, value in os.environ.items() if name != "SCRIBENGIN_REGISTRY"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("streams", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize(("arguments", "code"), [(("--version",), 0), (("list",), 2)])
def test_a_command_ends_as_ever_where_a_stream_is_closed(
    streams: tuple[int, ...], arguments: tuple[str, ...], code: int
) -> None:
    usual = run_closed((), "-m", "scribengin_tools", *arguments)
    assert usual[0] == code
    found = run_closed(streams, "-m", "scribengin_tools", *arguments)
    said = ["" if stream in streams else usual[stream] for stream in (1, 2)]
    assert found == (code, *said), "what is said on one is not said on the other"


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """Whoever writes to the stream by its number, as libraries and child processes do, would write into it."""
    (tmp_path / "opens.py").write_text(
        "def main():\n    with open('numbers', 'w') as file:\n        print(file.fileno() > 2, file=file)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", "from scribengin_tools.cli.program import run_program; run_program('opens')"],
        preexec_fn=closed(0, 1, 2),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        timeout=120,
        check=False,
    )
    assert (ended.returncode, (tmp_path / "numbers").read_text()) == (0, "True\n")


def test_the_name_of_a_file_that_is_no_text_is_written_out(tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text("import sys\ndef main():\n    print(sys.argv[1])\n")
    ended = subprocess.run(
        [sys.executable, "-c", "from scribengin_tools.cli.program import run_program; run_program('says')", b"\xe9"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"\\udce9\n", b"")


class FullOutput(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def fail_for_room(filename: str | None) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", filename)


@pytest.mark.parametrize(("filename", "named"), [("/tmp/mine/x", "/tmp/mine/x"), (None, "a file")])
def test_a_file_for_which_there_is_no_room_is_not_called_the_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, filename: str | None, named: str
) -> None:
    monkeypatch.setattr(field_docs, "described_schema", lambda _model: fail_for_room(filename))
    line = f"scribengin: {named} cannot be written: No space left on device; make room\n"
    assert cli.run(["schema"]) == 1
    assert capsys.readouterr() == ("", line)
    assert cli.run(["schema", "-v"]) == 1
    err = capsys.readouterr().err
    assert (err.startswith("Traceback"), "in fail_for_room" in err, err.endswith(line)) == (True, True, True)


def test_what_the_machine_does_not_allow_is_no_bug_of_ours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_model: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/theirs/x")

    monkeypatch.setattr(field_docs, "described_schema", refuse)
    assert cli.run(["schema"]) == 1
    line = "scribengin: /theirs/x cannot be used: Permission denied; make that possible, or name another place\n"
    assert capsys.readouterr() == ("", line)


def test_a_sandbox_whose_directory_cannot_be_made_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert cli.run(["sandbox", "--dir", str(tmp_path / "file" / "sandbox")]) == 2
    assert capsys.readouterr().err == (
        f"scribengin: the sandbox's directory {tmp_path}/file/sandbox cannot be made ({tmp_path}/file: File exists); "
        "name another one (--dir)\n"
    )


def test_an_output_without_room_is_told_from_files_and_stays_in_its_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = FullOutput()
    monkeypatch.setattr(cli, "_forget_stdout", lambda: None)  # it has no file
    monkeypatch.setattr(sys, "stdout", full)
    assert cli.run(["schema"]) == 1
    assert sys.stdout is full
    assert capsys.readouterr().err == OUTPUT_FULL
    assert cli.run(["schema", "-v"]) == 1
    assert capsys.readouterr().err.startswith("Traceback")
