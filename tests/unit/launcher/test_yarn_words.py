"""Words for YARN and from YARN: how ends are told, command lines and variables quoted, logs cut out of their pages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scribengin.dataflow.config import load_config
from scribengin.errors import ConfigInvalid
from scribengin.launcher.yarn.application_master.container import OVER_MEMORY
from scribengin.launcher.yarn.application_master.exits import exit_of
from scribengin.launcher.yarn.client.applications import tag_of
from scribengin.launcher.yarn.client.node_web import contents
from scribengin.launcher.yarn.config import YarnConfig
from scribengin.launcher.yarn.launching import CONFIGURATION, ENVIRONMENT, LOGIN, Kit, command_line, escaped, kit_of
from scribengin.operations.submit.shipping import secrets_in_the_clear

FLOW = {
    "name": "a",
    "sources": {"s": {"kind": "log", "logs": "a"}},
    "sinks": {"o": {"kind": "log", "log": "o"}},
    "sql": "SELECT * FROM s",
}
PHYSICAL = (
    "Container [pid=1] is running 9MB beyond the 'PHYSICAL' memory limit. Current usage: 137.4 MB of 128 MB physical "
    "memory used; 1 GB of 2 GB virtual memory used. Killing container."
)
FAILED = """Exception from container-launch.
Exit code: 127
Last 4096 bytes of prelaunch.err :
Last 4096 bytes of stderr :
a warning
could not be started: No such file or directory: '/no/such'
"""


OVER = """[2026-11-22 20:48:03.361]Container exited with a non-zero exit code 96. Error file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
Last 4096 bytes of stderr :
[2026-11-22 20:48:03.300]INFO a line of the program's own
held 150 MiB of memory, and container.memory_mb is 128: give it more, or less to do

"""
CLEANED_UP = """
[2026-11-22 20:48:03.369]Exception when trying to cleanup container container_1_0004_01_000009: \
java.io.FileNotFoundException: /local/nmPrivate/container_1_0004_01_000009.pid (No such file or directory)
	at java.base/java.io.FileInputStream.open0(Native Method)
	at java.base/java.lang.Thread.run(Thread.java:840)

