"""What YARN is told to run in a container: a command line, variables, files."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scribengin.base import jvm
from scribengin.base.diagnostics import FORMAT_VARIABLE
from scribengin.launcher.contract import HOME_VARIABLE
from scribengin.launcher.yarn.config import YarnConfig
from scribengin_registry.opening import AUTH_VARIABLE
from scribengin_registry.references import REFERRING_VARIABLE, has_references

KIT_VARIABLE = "SCRIBENGIN_YARN_KIT"
"""Set by Scribengin: what a master on YARN gives to its workers, a `Kit` as base64 of JSON."""
ENVIRONMENT, PACKAGE, CONFIGURATION, LOGIN = "environment", "package", "hadoop-conf", "registry-login"
"""The names of the Python archive, the dataflow's package and the cluster's configuration in a container."""

ARCHIVE = re.compile(r"\.(zip|tar|tgz|tar\.gz|jar)$")
_RECORDS = "org.apache.hadoop.yarn.api.records."
_TO_LOGS = " 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"


@dataclass(frozen=True, slots=True)
class Kit:
    """What every container of a dataflow is given: `files` by name (URLs), and which `python` runs there."""

    files: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable
    variables: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> str:
        """For KIT_VARIABLE."""
        value = {"files": dict(self.files), "python": self.python, "variables": dict(self.variables)}
        return base64.b64encode(json.dumps(value).encode()).decode()

    @staticmethod
    def decoded(text: str) -> Kit:
        """What `encoded` made."""
        value = json.loads(base64.b64decode(text))
        return Kit(value["files"], value["python"], value["variables"])

    @property
    def package(self) -> str | None:
        """Where the package is in a container, relative to its working directory."""
        return PACKAGE if PACKAGE in self.files else None


@dataclass(frozen=True, slots=True)
class Program:
    """A command line for a container. An `argv[0]` that is this process's interpreter becomes the kit's.

    `tokens`: what it may identify itself with on a Kerberos cluster, as Hadoop writes credentials.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    kit: Kit
    tokens: Any = None


def kit_of(yarn: YarnConfig, files: Mapping[str, str]) -> Kit:
    """The kit of a dataflow whose files are uploaded (`yarn.files` among them) as `files`."""
    python, shared = sys.executable, dict(files)
    variables = {
        "PYTHONUTF8": "1",
        HOME_VARIABLE: "{{PWD}}/.scribengin",
        "XDG_CACHE_HOME": "{{PWD}}/.cache",
        "TMPDIR": "{{PWD}}/tmp",
    }
    if yarn.python.archive is not None:
        shared[ENVIRONMENT] = yarn.python.archive
        python = f"{ENVIRONMENT}/bin/python"
    elif yarn.python.path is not None:
        python = yarn.python.path
    if python == sys.executable:  # the nodes are set up as this machine is
        variables |= {name: os.environ[name] for name in ("PYTHONPATH", "JAVA_HOME") if os.environ.get(name)}
    if CONFIGURATION in shared:
        variables[jvm.CONF_VARIABLE] = f"{{{{PWD}}}}/{CONFIGURATION}"
    if LOGIN in shared:  # YARN tells everybody who may see the application what its variables are
        variables[AUTH_VARIABLE] = f"${{file:{{{{PWD}}}}/{LOGIN}}}"
    elif os.environ.get(AUTH_VARIABLE):
        variables[AUTH_VARIABLE] = os.environ[AUTH_VARIABLE]
    if os.environ.get(FORMAT_VARIABLE):
        variables[FORMAT_VARIABLE] = os.environ[FORMAT_VARIABLE]
    if referring := [name for name, value in yarn.environment.items() if has_references(value)]:
        variables[REFERRING_VARIABLE] = ",".join(referring)
    return Kit(shared, python, variables | yarn.environment)


def launch_context(program: Program) -> Any:
    """The same as YARN takes it. Raises what Java throws when a file of the kit is not there."""
    kit = program.kit
    resources, variables, commands = (jvm.java(f"java.util.{k}")() for k in ("HashMap", "HashMap", "ArrayList"))
    for name, url in kit.files.items():
        resources.put(name, _resource(url))
    for name, value in {**kit.variables, **program.env}.items():
        variables.put(name, escaped(value))
    commands.add(command_line(program.argv, kit.python))
    records = jvm.java(f"{_RECORDS}ContainerLaunchContext")
    return records.newInstance(resources, variables, commands, None, program.tokens, None)


def command_line(argv: Sequence[str], python: str) -> str:
    """The line for a shell, with the output going where YARN keeps logs."""
    words = [python if argv[0] == sys.executable else argv[0], *argv[1:]]
    return "mkdir -p tmp; exec " + escaped(" ".join(map(quoted, words))) + _TO_LOGS


def escaped(value: str) -> str:
    """For the script that YARN writes, which puts variables and the command line between double quotes as they are."""
    return re.sub(r'([\\"`$])', r"\\\1", value)


def quoted(word: str) -> str:
    """A word, safe from the shell, and from YARN, which replaces `{{NAME}}` and `<LOG_DIR>` wherever they stand."""
    safe = shlex.quote(word)
    return safe.replace("{{", "{''{").replace("<LOG_DIR>", "<''LOG_DIR>") if safe != word else safe


def _resource(url: str) -> Any:
    path = jvm.java("org.apache.hadoop.fs.Path")(url)
    status = path.getFileSystem(jvm.yarn_configuration()).getFileStatus(path)
    kinds, visibility = jvm.java(f"{_RECORDS}LocalResourceType"), jvm.java(f"{_RECORDS}LocalResourceVisibility")
    return jvm.java(f"{_RECORDS}LocalResource").newInstance(
        jvm.java(f"{_RECORDS}URL").fromPath(status.getPath()),
        kinds.ARCHIVE if ARCHIVE.search(url) else kinds.FILE,
        visibility.PRIVATE,  # one copy a node and user, whichever application needs it
        status.getLen(),
        status.getModificationTime(),
    )
