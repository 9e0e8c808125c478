"""Everything that a round or its recovery does to the outside world has a name, so that a crash test can stop there."""

from __future__ import annotations

import pytest

from tests.house.allowed import NO_EFFECT
from tests.house.failpoints import (
    failpoint_names,
    in_rooms,
    misused_failpoints,
    named_failpoints,
    outside_calls,
    repeated_failpoints,
)
from tests.house.tree import expect_none, parse, shipped_files

IMPORTS = (
    "import os, shutil\nimport pyarrow as pa\nfrom os import fsync as sync\n"
    "from scribengin.base.failpoints import failpoint\n"
)


def test_everything_done_to_the_outside_world_in_a_round_has_a_name() -> None:
    calls = [call for file in shipped_files() if in_rooms(file) for call in outside_calls(file)]
    unnamed = [call for call in calls if not call.named]
    expect_none(f"{c.place} {c.what} in {c.function}" for c in unnamed if _excuse(c.function) is None)
    used = {_excuse(call.function) for call in unnamed}
    expect_none(f"{name} is excused and does nothing unnamed" for name in NO_EFFECT if name not in used)


def test_every_failpoint_has_a_literal_name_of_its_own() -> None:
    expect_none(line for file in shipped_files() for line in misused_failpoints(file))
    expect_none(repeated_failpoints())


def test_the_names_are_sorted_and_there() -> None:
    names = failpoint_names()
    assert names == sorted(names)
    assert all(names)


@pytest.mark.parametrize("beginning", ["log.copy_", "proxy.", "kafka."])
def test_those_that_begin_so_are_found_where_few_files_are_parsed(beginning: str) -> None:
    found = failpoint_names(beginning)
    assert found
    assert found == [name for name in failpoint_names() if name.startswith(beginning)]


@pytest.mark.parametrize(
    "call",
    [
        "os.fsync(3)",
        "os.pwritev(3, [b''], 0)",
        "os.replace(a, b)",
        "sync(3)",
        "shutil.rmtree(a)",
        "os.open(a, os.O_RDWR | os.O_CREAT)",
        "os.open(a, FLAGS)",
        "os.open(a, given)",
        "open(a, 'wb')",
        "open(a, mode='r+')",
        "open(a, given)",
        "a.open('w')",
        "a.open(mode='ab')",
        "a.rename(b)",
        "a.replace(b)",
        "a.write_text('x')",
        "a.parent.mkdir(parents=True)",
        "pa.OSFile(a, 'wb')",
        "registry.commit([])",
        "self._registry.delete(a)",
        "self.view.registry.set(a, b'')",
        "self._fs.mv(a, b)",
        "fs.rm_file(a)",
        "fs.open(a, 'wb')",
        "self._handle.write(b'')",
        "self._handle.flush()",
    ],
)
def test_the_rule_sees_a_change_of_the_outside_world(call: str) -> None:
    before = f"{IMPORTS}FLAGS = os.O_WRONLY | os.O_CREAT\nclass A:\n def o(self):\n"
    before += "  with failpoint('o'):\n   self._handle = open(a, 'ab')\n"
    assert [c.named for c in outside_calls(parse(f"{before} def f(self, given):\n  {call}\n"))] == [True, False]
    inside = f"{before} def f(self, given):\n  with lock, failpoint('x'):\n   if a:\n    return {call}\n"
    assert [c.named for c in outside_calls(parse(inside))] == [True, True]


@pytest.mark.parametrize(
    "call",
    [
        "os.open(a, os.O_RDONLY)",
        "os.open(a, READING)",
        "os.pread(3, 1, 0)",
        "open(a)",
        "open(a, 'rb')",
        "open(a, encoding='utf-8')",
        "a.open()",
        "LogNamespace.open('uri')",
        "fs.open(a)",
        "fs.ls(a)",
        "registry.get(a)",
        "text.replace('a', 'b')",
        "dataclasses.replace(a, b=1)",
        "table.rename_columns(['a'])",
        "writer.write(batch)",
        "log.commit(a)",
        "futures.set(a)",
    ],
)
def test_the_rule_lets_reading_alone(call: str) -> None:
    text = f"{IMPORTS}import dataclasses\nREADING = os.O_RDONLY | os.O_CLOEXEC\ndef f():\n {call}\n"
    assert list(outside_calls(parse(text))) == []


def test_an_failpoint_names_only_what_runs_inside_its_block() -> None:
    later = f"{IMPORTS}def f():\n with failpoint('x'):\n  def g():\n   os.fsync(3)\n  return lambda: os.remove(a)\n"
    assert [call.named for call in outside_calls(parse(later))] == [False, False]
    opened_before = f"{IMPORTS}def f():\n with open(a, 'w') as out, failpoint('x'):\n  out.write('')\n"
    assert [call.named for call in outside_calls(parse(opened_before))] == [False, True]
    other = "from elsewhere import failpoint\nimport os\ndef f():\n with failpoint('x'):\n  os.fsync(3)\n"
    assert [call.named for call in outside_calls(parse(other))] == [False]


def test_a_call_is_placed_in_its_function() -> None:
    text = f"{IMPORTS}class Writer:\n    def close(self):\n        os.fsync(3)\n"
    (call,) = outside_calls(parse(text, "scribengin.log.write.writer"))
    assert (call.what, call.function, call.place) == (
        "os.fsync",
        "scribengin.log.write.writer.Writer.close",
        "example.py:7",
    )


def test_failpoints_are_found_by_name_and_their_misuse_is_seen() -> None:
    good = parse(f"{IMPORTS}def f():\n with lock, failpoint('a.b'):\n  pass\n with failpoint('a.c'):\n  pass\n")
    assert [name for name, _ in named_failpoints(good)] == ["a.b", "a.c"]
    assert misused_failpoints(good) == []
    for use in (
        "with failpoint(name): pass",
        "with failpoint('a:b'): pass",
        "with failpoint(f'a'): pass",
        "x = failpoint('a')",
    ):
        assert len(misused_failpoints(parse(f"{IMPORTS}{use}\n"))) == 1


def _excuse(function: str) -> str | None:
    """The entry of the list that covers a function: itself, its class, or its module."""
    return next((name for name in NO_EFFECT if function == name or function.startswith(f"{name}.")), None)
