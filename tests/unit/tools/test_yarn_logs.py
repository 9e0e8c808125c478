"""Following the output of containers on YARN, whose nodes only ever tell the end of a log and how long it is."""

from __future__ import annotations

import pytest

from scribengin_tools.output import yarn as yarn_logs
from scribengin_tools.output.yarn import ContainerOutput, follow_containers, print_containers


class Log:
    """A log that grows by one piece a look, of which only the last `kept` bytes are told; then Ctrl-C."""

    def __init__(self, *pieces: bytes, kept: int = 1000) -> None:
        self._pieces = list(pieces)
        self._kept = kept
        self._data = b""

    def read(self, stream: str, bytes_max: int) -> tuple[int, bytes]:
        if stream != "stdout":
            return 0, b""
        if not self._pieces:
            raise KeyboardInterrupt
        self._data += self._pieces.pop(0)
        return len(self._data), self._data[-min(bytes_max, self._kept) :]


def container(log: Log | RotatedLog) -> ContainerOutput:
    """The only one there is."""
    return ContainerOutput("worker-1", "container_1_1_01_000002", "node:1", None, log.read)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yarn_logs, "_POLL_S", 0.0)


def followed(log: Log, capsys: pytest.CaptureFixture[str], lines: int = 10) -> list[str]:
    """What is printed until the log ends."""
    with pytest.raises(KeyboardInterrupt):
        follow_containers(lambda: [container(log)], lines)
    return capsys.readouterr().out.splitlines()


def test_every_line_is_printed_once_behind_its_containers_name(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(b"a\nb\n", b"", b"c\n", b"d\ne\n")
    assert followed(log, capsys) == [f"worker-1 | {line}" for line in "abcde"]


def test_a_line_that_is_not_whole_yet_waits_for_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert followed(Log(b"a\nhal", b"f", b"\nb\n"), capsys) == ["worker-1 | a", "worker-1 | half", "worker-1 | b"]


def test_of_what_was_there_before_only_the_last_lines_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert followed(Log(b"a\nb\nc\n", b"d\n"), capsys, lines=1) == ["worker-1 | c", "worker-1 | d"]


def test_what_came_too_fast_for_the_node_to_tell_is_skipped_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(b"a\n", b"bbbb\ncc\n", b"d\n", kept=3)
    assert followed(log, capsys) == ["worker-1 | a", "worker-1 | cc", "worker-1 | d"]


class RotatedLog:
    """A log whose pieces each fill its file; an empty one is a node that does not answer."""

    def __init__(self, *pieces: tuple[bytes, bytes]) -> None:
        self._pieces = list(pieces)
        self._older = b""

    def read(self, stream: str, bytes_max: int) -> tuple[int, bytes]:
        if stream == "stdout":
            if not self._pieces:
                raise KeyboardInterrupt
            data, self._older = self._pieces.pop(0)
        else:
            data = self._older if stream == "stdout.1" else b""
        return len(data), data[-bytes_max:]


def test_what_was_said_before_a_rotation_is_told_first_and_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    log = RotatedLog((b"c\n", b"a\nb\n"), (b"c\nd\n", b"a\nb\n"), (b"", b""), (b"f\n", b"c\nd\ne\n"))
    with pytest.raises(KeyboardInterrupt):
        follow_containers(lambda: [container(log)], 2)
    assert capsys.readouterr().out.split() == [word for line in "bcdef" for word in ("worker-1", "|", line)]


def test_the_last_lines_reach_into_the_older_file(capsys: pytest.CaptureFixture[str]) -> None:
    print_containers([container(RotatedLog((b"c\n", b"a\nb\n")))], 2)
    assert capsys.readouterr().out.splitlines()[1:] == ["b", "c"]


def test_the_last_lines_stand_below_the_container_and_its_node(capsys: pytest.CaptureFixture[str]) -> None:
    print_containers([container(Log(b"a\nb\nc"))], 2)
    assert capsys.readouterr().out == "== worker-1 on node:1 (running; container_1_1_01_000002)\nb\nc\n"
