"""A dataflow as the specification of a skein application: plain values, made without skein.

The dataflow's master is the service `master`, one instance, which skein starts again when it dies. Workers are
instances of the service `worker`, which the master adds and kills; each is told what to run in SCRIBENGIN_PROGRAM. What
a process prints, and the exit code of a worker, stand beside skein's own logs: `stdout`, `stderr`, `exit`.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import Any

from scribengin.base.jvm import LIGHT
from scribengin.errors import ConfigInvalid
from scribengin.launcher.contract import ContainerRequest
from scribengin.launcher.yarn.client.applications import tag_of
from scribengin.launcher.yarn.config import YarnConfig
from scribengin.launcher.yarn.launching import ARCHIVE, Kit, escaped, quoted

MASTER, WORKER = "master", "worker"
PROGRAM_VARIABLE = "SCRIBENGIN_PROGRAM"
"""Set by Scribengin: what a worker's container of skein runs, words for a shell."""
PYTHON_VARIABLE = "SCRIBENGIN_PYTHON"
"""Set by Scribengin: by it a master on skein learns which Python workers have."""
EXIT_LOG = "exit"
"""The log file with a worker's exit code: skein says no more than that something failed."""

_BEGINNING = 'mkdir -p tmp\nlogs="${LOG_DIRS%%,*}"\n'
_OUTPUT = '>"$logs/stdout" 2>"$logs/stderr"'
# A signal is the program's business, which ends what is below it: until then YARN must not see this shell end.
# The code takes the place of blanks (`<>` cuts nothing off): on a disk that is full by then, it needs no room.
_WORKER_SCRIPT = f"""{_BEGINNING}trap : TERM
echo '   ' >"$logs/{EXIT_LOG}"
eval "${PROGRAM_VARIABLE}" {_OUTPUT}
code=$?
printf '%3d\\n' $code 1<>"$logs/{EXIT_LOG}"
exit $code
"""


@dataclass(frozen=True, slots=True)
class WorkerSize:
    """What a worker's container gets. It stays for the application's life."""

    memory_mb: int
    cores: int


def application_spec(yarn: YarnConfig, kit: Kit, master: ContainerRequest, worker: WorkerSize) -> dict[str, Any]:
    """What `skein.ApplicationSpec.from_dict` takes. Raises ConfigInvalid: skein has no such thing."""
    for name in ("priority", "attempts_window_s"):
        if getattr(yarn, name) != YarnConfig.model_fields[name].default:
            raise ConfigInvalid(f"yarn.{name} is not for launcher: skein, which cannot say it: take it out")
    output = shlex.join([kit.python if word == sys.executable else word for word in master.argv])
    spec: dict[str, Any] = {
        "name": master.dataflow,
        "tags": ["scribengin", tag_of(master.registry, master.dataflow)],
        "max_attempts": yarn.attempts,
        "master": {"env": {"JDK_JAVA_OPTIONS": LIGHT}},
        "services": {
            MASTER: {
                "instances": 1,
                "max_restarts": yarn.attempts,
                **_container(kit, master.memory_mb, master.cores, {**master.env, PYTHON_VARIABLE: kit.python}),
                "script": f"{_BEGINNING}exec {output} {_OUTPUT}\n",
            },
            WORKER: {  # one that fails is the master's business: neither skein's to restart, nor the application's end
                "instances": 0,
                "max_restarts": 0,
                "allow_failures": True,
                **_container(kit, worker.memory_mb, worker.cores, {}),
                "script": _WORKER_SCRIPT,
            },
        },
    }
    if yarn.queue is not None:
        spec["queue"] = yarn.queue
    if yarn.node_label is not None:
        spec["node_label"] = yarn.node_label
    return spec


def program_words(argv: list[str]) -> str:
    """A command line for PROGRAM_VARIABLE: safe from the shell that evaluates it, and from YARN."""
    return escaped(" ".join(map(quoted, argv)))


def _container(kit: Kit, memory_mb: int, cores: int, env: dict[str, str]) -> dict[str, Any]:
    return {
        "resources": {"memory": f"{memory_mb} MiB", "vcores": cores},
        "files": {name: _file(url) for name, url in kit.files.items()},
        "env": {name: escaped(value) for name, value in {**kit.variables, **env}.items()},
    }


def _file(url: str) -> dict[str, str]:
    return {"source": url, "type": "archive" if ARCHIVE.search(url) else "file"}
