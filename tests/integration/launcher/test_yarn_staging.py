"""The staging directory on a real HDFS: uploaded once, whole, by any number of submissions at once."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scribengin_dev.servers.hadoop.yarn import YarnServers
from tests.integration.launcher.answering import Program

_PROGRAM = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from scribengin.errors import LauncherError
from scribengin.base.jvm import java, yarn_configuration
from scribengin.launcher.yarn.shipping.staging import Staging

configuration = yarn_configuration()
system = java("org.apache.hadoop.fs.FileSystem").get(configuration)

def status(url):
    return system.getFileStatus(java("org.apache.hadoop.fs.Path")(url))

for line in sys.stdin:
    url, place, code = json.loads(line)
    names = {**globals(), "staging": Staging(configuration, url), "file": Path(place)}
    exec(code, names)
    print(json.dumps(names["told"]), flush=True)
"""
_MANY = """
with ThreadPoolExecutor(8) as pool:
    urls = set(pool.map(lambda _: staging.put(file, "content-1"), range(8)))
found = status(urls.pop())
told = {"urls": len(urls), "names": [f.name for f in staging.files()], "size": int(found.getLen()),
                  "mode": str(found.getPermission().toString()), "folder":
                  str(status(staging.url).getPermission().toString())}
"""
_AGAIN = """
url = staging.put(file, "content-1")
before = status(url)
file.unlink()
again = staging.put(file, "content-1")
after = status(url)
told = {"same": again == url, "written_again": int(before.getModificationTime()) !=
                  int(after.getModificationTime()), "used_later":
                  int(after.getAccessTime()) >= int(before.getModificationTime())}
"""
_CLEAN = """
kept, gone = (staging.put(file, name) for name in ("kept", "gone"))
young = [f.name for days in (1.0, float("inf")) for f in staging.clean(days)]
old = [f.name for f in staging.clean(0.0, [kept])]
told = {"young": young, "old": old, "left": [f.url for f in staging.files()] == [kept],
                  "found": [staging.find(name) is not None for name in ("kept", "gone")]}
"""
_FAIL = """
try:
    staging.put(file, "never")
except LauncherError as error:
    told = {"error": str(error), "names": [f.name for f in staging.files()]}
"""


class Shelf:
    """A staging directory of a test's own, and a file to upload."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program = program
        self._url = f"/staging-{uuid.uuid4().hex}"
        self.file = folder / "file"
        self.file.write_bytes(b"content" * 100_000)

    def run(self, code: str) -> Any:
        """Run a program on it; what it has told."""
        return self._program.ask([self._url, str(self.file), code])


@pytest.fixture(scope="module")
def program(yarn: YarnServers) -> Iterator[Program]:
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "HADOOP_CONF_DIR": str(yarn.conf_directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started = Program(process)
    yield started
    started.end()


@pytest.fixture
def shelf(program: Program, tmp_path: Path) -> Shelf:
    return Shelf(program, tmp_path)


def test_any_number_at_once_leave_one_whole_file_that_is_theirs_alone(shelf: Shelf) -> None:
    size = shelf.file.stat().st_size
    assert shelf.run(_MANY) == {
        "urls": 0, "names": ["content-1"], "size": size, "mode": "rw-------", "folder": "rwx------",
    }  # fmt: skip


def test_what_is_there_is_not_uploaded_again_and_yarn_sees_no_change(shelf: Shelf) -> None:
    assert shelf.run(_AGAIN) == {"same": True, "written_again": False, "used_later": True}


def test_only_what_is_old_and_named_by_nobody_is_deleted(shelf: Shelf) -> None:
    assert shelf.run(_CLEAN) == {"young": [], "old": ["gone"], "left": True, "found": [True, False]}


def test_an_upload_that_fails_leaves_nothing(shelf: Shelf) -> None:
    shelf.file.unlink()
    failed = shelf.run(_FAIL)
    assert "cannot be uploaded to hdfs://" in failed["error"]
    assert failed["names"] == []
