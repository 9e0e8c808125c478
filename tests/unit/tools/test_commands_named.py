"""A command that a message names does to this log, in this namespace, what the message says: it can be copied."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from scribengin.base.names import log_command
from scribengin.errors import ScribenginError
from scribengin.log import LogConfig, LogNamespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_tools.logs.administration import compressed, offloaded

LOG = "a'b;c/0"


@pytest.fixture(params=["/logs", "/other"])
def namespace(request: pytest.FixtureRequest) -> Iterator[LogNamespace]:
    disk = MemoryDisk("named")
    with MemoryEnsemble().connect() as session:
        LogNamespace.bind(request.param, disk.name, registry=session, store=MEMORY_STORE)
        with LogNamespace.open(request.param, registry=session) as opened:
            opened.create(LOG)
            yield opened


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda logs: offloaded(logs, LOG), ["configure", LOG, "--set", "cold_url=URL"]),
        (lambda logs: compressed(logs, LOG, None), ["configure", LOG, "--set", "copy_codec=zstd"]),
        (lambda logs: logs.open_reader("none"), ["list"]),
    ],
)
def test_it_names_the_namespace_unless_that_is_the_usual_one(
    namespace: LogNamespace, act: Callable[[LogNamespace], object], words: list[str]
) -> None:
    with pytest.raises(ScribenginError) as told:
        act(namespace)
    (command,) = re.findall("`(.*?)`", str(told.value))
    where = [] if namespace.path == "/logs" else ["--namespace", "/other"]
    assert shlex.split(command) == ["scribengin", "log", *words, *where]


def test_a_batch_that_is_too_large_at_once_is_told_with_what_makes_the_log_take_it(namespace: LogNamespace) -> None:

    namespace.configure(LOG, LogConfig(entry_bytes_max=1024))
    batch = pa.record_batch({"payload": [bytes(1000)] * 2})
    with namespace.open_writer(LOG) as writer, pytest.raises(ScribenginError) as told:
        writer.write_atomic(batch)
    (command,) = re.findall("`(.*?)`", str(told.value))
    *_, setting = shlex.split(command)
    assert shlex.split(command)[:4] == ["scribengin", "log", "configure", LOG]
    namespace.configure(LOG, LogConfig(entry_bytes_max=int(setting.removeprefix("entry_bytes_max="))))
    with namespace.open_writer(LOG) as writer:
        writer.write_atomic(batch).result()


def test_nothing_of_a_name_is_the_shell_s() -> None:
    assert log_command("/logs", "create", "a'b;c") == "`scribengin log create 'a'\"'\"'b;c'`"
