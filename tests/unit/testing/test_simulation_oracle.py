"""Each promise that simulations are held against: what breaks it is told, and what is only next to it is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from scribengin.base.commit_log import CommitLog
from scribengin.log import DLSN
from scribengin.testing.simulation import oracle
from scribengin.testing.simulation.oracle import Violation

_BEFORE = CommitLog(dataflow="flow", task="task-1", owner="w-1", generation=2, epoch=3, round=4, position={"offset": 5})
_AN_EARLIER_ONE = _BEFORE.model_copy(update={"epoch": 2})


def _becomes(**changes: object) -> Callable[[], None]:
    return partial(oracle.check_commit_log, "/log", _BEFORE, _BEFORE.model_copy(update=changes))


def _seen(*payloads: bytes) -> oracle.SeenRecords:
    seen = oracle.SeenRecords()
    seen.add("out", payloads)
    return seen


def _reread(*payloads: bytes) -> oracle.SeenRecords:
    """The source was read up to 2, and is read again from 1 on."""
    seen = _seen(b"in:0", b"in:1")
    seen.rewound("in", 2, 1)
    seen.add("out", payloads)
    return seen


def _between(*places: tuple[int, bytes]) -> oracle.SeenAtTheEnd:
    """What a chain's end shows of these places of the log between."""
    seen = oracle.SeenAtTheEnd()
    seen.add("end", [oracle.told_of_place(payload, "out/0", place) for place, payload in places])
    return seen


def _at_two_ends(*seen: tuple[str, bytes]) -> oracle.SeenAtSeveralEnds:
    """What is seen in logs of two ends."""
    ends = oracle.SeenAtSeveralEnds(("end", "last"))
    for log, payload in seen:
        ends.add(log, [payload])
    return ends


def _nothing_missing(seen: oracle.SeenRecords, *acknowledged: bytes) -> None:
    oracle.check_nothing_lost(seen.missing(acknowledged))


BROKEN: list[tuple[str, Callable[[], object]]] = [
    ("nothing is seen twice", lambda: _seen(b"in:0", b"in:0")),
    ("nothing is seen twice", lambda: _reread(b"in:1", b"in:1")),
    ("nothing is seen twice", lambda: _reread(b"in:0")),
    ("nothing is seen twice", lambda: _between((1, b"in:0"), (2, b"in:0"))),
    ("nothing is seen twice", lambda: _at_two_ends(("end/0", b"in:0"), ("end/1", b"in:0"))),
    ("nothing acknowledged is lost", lambda: _nothing_missing(_at_two_ends(("end/0", b"in:0")), b"in:0")),
    ("records keep their order", lambda: _seen(b"in:1", b"in:0")),
    ("records keep their order", lambda: _between((1, b"in:1"), (2, b"in:0")).check_between()),
    ("nothing acknowledged is lost", lambda: _nothing_missing(_seen(b"in:0"), b"in:0", b"in:1")),
    ("nothing acknowledged is lost", lambda: _nothing_missing(_reread(), b"in:0", b"in:1")),
    ("nothing acknowledged is lost", lambda: _nothing_missing(_between((1, b"in:0")), b"in:0", b"in:1")),
    ("nothing acknowledged is lost", lambda: oracle.check_recovered("in", 1, 2)),
    ("fenced owners change nothing", _becomes(epoch=2)),
    ("fenced owners change nothing", _becomes(owner="w-2")),
    ("fenced owners change nothing", _becomes(generation=1)),
    ("fenced owners change nothing", lambda: oracle.check_forgotten("/log", _BEFORE)),
    ("fenced owners change nothing", lambda: oracle.check_forgotten("/log", _BEFORE, _AN_EARLIER_ONE)),
    ("taking over decides nothing", _becomes(epoch=4, position={"offset": 6})),
    ("rounds go forward", _becomes(round=3)),
    ("streams are rewound as one", lambda: oracle.check_moved_together({"a"}, [{"a", "b"}])),
    ("streams are rewound as one", lambda: oracle.check_all_looked_at({"a", "b"}, {"a"})),
    ("what is staged is completed or dropped", lambda: oracle.check_nothing_staged({"out": ["w-1"]})),
    ("what is seen stays", lambda: oracle.check_extended("out", [b"in:0", b"in:1"], [b"in:0"])),
    ("what is seen stays", lambda: oracle.check_extended("out", [b"in:0"], [b"in:1", b"in:0"])),
    ("what is seen stays", lambda: oracle.check_still_there("out", [b"in:0"], [])),
    ("records stay as they are", lambda: oracle.check_written("out", [b"in:1"], [b"in:0"])),
    ("records stay as they are", lambda: _between((1, b"in:0"), (1, b"in:1"))),
    ("nothing is seen before it is committed", lambda: oracle.check_committed("out", [b"in:1"], {"in": 1})),
    ("what is stored is sound", lambda: oracle.check_sound("out", ["a hole"])),
    ("nothing is left behind", lambda: oracle.check_no_leftovers(["/lock"], [], [])),
    ("nothing is left behind", lambda: oracle.check_no_leftovers([], ["worker-1"], [])),
    ("nothing is left behind", lambda: oracle.check_no_leftovers([], [], ["worker-1"])),
    ("nothing is left behind", lambda: oracle.check_nothing_left(["/scribengin/dataflows/flow"])),
    ("another dataflow's nodes stay", lambda: oracle.check_stays("flow", ["/a", "/b"], ["/a"])),
    ("numbers are used once", lambda: oracle.check_numbers_grow("flow", {"worker": 3}, {"worker": 2})),
    ("names are used once", lambda: oracle.check_launched_once(["worker-1", "worker-1"])),
    ("threads do not die", lambda: oracle.check_no_thread_died([OSError("no")])),
    ("it goes on once faults end", lambda: oracle.check_goes_on("all is visible", 90.25, 90.0)),
    ("it ends as it was told", lambda: oracle.check_not_failed("failed", "task-0: a hole")),
    ("it ends as it was told", lambda: oracle.check_not_failed("failed", "task-0: a hole", ["too large"])),
    ("it ends as it was told", lambda: oracle.check_not_failed("failed", None, ["too large"])),
    ("it ends as it was told", lambda: oracle.check_not_failed("failed", "1: too large\n\n2: a hole", ["too large"])),
    ("it ends as it was told", lambda: oracle.check_not_failed("failed", "out: is away", ["too large"], ["is away"])),
    ("it ends as it was told", lambda: oracle.check_stopped("finished", None)),
    ("a rewind passes over what is there", lambda: oracle.check_passed_over("in/0", DLSN(1, 3, 0), DLSN(1, 2, 0))),
]

