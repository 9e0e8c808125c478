"""The archive of an environment: the same content makes the same bytes, and any tar reads it."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from scribengin.launcher.yarn.shipping import digests
from scribengin.launcher.yarn.shipping.archive import Entry, content_digest, write_archive
from scribengin.launcher.yarn.shipping.digests import KnownDigests


def packed(*entries: Entry) -> bytes:
    """An archive of the entries."""
    target = io.BytesIO()
    write_archive(entries, target)
    return target.getvalue()


def test_the_same_content_makes_the_same_bytes_and_the_same_name(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"content")
    other.write_bytes(b"content")
    other.chmod(0o600)
    first, second = [Entry("a", one), Entry("b", b"text")], [Entry("a", other), Entry("b", b"text")]
    assert packed(*first) == packed(*second)
    assert content_digest(first) == content_digest(second)


def test_a_name_a_mode_or_a_byte_makes_another_name() -> None:
    entries = [Entry("a", b"1"), Entry("b", b"1"), Entry("a", b"2"), Entry("a", b"1", executable=True)]
    assert len({content_digest([entry]) for entry in entries}) == len(entries)


def test_a_file_that_is_as_it_was_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, entries = tmp_path / "a", [Entry("a", tmp_path / "a")]
    file.write_bytes(b"content")
    later_ns = file.stat().st_ctime_ns + 10_000_000_000

    def digest() -> tuple[str, int]:
        known, read = KnownDigests(tmp_path / "cache" / "digests.json"), []
        with monkeypatch.context() as patch:
            patch.setattr(Entry, "open", lambda entry: read.append(entry) or entry.content.open("rb"))
            found = content_digest(entries, known)
        known.keep()
        return found, len(read)

    assert digest() == digest() == (content_digest(entries), 1), "it was changed just now"
    monkeypatch.setattr(digests.SYSTEM_CLOCK, "now_ms", lambda: later_ns // 1_000_000, raising=False)
    assert [digest() for _ in range(3)] == [(content_digest(entries), read) for read in (1, 0, 0)]
    times = file.stat()
    file.write_bytes(b"another")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert digest() == (content_digest(entries), 1), "of the same size and time"
    (tmp_path / "cache" / "digests.json").write_text('{"half": ')
    assert digest() == (content_digest(entries), 1)
    (tmp_path / "cache" / "digests.json").unlink()
    (tmp_path / "cache").rmdir()
    (tmp_path / "cache").write_text("no directory")
    assert digest() == (content_digest(entries), 1)


def test_tar_unpacks_what_compresses_and_what_does_not_across_blocks(tmp_path: Path) -> None:
    noise, zeros = random.Random(7).randbytes(9 << 20), bytes(20 << 20)
    data = packed(
        Entry("x/noise", noise), Entry("bin/run", b"#!/bin/sh\necho ran\n", executable=True), Entry("z", zeros)
    )
    assert len(noise) < len(data) < len(noise) + (1 << 20)
    (tmp_path / "a.tar.gz").write_bytes(data)
    subprocess.run(["tar", "xzf", "a.tar.gz"], cwd=tmp_path, check=True)
    assert (tmp_path / "x" / "noise").read_bytes() == noise
    assert (tmp_path / "z").read_bytes() == zeros
    assert subprocess.check_output([tmp_path / "bin" / "run"], text=True) == "ran\n"
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert {(member.uid, member.mtime) for member in tar} == {(0, 0)}
