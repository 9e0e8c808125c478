"""The command line without any server: help, mistakes on the command line, exit codes, what a bug looks like."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from scribengin.errors import ConfigInvalid, TransformationFailed
from scribengin_tools.cli import main as cli
from scribengin_tools.cli.options import overrides
from scribengin_tools.rendering.text import age, byte_count, print_error
from tests.processes import Process


@pytest.fixture(autouse=True)
def _no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCRIBENGIN_REGISTRY", raising=False)


def _paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from _paths(below, (*path, name))


COMMANDS = list(_paths(typer.main.get_command(cli.app)))


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_the_commands_are_those_that_the_readme_lists() -> None:
    top = {path[0] for path in COMMANDS if path}
    assert top == {
        "sandbox", "explain", "submit", "start", "list", "status", "history", "monitor", "stop", "kill", "delete",
        "revive", "release-holds", "logs", "schema", "log", "dafka", "registry", "yarn",

        "config", "scale", "state", "rebalance", "pause", "resume", "restart", "rewind", "verify", "web", "proxy",
    }  # fmt: skip
    dafka = {path[1] for path in COMMANDS if len(path) == 2 and path[0] == "dafka"}
    assert dafka == {"tower", "store", "write", "read", "perf", "keys"}
    assert {path[1] for path in COMMANDS if len(path) == 2 and path[0] == "log"} == {
        "create", "list", "info", "write", "read", "tail", "delete", "dump", "inspect", "verify", "count", "dlsn",
        "bind", "watch", "configure", "readers", "truncate", "purge", "compress", "offload", "seal", "recover", "copy",
        "bench", "repair",
    }  # fmt: skip


def test_unit_files_run_commands_that_there_are_with_variables_that_there_are() -> None:
    root = Path(__file__).parents[3]
    variables = (root / "docs" / "reference" / "environment.md").read_text()
    lines = [line for unit in (root / "deploy" / "systemd").glob("*.service") for line in unit.read_text().splitlines()]
    starts = [line.partition("=")[2].split()[1:] for line in lines if line.startswith("ExecStart=")]
    assert starts
    assert all(tuple(words) in COMMANDS for words in starts), starts
    named = [line.split("=")[1] for line in lines if line.startswith("Environment=")]
    assert named
    assert [name for name in named if f"| `{name}` |" not in variables] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*path, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["--help"])
    assert " ".join(capsys.readouterr().out.split()).count(cli.EXIT_CODES) == 1


def test_help_imports_neither_spark_nor_arrow_nor_the_registry_client() -> None:
    code = (
        "import sys\nfrom scribengin_tools.cli import main as cli\nfor path in ([], ['status'], ['log', 'read']):\n"
        "    assert cli.run([*path, '--help']) == 0\n"
        "print(sorted({'pyspark', 'pyarrow', 'kazoo', 'pandas', 'psutil'} & set(sys.modules)))"
    )
    assert python(code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["staus"], "'staus'"),
        (["status"], "NAME"),
        (["status", "x", "--colour"], "--colour"),
        (["log", "read", "x", "-n", "0"], "'-n'"),
        (["log", "read", "x", "-n", "many"], "valid integer"),
        (["sandbox", "--port", "99999"], "--port"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_code_2(
    line: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(line) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("scribengin: ")
    assert err.count("\n") == 1
    assert named in err
    assert "--help" in err


def test_a_registry_whose_host_nothing_is_called_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["list", "--registry", "zk1..x:2181"]) == 2
    assert capsys.readouterr() == (
        "",
        "scribengin: 'zk1..x:2181' does not name a registry (no host is called 'zk1..x'): write "
        "host:port,host:port/path\n",
    )


READERS = [["list"], ["status", "x"], ["history", "x"], ["logs", "x"], ["log", "list"], ["registry", "tree"]]
CHANGERS = [
    ["stop", "x"],
    ["kill", "x"],
    ["release-holds", "x"],
    ["delete", "x"],
    ["start", "x"],
    ["log", "create", "x"],
    ["log", "write", "x"],
]


@pytest.mark.parametrize("line", [*READERS, *CHANGERS], ids=" ".join)
def test_without_a_registry_a_command_says_how_to_give_one(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(line) == 2
    err = capsys.readouterr().err
    assert err.startswith("scribengin: no registry was given: set SCRIBENGIN_REGISTRY or pass --registry")
    assert err.count("\n") == 1


def test_verbose_may_stand_anywhere_but_behind_two_dashes() -> None:
    assert cli.without_verbose(["status", "x", "-v"]) == (["status", "x"], True)
    assert cli.without_verbose(["--verbose", "list"]) == (["list"], True)
    assert cli.without_verbose(["log", "write", "x", "--", "-v"]) == (["log", "write", "x", "--", "-v"], False)


def test_an_error_shows_its_traceback_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["list"])
    assert "Traceback" not in capsys.readouterr().err
    cli.run(["list", "-v"])
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("scribengin: no registry was given")


def test_a_bug_is_one_line_that_names_the_file_with_its_traceback() -> None:
    code = (
        "import sys\nfrom scribengin_tools.cli import main as cli\n"
        "def bug(): raise ValueError('two and two are five')\n"
        "cli.app.command('bug')(bug)\nsys.argv = ['scribengin', *sys.argv[1:]]\ncli.main()"
    )
    done = python(code, "bug")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "two and two are five" in done.stderr
    report = done.stderr.split("traceback is in ")[1].split(";")[0]
    with open(report) as file:
        assert "in bug" in file.read()
    assert "Traceback" in python(code, "bug", "-v").stderr


def test_ctrl_c_ends_with_130_and_says_nothing() -> None:
    code = (
        "import sys\nfrom scribengin_tools.cli import main as cli\n"
        "def interrupted(): raise KeyboardInterrupt\n"
        "cli.app.command('interrupted')(interrupted)\nsys.argv = ['scribengin', 'interrupted']\ncli.main()"
    )
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_reader_who_has_had_enough_is_no_error() -> None:
    code = (
        "import os, sys\nfrom scribengin_tools.cli import main as cli\n"
        "def talk():\n    for number in range(100_000): print(number)\n"
        "cli.app.command('talk')(talk)\nsys.argv = ['scribengin', 'talk']\ncli.main()"
    )
    with Process([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as talker:
        assert talker.stdout is not None
        assert talker.stderr is not None
        assert talker.stdout.readline() == b"0\n"
        talker.stdout.close()
        assert talker.stderr.read() == b""
    assert talker.returncode == 0


def test_the_schema_is_json_schema_of_a_descriptor(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"name", "sources", "sinks"} <= set(schema["required"])
    assert schema["additionalProperties"] is False


def test_overrides_are_pairs_of_dotted_keys_and_yaml() -> None:
    assert overrides(["sinks.out.path=/a=b", "workers=2"]) == {"sinks.out.path": "/a=b", "workers": "2"}
    for wrong in ("workers", "=2", ""):
        with pytest.raises(ConfigInvalid, match="KEY=VALUE"):
            overrides([wrong])


def test_a_users_traceback_comes_before_the_line_that_sums_it_up(capsys: pytest.CaptureFixture[str]) -> None:
    failure = TransformationFailed("Traceback (most recent call last):\n  at theirs\nValueError: no", reason="no")
    print_error(str(failure))
    assert capsys.readouterr().err == ("Traceback (most recent call last):\n  at theirs\nscribengin: ValueError: no\n")


def test_sizes_and_ages_are_short() -> None:
    assert [byte_count(n) for n in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert [age(1, 1 + ms) for ms in (0, 90_000, 180_000, 7_200_000)] == ["0 s", "90 s", "3 min", "2 h"]
    assert age(None, 5) == "-"
