"""The staging directory on a real HDFS: uploaded once, whole, by any number of submissions at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from scribengin_dev.servers.hadoop.yarn import YarnServers

_HEAD = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from scribengin.errors import LauncherError
from scribengin.base.jvm import java, yarn_configuration
from scribengin.launcher.yarn.shipping.staging import Staging

staging = Staging(yarn_configuration(), sys.argv[1])
file = Path(sys.argv[2])
system = java("org.apache.hadoop.fs.FileSystem").get(yarn_configuration())

def status(url):
    return system.getFileStatus(java("org.apache.hadoop.fs.Path")(url))
"""
_MANY = """
with ThreadPoolExecutor(8) as pool:
    urls = set(pool.map(lambda _: staging.put(file, "content-1"), range(8)))
found = status(urls.pop())
print(json.dumps({"urls": len(urls), "names": [f.name for f in staging.files()], "size": int(found.getLen()),
                  "mode": str(found.getPermission().toString()), "folder":
                  str(status(staging.url).getPermission().toString())}))
"""
_AGAIN = """
url = staging.put(file, "content-1")
before = status(url)
file.unlink()
again = staging.put(file, "content-1")
after = status(url)
print(json.dumps({"same": again == url, "written_again": int(before.getModificationTime()) !=
                  int(after.getModificationTime()), "used_later":
                  int(after.getAccessTime()) >= int(before.getModificationTime())}))
"""
_CLEAN = """
kept, gone = (staging.put(file, name) for name in ("kept", "gone"))
young = [f.name for days in (1.0, float("inf")) for f in staging.clean(days)]
old = [f.name for f in staging.clean(0.0, [kept])]
print(json.dumps({"young": young, "old": old, "left": [f.url for f in staging.files()] == [kept],
                  "found": [staging.find(name) is not None for name in ("kept", "gone")]}))
"""
_FAIL = """
try:
    staging.put(file, "never")
except LauncherError as error:
    print(json.dumps({"error": str(error), "names": [f.name for f in staging.files()]}))
"""


class Shelf:
    """A staging directory of a test's own, and a file to upload."""

    def __init__(self, yarn: YarnServers, folder: Path) -> None:
        self._conf = yarn.conf_directory
        self._url = f"/staging-{uuid.uuid4().hex}"
        self.file = folder / "file"
        self.file.write_bytes(b"content" * 100_000)

    def run(self, code: str) -> Any:
        """Run a program on it, in a process with a JVM of its own; the JSON that it printed."""
        done = subprocess.run(
            [sys.executable, "-c", _HEAD + code, self._url, str(self.file)],
            env={**os.environ, "HADOOP_CONF_DIR": str(self._conf)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def shelf(yarn: YarnServers, tmp_path: Path) -> Shelf:
    return Shelf(yarn, tmp_path)


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
