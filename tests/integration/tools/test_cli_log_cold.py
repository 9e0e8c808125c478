"""`scribengin log` and cold storage: segments are sent there, and shown where they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.log import LogConfig, LogNamespace
from scribengin.testing.log_samples import fill_log
from scribengin_registry.contract import Registry
from tests.integration.cli_runner import CommandLine


@pytest.fixture
def logs(line: CommandLine, registry: Registry) -> Iterator[LogNamespace]:
    """A namespace with a log `a` of three segments."""
    with LogNamespace.open("/logs", registry=registry) as opened:
        opened.create("a", LogConfig(segment_bytes_max=4096))
        fill_log(opened, "a", entries=7, rows=5)
        yield opened


def where(line: CommandLine) -> list[str]:
    """Where `log inspect` says that each segment is."""
    shown = line.ok("log", "inspect", "a").out
    assert max(map(len, shown.splitlines())) <= 80
    return [row.split()[-2] for row in shown.splitlines() if row.strip()[:1].isdigit()]


def test_inspect_shows_where_each_segment_is(line: CommandLine, logs: LogNamespace, tmp_path: Path) -> None:
    done = line("log", "offload", "a")
    assert (done.code, "no cold_url" in done.err) == (2, True)
    assert where(line) == ["hot", "hot", "hot"]
    cold = tmp_path / "cold"
    line.ok("log", "configure", "a", "--set", f"cold_url={cold}", "--set", "hot_bytes_max=5000")
    assert line.ok("log", "offload", "a").out == "a: 3 segments copied to cold storage\n"
    assert where(line) == ["both", "both", "both"]
    line.ok("log", "purge", "a")
    assert where(line) == ["cold", "cold", "both"]
    (log,) = line.ok("log", "inspect", "a", "--json").json
    assert [segment["found"]["where"] for segment in log["segments"]] == ["cold", "cold", "both"]
    files = sorted(cold.glob("*/*.log"))
    assert [segment["found"]["cold_path"] for segment in log["segments"]] == list(map(str, files))
    assert [segment["found"]["path"] for segment in log["segments"]][:2] == list(map(str, files[:2]))
    shown = line.ok("log", "inspect", "a", "--segment", "1").out.replace("\n", "").replace(" ", "")
    assert f"{files[0]},".replace(" ", "") in shown
    assert "alonesince" in shown
    files[1].unlink()
    done = line("log", "verify", "a")
    assert done.code == 1
    assert str(files[1]) in done.out.replace("\n", "").replace(" ", "")


def test_logs_are_listed_beside_one_whose_cold_storage_is_away(
    line: CommandLine, logs: LogNamespace, tmp_path: Path
) -> None:
    logs.create("b")
    line.ok("log", "configure", "a", "--set", f"cold_url={tmp_path / 'cold'}", "--set", "hot_bytes_max=0")
    line.ok("log", "offload", "a")
    line.ok("log", "purge", "a")
    line.ok("log", "truncate", "a", "--before", "1/1/0")
    (tmp_path / "cold").rename(tmp_path / "unmounted")
    done = line("log", "list")
    assert (done.code, "b " in done.out, "a is left out: " in done.err) == (1, True, True)


def test_a_log_is_inspected_whose_cold_storage_refuses(line: CommandLine, logs: LogNamespace, tmp_path: Path) -> None:
    (file := tmp_path / "no-directory").mkdir()
    line.ok("log", "configure", "a", "--set", f"cold_url={file}")
    file.rmdir()
    file.write_text("a file stands where the directory was")
    shown = line.ok("log", "inspect", "a").out
    assert [row.split()[-2] for row in shown.splitlines() if row.strip()[:1].isdigit()] == ["hot", "hot", "hot"]
    assert "nothing is wrong" not in shown
    assert f"the cold storage {file}" in shown
    assert line("log", "verify", "a").code == 1


def test_a_file_is_no_cold_storage(line: CommandLine, logs: LogNamespace, tmp_path: Path) -> None:
    (file := tmp_path / "file").write_text("no directory")
    done = line("log", "configure", "a", "--set", f"cold_url={file}")
    assert (done.code, done.out) == (2, "")
    assert f"cold_url '{file}' is a file: name a directory" in done.err
