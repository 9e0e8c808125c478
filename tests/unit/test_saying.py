"""What processes say: for people as it is, for programs one JSON object a line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from scribengin import saying
from scribengin.saying import about, complain, say, speak_as


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
    assert capsys.readouterr() == ("worker-1 is ready\n", "task-0: the disk is full\n")


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
