"""What processes say: for people as it is, for programs one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from scribengin.base import diagnostics as saying
from scribengin.base.diagnostics import about, complain, say, speak_as


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    yield
    speak_as()


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(saying.FORMAT_VARIABLE, "json")


def test_for_people_it_is_the_message_and_trouble_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    speak_as(dataflow="hot", worker="worker-1")
    say("worker_ready", "worker-1 is ready", task="task-0")
    complain("task_trouble", "task-0: the disk is full")
    out, err = capsys.readouterr()
    assert (out.partition(" ")[2], err.partition(" ")[2]) == ("worker-1 is ready\n", "task-0: the disk is full\n")


@pytest.mark.usefixtures("as_json")
def test_for_programs_a_line_says_who_and_about_what(capsys: pytest.CaptureFixture[str]) -> None:
    speak_as(dataflow="hot", worker="worker-1")
    with about(task="task-0", round=7), about(round=8):
        say("records_skipped", "two\nlines ü", skipped=2)
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    found = json.loads(out)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "event": "records_skipped", "message": "two\nlines ü", "dataflow": "hot", "worker": "worker-1",
        "task": "task-0", "round": 8, "skipped": 2,
    }  # fmt: skip


@pytest.mark.usefixtures("as_json")
def test_an_error_brings_its_traceback_in_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("poison")
    except ValueError as error:
        complain("task_trouble", "it hurts", error=error)
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["traceback"].endswith("ValueError: poison\n")


@pytest.mark.usefixtures("as_json")
def test_what_one_thread_is_about_is_no_business_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    with about(task="task-0"):
        other = threading.Thread(target=lambda: say("worker_leaves", "bye"))
        other.start()
        other.join()
    assert "task" not in json.loads(capsys.readouterr().out)


def test_a_line_for_people_begins_with_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    say("worker_ready", "ready")
    time, _, message = capsys.readouterr().out.partition(" ")
    assert datetime.fromisoformat(time).tzinfo is not None
    assert message == "ready\n"


@pytest.mark.parametrize("form", ["", "json"])
def test_a_full_disk_under_the_log_is_nobodys_trouble_and_what_was_lost_is_counted(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(saying.FORMAT_VARIABLE, form)
    with Path("/dev/full").open("w") as full, pytest.MonkeyPatch.context() as streams:
        streams.setattr(sys, "stdout", full)
        streams.setattr(sys, "stderr", full)
        for _ in range(3):
            say("task_taken_over", "x" * 100)
            complain("task_trouble", "y" * 10_000, error=ValueError("z"))
        streams.undo()
        with contextlib.suppress(OSError):
            full.close()
    say("task_taken_over", "there is room again")
    first, second = capsys.readouterr().out.splitlines()
    assert "6 lines could not be said" in first
    assert "there is room again" in second


def test_a_stream_that_is_closed_is_nobodys_trouble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = (tmp_path / "closed").open("w")
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    say("worker_ready", "nobody hears it")
    monkeypatch.undo()
    say("worker_ready", "and this takes the count along")


@pytest.mark.parametrize("form", ["", "json"])
def test_half_a_character_is_said_as_far_as_it_can_be(
    form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(saying.FORMAT_VARIABLE, form)
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        monkeypatch.setattr(sys, "stdout", log)
        say("file_read", "of a file called \udcff", name="\udcff")
        monkeypatch.undo()
    assert "\\udcff" in (tmp_path / "log").read_text()
