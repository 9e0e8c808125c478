"""`scribengin web` as a command: what it prints, how it ends, what it refuses."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scribengin_registry.contract import Registry
from tests.integration import watched
from tests.integration.cli_runner import CommandLine, expect_registry_away
from tests.integration.web_client import Client


def test_it_prints_a_link_that_lets_in_and_ends_with_ctrl_c(line: CommandLine, registry: Registry) -> None:
    watched.put_three(registry)
    with line.process("web", "--port", "0") as process:
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/login#token=([\w-]{43})", link)
        assert found is not None, link
        client = Client(found[1])
        assert client.post("/login", {"token": found[2]}).status == 200
        assert client.post("/login", {"token": found[2][:-1]}).status == 401
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "", "it is read-only; --write lets people edit\n")


def test_with_a_token_file_the_token_is_not_printed(line: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a token of many characters\n")
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    with line.process("web", "--port", "0", "--token-file", str(file), "--write") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        assert Client(url).post("/login", {"token": "a token of many characters"}).status == 200
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "people can edit and scale through it\n")


def test_streams_that_are_open_do_not_hold_up_its_end(line: CommandLine, registry: Registry) -> None:
    watched.put_three(registry)
    with line.process("web", "--port", "0", "--host", "localhost") as process:
        assert process.stdout is not None
        url, _, token = process.stdout.readline().strip().partition("/login#token=")
        client = Client(url)
        client.cookie = client.post("/login", {"token": token}).headers["set-cookie"].partition(";")[0]
        with client.events() as events:
            next(events)
            process.send_signal(signal.SIGINT)
            list(events)
        assert process.wait(120) == 0


def test_bad_input_is_one_line(line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCRIBENGIN_WEB_TOKEN", raising=False)
    (tmp_path / "short").write_text("secret")
    os.chmod(tmp_path / "short", 0o600)
    (tmp_path / "long").write_text("t" * 40)
    os.chmod(tmp_path / "long", 0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, arguments in {
            f"port {port} of 127.0.0.1 is taken: --port names another one": ("--port", port),
            "--host 0.0.0.0 lets other machines in: give a token of your own": ("--host", "0.0.0.0"),
            "--host 203.0.113.9 lets other machines in": ("--host", "203.0.113.9"),
            "--host a..b is no address": ("--host", "a..b", "--token-file", str(tmp_path / "long")),
            "--host no.such.host.invalid": ("--host", "no.such.host.invalid"),
            "the token has 6 characters and needs 16": ("--token-file", str(tmp_path / "short")),
            "No such file": ("--token-file", str(tmp_path / "nowhere")),
        }.items():
            done = line("web", *arguments)
            assert (done.code, done.err.count("\n"), done.out) == (2, 1, ""), done
            assert words in done.err
    expect_registry_away(line, "web")


def test_without_its_extra_it_says_what_to_install(line: CommandLine) -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None; from scribengin_tools.cli import main; sys.exit(main.run(['web']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    words = "scribengin: `scribengin web` needs uvicorn: pip install 'scribengin[web]'\n"
    assert (done.returncode, done.stderr) == (2, words)


def test_it_answers_to_names_that_were_allowed(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIBENGIN_WEB_TOKEN", "a token of many characters")
    with line.process("web", "--port", "0", "--allow-host", "page.example") as process:
        assert process.stdout is not None
        client = Client(process.stdout.readline().strip())
        assert client.get("/login", Host="page.example").status == 200
        assert client.get("/login", Host="evil.example").status == 421
        assert client.post("/login", {"token": "a token of many characters"}, Host="page.example").status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