"""


@pytest.mark.parametrize(
    ("status", "words", "killing", "kind", "code", "reason"),
    [
        (0, "", False, "exited", 0, "exit code 0"),
        (7, "", False, "exited", 7, "exit code 7"),
        (127, FAILED, False, "exited", 127, "could not be started: No such file or directory: '/no/such'"),
        (128 + signal.SIGKILL, "", False, "exited", -signal.SIGKILL, "ended by SIGKILL"),
        (128 + signal.SIGTERM, "", True, "exited", -signal.SIGTERM, "ended by SIGTERM"),
        (
            -104,
            PHYSICAL,
            False,
            "memory",
            -signal.SIGKILL,
            "ended by YARN: it held 137.4 MB of the 128 MB that it may, and container.memory_mb is 128: give it more",
        ),
        (
            -104,
            "",
            False,
            "memory",
            -signal.SIGKILL,
            "it held more memory than it may, and container",
        ),
        (
            -103,
            PHYSICAL,
            False,
            "memory",
            -signal.SIGKILL,
            "ended by YARN: it had 1 GB of the 2 GB of virtual memory that it may, and container.memory_mb is 128",
        ),
        (
            OVER_MEMORY,
            "Last 4096 bytes of stderr :\nheld 150 MiB of memory, and container.memory_mb is 128: give it more",
            False,
            "memory",
            -signal.SIGKILL,
            "held 150 MiB of memory, and container.memory_mb is 128",
        ),
        (OVER_MEMORY, OVER, False, "memory", -signal.SIGKILL, "held 150 MiB of memory, and container.memory_mb is 128"),
        (OVER_MEMORY, OVER + CLEANED_UP, False, "memory", -signal.SIGKILL, "held 150 MiB of memory, and container"),
        (127, f"{FAILED}{CLEANED_UP}", False, "exited", 127, "could not be started: No such file or directory"),
        (OVER_MEMORY, "", False, "exited", OVER_MEMORY, "exit code 96"),
        (-105, "Container killed by the ApplicationMaster.", True, "killed", -signal.SIGKILL, "the launcher"),
        (-103, "", False, "memory", -signal.SIGKILL, "ended by YARN: it had more virtual memory than it may, and"),
        (-102, "Container preempted by scheduler", False, "killed", None, "preempted"),
        (-100, "Container released on a *lost* node", True, "lost", None, "lost* node"),
        (-100, "Container released by application", True, "killed", None, "by the launcher"),
        (-1000, "localizer failed:\n no such file", False, "lost", None, "localizer failed: no such file"),
    ],
)
def test_an_end_is_told_in_the_contracts_words(
    status: int, words: str, killing: bool, kind: str, code: int | None, reason: str
) -> None:
    how = exit_of(status, words, 128, killing=killing)
    assert (how.kind, how.code) == (kind, code)
    assert reason in how.reason


@pytest.mark.parametrize(
    "word", ["plain", "two words", "it's", 'a "b"', "$HOME `date` \\", "{{PWD}} <LOG_DIR>", "å\nb"]
)
def test_a_word_arrives_as_it_was_through_both_shells(word: str, tmp_path: Path) -> None:
    """YARN puts the line between double quotes of one shell, and replaces names in it."""
    line = command_line([sys.executable, "-c", "import sys; print(sys.argv[1], end='')", word], sys.executable)
    line = line.replace("{{PWD}}", "replaced").replace("<LOG_DIR>", str(tmp_path))
    script = f'exec /bin/bash -c "{line}"'
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, env={"PATH": os.environ["PATH"]})
    assert (tmp_path / "stdout").read_text() == word
    assert (tmp_path / "stderr").read_text() == ""


@pytest.mark.parametrize("value", ['a "quoted" $word', "`date`", "back\\slash", "plain"])
def test_a_variable_arrives_as_it_was(value: str) -> None:
    script = f'export HELD="{escaped(value)}"; printf %s "$HELD"'
    assert subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout == value


@pytest.mark.parametrize(
    ("page", "log"),
    [
        (b"Container: c\nLogContents:\nEnd of LogType:stdout.\n***\n", b""),
        (b"Container: c\nLogContents:\n1 2\n\nEnd of LogType:stdout.This log file belongs to a running", b"1 2\n"),
        (b"LogLength:4\nLogContents:\na\nEnd of LogType:x\nb\n\nEnd of LogType:stderr.\n", b"a\nEnd of LogType:x\nb\n"),
        (b"<html>not found</html>", b""),
    ],
)
def test_the_log_is_cut_out_of_its_page(page: bytes, log: bytes) -> None:
    assert contents(page) == log


def test_a_kit_travels_whole_and_says_which_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/here/only")
    archived = YarnConfig.model_validate({"python": {"archive": "hdfs:///env.tar.gz"}, "environment": {"A": "b"}})
    kit = kit_of(archived, {CONFIGURATION: "hdfs:///conf.zip"})
    assert Kit.decoded(kit.encoded()) == kit
    assert kit.python == f"{ENVIRONMENT}/bin/python"
    assert kit.files == {CONFIGURATION: "hdfs:///conf.zip", ENVIRONMENT: "hdfs:///env.tar.gz"}
    assert kit.variables["HADOOP_CONF_DIR"] == "{{PWD}}/hadoop-conf"
    assert kit.variables["A"] == "b"
    assert "PYTHONPATH" not in kit.variables
    here = kit_of(YarnConfig(), {})
    assert (here.python, here.variables["PYTHONPATH"]) == (sys.executable, "/here/only")


def test_a_variable_that_is_a_reference_is_resolved_by_the_process_that_is_launched(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("Grüße $HOME '\"\n", encoding="utf-8")
    environment = {"DB_PASSWORD": "${file:password}", "DB_URL": "db://${env:DB_USER}@h", "PLAIN": "$A ${B}"}
    kit = kit_of(YarnConfig(environment=environment), {})
    assert {name: kit.variables[name] for name in environment} == environment, "YARN is told no secret"
    program = tmp_path / "program.py"
    shown = "print([os.environ.get(n) for n in ('DB_PASSWORD', 'DB_URL', 'PLAIN', 'SCRIBENGIN_REFERRING')])"
    program.write_text(
        f"import os\nfrom scribengin.base.process.lifetime import run_process\nrun_process(lambda _: {shown} or 0)\n"
    )
    command = [sys.executable, str(program)]
    variables = {**os.environ, **kit.variables, "DB_USER": "ada"}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == f"{['Grüße $HOME ' + chr(39) + chr(34), 'db://ada@h', '$A ${B}', None]}\n"
    (tmp_path / "password").unlink()
    ended = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "${file:password} cannot be read" in ended.stderr
    assert "REFERRING" not in kit_of(YarnConfig(environment={"A": "b"}), {}).encoded()


def test_secrets_that_the_registry_and_yarn_would_show_are_told() -> None:
    environment = {"DB_PASSWORD": "hunter2", "DB_PASS": "${file:a}", "TOKEN": "${env:A}b", "HOME_DIR": "/a"}
    spark = {"conf": {"spark.hadoop.fs.s3a.secret.key": "hunter2", "spark.app.id": "7"}}
    flow = load_config({**FLOW, "launcher": "yarn", "yarn": {"environment": environment}, "spark": spark})
    assert sorted(secrets_in_the_clear(flow)) == [
        "spark.conf.spark.hadoop.fs.s3a.secret.key",
        "yarn.environment.DB_PASSWORD",
        "yarn.environment.TOKEN",
    ]


def test_registries_and_names_do_not_share_a_tag() -> None:
    tags = {tag_of("a:1", "flow"), tag_of("a:1/b", "flow"), tag_of("a:1", "flow2")}
    assert len(tags) == 3
    assert all(tag == tag.lower() and len(tag) < 100 for tag in tags)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"python": {"path": "/p", "archive": "hdfs:///a"}}, "one of yarn.python.path"),
        ({"python": {"path": "python3"}}, "not absolute"),
        ({"python": {"archive": "/env.tar.gz"}}, "no URL"),
        ({"environment": {"A-B": "c"}}, "'A-B' is no name"),
        ({"files": {"package": "/x"}}, "'package' cannot be the name"),
        ({"files": {"a/b": "/x"}}, "'a/b' cannot be the name"),
        ({"security": {"keytab": "/k"}}, "goes with yarn.security.principal"),
        ({"quue": "x"}, "unknown key 'quue'"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(value: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        YarnConfig.parse(value, source="yarn")


def test_the_registrys_user_is_in_no_launch_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIBENGIN_REGISTRY_AUTH", "ada:secret")
    kit = kit_of(YarnConfig(), {LOGIN: "hdfs:///staging/registry-login-1"})
    assert "secret" not in str(kit.variables)
    assert kit.variables["SCRIBENGIN_REGISTRY_AUTH"] == "${file:{{PWD}}/registry-login}"
    assert escaped(kit.variables["SCRIBENGIN_REGISTRY_AUTH"]) == r"\${file:{{PWD}}/registry-login}", "YARN fills in PWD"
    monkeypatch.setenv("SCRIBENGIN_REGISTRY_AUTH", "${file:/etc/login}")
    assert kit_of(YarnConfig(), {}).variables["SCRIBENGIN_REGISTRY_AUTH"] == "${file:/etc/login}"
