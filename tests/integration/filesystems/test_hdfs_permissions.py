"""Whether a directory of HDFS can be written: the NameNode is asked, which alone knows groups, ACLs and superusers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hdfs_native import Client

from scribengin_dev.servers.hadoop.hdfs import HdfsServers

pytestmark = pytest.mark.timeout(600)
ASK = """
import sys
from scribengin.filesystems.paths import durable_file_system
files, path = durable_file_system(sys.argv[1])
print(files.unwritable(path))
"""


@pytest.fixture(scope="module")
def strict(hdfs: HdfsServers) -> HdfsServers:
    """HDFS with a directory that is its superuser's alone, and one that anybody may write."""
    client = Client(hdfs.url)
    client.mkdirs("/closed", 0o755, True)
    client.mkdirs("/open", 0o755, True)
    client.set_permission("/open", 0o777)
    return hdfs


def asked(hdfs: HdfsServers, path: str, user: str) -> str:
    """What a user of that name is told: a process of his own, for a client keeps the user it began with."""
    words = [sys.executable, "-c", ASK, f"{hdfs.url}{path}"]
    done = subprocess.run(
        words, env={**os.environ, "HADOOP_USER_NAME": user}, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.strip()


def test_who_may_not_write_there_is_told_and_nothing_is_changed(strict: HdfsServers) -> None:
    told = asked(strict, "/closed/not/yet", "stranger")
    assert told.startswith(f"{strict.url}/closed/not/yet cannot be written, for this user may not write into")
    assert f"may not write into {strict.url}/closed (" in told
    assert "user=stranger, access=WRITE" in told
    assert asked(strict, "/open/not/yet", "stranger") == "None"
    client = Client(strict.url)
    for directory in ("/closed", "/open"):
        assert list(client.list_status(directory, False)) == []


def test_what_the_mode_does_not_say_the_name_node_knows(strict: HdfsServers) -> None:
    """The superuser may write anywhere, and so may whom an ACL names."""
    superuser = Client(strict.url).get_file_info("/closed").owner
    assert asked(strict, "/closed/below", superuser) == "None"
    client = Client(strict.url)
    client.mkdirs("/shared", 0o755, True)
    assert "cannot be written" in asked(strict, "/shared", "guest")
    client.set_permission("/shared", 0o757)
    assert asked(strict, "/shared", "guest") == "None"


def test_a_file_is_no_place_for_a_directory(strict: HdfsServers) -> None:
    with Client(strict.url).create("/open/file") as file:
        file.write(b"x")
    told = asked(strict, "/open/file/below", "stranger")
    assert told.endswith(f"cannot be made, for {strict.url}/open/file is no directory")
