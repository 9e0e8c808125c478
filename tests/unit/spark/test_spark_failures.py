"""What a chain of Java exceptions is taken for: their code or data, or Spark's own trouble."""

from __future__ import annotations

import pytest

from scribengin.errors import SparkUnavailable, TransformationFailed
from scribengin.spark.session.failures import Cause, cause_of
from scribengin.spark.worker_errors import WORKER_TROUBLE

TRACEBACK = """Traceback (most recent call last):
  File "/home/me/flow.py", line 8, in parse
    return int(text)
           ^^^^^^^^^
ValueError: invalid literal
  with an indented second line"""


def python_exception(text: str) -> Cause:
    words = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
    return Cause("PythonException", f"{words}{text}\n SQLSTATE: 38000")


def test_a_traceback_of_theirs_is_the_message() -> None:
    resolved = cause_of(
        [Cause("SparkException", "Job aborted"), python_exception(TRACEBACK.rpartition("\n")[0])], "running"
    )
    assert isinstance(resolved, TransformationFailed)
    assert str(resolved).startswith("Traceback (most recent call last):\n  File")
    assert str(resolved).endswith("ValueError: invalid literal")
    assert resolved.reason == "ValueError: invalid literal"


@pytest.mark.parametrize("name", WORKER_TROUBLE)
def test_trouble_with_reading_and_writing_is_not_theirs(name: str) -> None:
    text = f'Traceback (most recent call last):\n  File "x.py", line 1, in read\n{name}: OSError: no space left'
    resolved = cause_of([python_exception(text)], "running")
    assert isinstance(resolved, SparkUnavailable)
    assert str(resolved) == "a Python worker failed while running: OSError: no space left"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\n1/0", "[DIVIDE_BY_ZERO] Division by zero."),
        ("[USER_RAISED_EXCEPTION] too old SQLSTATE: P0001", "too old"),
        ("[EXPECT.MORE] a named error", "[EXPECT.MORE] a named error"),
        ("[A_COLUMN] it is not there. SQLSTATE: 42703; line 1 pos 7;", "[A_COLUMN] it is not there. line 1 pos 7"),
        ("[A_WORD] at 'x'. SQLSTATE: 42601 (line 1, pos 6)", "[A_WORD] at 'x'. (line 1, pos 6)"),
    ],
)
def test_a_named_error_of_spark_is_theirs(message: str, reason: str) -> None:
    resolved = cause_of(
        [Cause("SparkException", "Exception thrown in awaitResult: "), Cause("SparkX", message)], "running"
    )
    assert isinstance(resolved, TransformationFailed)
    assert resolved.reason == reason


def test_malformed_json_says_what_the_parser_saw() -> None:
    chain = [
        Cause("SparkException", "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records [null]."),
        Cause("JsonEOFException", "Unexpected end-of-input\n at [Source]"),
    ]
    resolved = cause_of(chain, "running")
    assert isinstance(resolved, TransformationFailed)
    assert resolved.reason == "malformed JSON: Unexpected end-of-input"


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        ([], "JVM went away"),
        ([Cause("SparkException", "Job 3 cancelled because SparkContext was shut down")], "was shut down"),
        ([Cause("SparkException", "[INTERNAL_ERROR] boom SQLSTATE: XX000")], "INTERNAL_ERROR"),
        ([Cause("SparkException", "Job aborted"), Cause("IOException", "No space left on device")], "No space left"),
        ([Cause("SparkException", "x"), Cause("OutOfMemoryError", "Java heap space")], "out of memory"),
    ],
)
def test_everything_else_says_nothing_about_records(chain: list[Cause], said: str) -> None:
    resolved = cause_of(chain, "running")
    assert isinstance(resolved, SparkUnavailable)
    assert said in str(resolved)