KEPT: list[Callable[[], object]] = [
    lambda: _nothing_missing(_seen(b"in:0", b"other:0", b"in:1"), b"in:0", b"in:1"),
    lambda: _nothing_missing(_reread(b"in:1", b"in:2"), b"in:0", b"in:1", b"in:2"),
    lambda: _nothing_missing(_between((1, b"in:0"), (2, b"in:1")), b"in:0", b"in:1"),
    lambda: _between((1, b"in:0"), (2, b"in:1")).check_between(),
    lambda: _nothing_missing(_at_two_ends(("end/0", b"in:0"), ("last/0", b"in:0")), b"in:0"),
    lambda: oracle.check_recovered("in", 2, 2),
    _becomes(),
    _becomes(epoch=4, owner="w-2", generation=3),
    _becomes(round=5, position={"offset": 6}),
    lambda: oracle.check_moved_together({"a", "b"}, [{"a", "b"}]),
    lambda: oracle.check_all_looked_at({"a"}, {"a", "b"}),
    lambda: oracle.check_nothing_staged({"out": []}),
    lambda: oracle.check_extended("out", [b"in:0"], [b"in:0", b"in:1"]),
    lambda: oracle.check_still_there("out", [b"in:0"], [b"in:0"]),
    lambda: oracle.check_written("out", [b"in:0"], [b"in:0", b"in:1"]),
    lambda: oracle.check_committed("out", [b"in:1"], {"in": 2}),
    lambda: oracle.check_sound("out", []),
    lambda: oracle.check_no_leftovers([], [], []),
    lambda: oracle.check_nothing_left([]),
    lambda: oracle.check_stays("flow", ["/a"], ["/a", "/b"]),
    lambda: oracle.check_numbers_grow("flow", {"worker": 3}, {"worker": 3}),
    lambda: oracle.check_launched_once(["worker-1", "worker-2"]),
    lambda: oracle.check_no_thread_died([]),
    lambda: oracle.check_goes_on("all is visible", 90.0, 90.0),
    lambda: oracle.check_not_failed("running", "task-0: a hole"),
    lambda: oracle.check_not_failed("failed", "task-0: it is too large", ["too large"]),
    lambda: oracle.check_not_failed("failed", "1: too large\n\n2: it is gone", ["too large", "gone"]),
    lambda: oracle.check_not_failed("failed", "1: too large\n\nout: is away", ["too large"], ["is away"]),
    lambda: oracle.check_forgotten("/log", _BEFORE.model_copy(update={"epoch": 0})),
    lambda: oracle.check_forgotten("/log", _BEFORE, _BEFORE),
    lambda: oracle.check_stopped("stopped", "an old word"),
    lambda: oracle.check_passed_over("in/0", DLSN(1, 2, 0), DLSN(1, 2, 0)),
]


@pytest.mark.parametrize(("promise", "act"), BROKEN, ids=[f"{n}: {case[0]}" for n, case in enumerate(BROKEN)])
def test_what_breaks_a_promise_is_told_by_its_name(promise: str, act: Callable[[], object]) -> None:
    with pytest.raises(Violation) as raised:
        act()
    assert raised.value.promise == promise


@pytest.mark.parametrize("act", KEPT)
def test_what_keeps_a_promise_passes(act: Callable[[], object]) -> None:
    act()


def test_every_promise_of_simulations_is_broken_here() -> None:
    """And none is judged but in a function of the oracle, which a test can ask."""
    here = Path(oracle.__file__)
    judged = {path.name: path.read_text() for path in here.parent.rglob("*.py")}
    named = re.findall(r'Violation\(\s*"([^"]+)"', judged.pop(here.name))
    assert {*named} == {promise for promise, _act in BROKEN}
    assert [name for name, text in judged.items() if "Violation(" in text] == []
