"""A DataNode that dies under files that are being written: an error soon, and the next file is written."""

from __future__ import annotations

from contextlib import suppress

import pytest

from scribengin.errors import SystemUnreachable
from scribengin.filesystems import hdfs
from scribengin.filesystems.paths import durable_file_system
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.hadoop.hdfs import HdfsServers

FILES = 4
DATA = b"x" * 300_000


def test_open_files_of_a_dead_data_node_are_given_up_and_new_ones_are_written(
    own_hdfs: HdfsServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, folder = durable_file_system(f"{own_hdfs.url}/staged")
    files.make_directories(folder)
    opened = [files.create(f"{folder}/{number}") for number in range(FILES)]
    for number, file in enumerate(opened):
        file.append(DATA)
        if number % 2:
            file.sync()
    monkeypatch.setattr(hdfs, "ANSWER_S", 10.0)  # what came before had to be answered
    own_hdfs.kill_data_node(0)
    for file in opened:
        with suppress(SystemUnreachable):
            file.append(DATA)
            file.sync()
        file.close()
    tried = 0

    def another_is_written() -> bool:
        nonlocal tried
        tried += 1
        with suppress(SystemUnreachable):
            file = files.create(f"{folder}/again-{tried}")
            file.append(DATA)
            file.sync()
            file.close()
            return files.size(f"{folder}/again-{tried}") == len(DATA)
        return False

    wait_until(another_is_written, 180, "a file on the other DataNode")
