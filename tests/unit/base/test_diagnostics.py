"""The lines of a process of ours: for people as they are, for programs one JSON object each."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
from datetime import datetime
from pathlib import Path

import pytest

from scribengin.base.diagnostics import (
    FORMAT_VARIABLE,
    LineHandler,
    configure_logging,
    log_context,
    tagged,
    unconfigure_logging,
)

LOG = logging.getLogger("scribengin.worker.process")


@pytest.fixture(autouse=True)
def process() -> None:
    configure_logging()


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORMAT_VARIABLE, "json")


def test_for_people_it_is_the_message_and_trouble_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(dataflow="hot", worker="worker-1")
    LOG.info("worker-1 is ready", extra=tagged("worker_ready", task="task-0"))
    LOG.warning("task-0: the disk is full", extra=tagged("task_trouble"))
    out, err = capsys.readouterr()
    assert (out.partition(" ")[2], err.partition(" ")[2]) == ("worker-1 is ready\n", "task-0: the disk is full\n")


@pytest.mark.usefixtures("as_json")
def test_for_programs_a_line_says_who_and_about_what(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(dataflow="hot", worker="worker-1")
    with log_context(task="task-0", round=7), log_context(round=8):
        LOG.info("two\nlines ü", extra=tagged("records_skipped", skipped=2))
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
        LOG.warning("it hurts", exc_info=error, extra=tagged("task_trouble"))
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["traceback"].endswith("ValueError: poison\n")


@pytest.mark.usefixtures("as_json")
def test_what_one_thread_is_about_is_no_business_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    with log_context(task="task-0"):
        other = threading.Thread(target=lambda: LOG.info("bye"))
        other.start()
        other.join()
    assert "task" not in json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("as_json")
def test_a_line_that_names_no_event_names_its_module(capsys: pytest.CaptureFixture[str]) -> None:
    LOG.info("100 % sure")
    found = json.loads(capsys.readouterr().out)
    assert (found["event"], found["message"]) == ("scribengin.worker.process", "100 % sure")


def test_a_line_for_people_begins_with_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    LOG.info("ready")
    time, _, message = capsys.readouterr().out.partition(" ")
    assert datetime.fromisoformat(time).tzinfo is not None
    assert message == "ready\n"


def test_in_a_program_of_somebody_else_logging_is_theirs(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    unconfigure_logging()
    LOG.warning("a topic has lost records", extra=tagged("records_skipped"))
    assert capsys.readouterr() == ("", "")
    assert "a topic has lost records" in caplog.messages


@pytest.mark.parametrize("form", ["", "json"])
def test_a_full_disk_under_the_log_is_nobodys_trouble_and_what_was_lost_is_counted(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FORMAT_VARIABLE, form)
    with Path("/dev/full").open("w") as full, pytest.MonkeyPatch.context() as streams:
        streams.setattr(sys, "stdout", full)
        streams.setattr(sys, "stderr", full)
        for _ in range(3):
            LOG.info("x" * 100)
            LOG.warning("y" * 10_000, exc_info=ValueError("z"))
        streams.undo()
        with contextlib.suppress(OSError):
            full.close()
    LOG.info("there is room again")
    first, second = capsys.readouterr().out.splitlines()
    assert "6 lines could not be said" in first
    assert "there is room again" in second


def test_a_stream_that_is_closed_is_nobodys_trouble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = (tmp_path / "closed").open("w")
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    LOG.info("nobody hears it")
    monkeypatch.undo()
    LOG.info("and this takes the count along")


@pytest.mark.parametrize("form", ["", "json"])
def test_half_a_character_is_said_as_far_as_it_can_be(
    form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FORMAT_VARIABLE, form)
    record = logging.makeLogRecord(
        {"levelno": logging.INFO, "msg": "of a file called \udcff", **tagged("file_read", name="\udcff")}
    )
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        monkeypatch.setattr(sys, "stdout", log)
        LineHandler({}).emit(record)  # and not by a logger: pytest could not report what it captures
        monkeypatch.undo()
    assert "\\udcff" in (tmp_path / "log").read_text()
