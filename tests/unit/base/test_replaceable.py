"""What a written file may take the place of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scribengin.base.process.private import replaceable
from scribengin.errors import ConfigInvalid
from scribengin.operations.registry.backup import back_up
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin_tools.logs.dump import write_records


def test_a_pipe_or_a_device_is_refused_and_stays(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with MemoryEnsemble().connect() as registry:
        for place in (pipe, link, tmp_path):
            for write in (lambda to: back_up(registry, to), lambda to: write_records(iter(()), "text", to)):
                with pytest.raises(ConfigInvalid, match=f"^{place} is there, and is no file"):
                    write(place)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_what_a_link_names_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    assert replaceable(link) == file, "it may come into being"
    file.write_text("before")
    write_records(iter(()), "text", link)
    assert link.is_symlink()
    assert file.read_text() == ""
