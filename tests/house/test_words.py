"""One name for one thing: what was renamed does not come back, and a public class has a name of its own."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.house.tree import ROOT, expect_none, shipped_files, text_files

OLD_WORDS = (
    *("TaskOwnership", "OwnedTask", "ConfigNumbers", "numbers_of", "CountedConfig", "unsettled"),
    *("Decider", "decider", "decided_by", "open_decider", "deciding_stream", "deciding sink", "deciding system"),
    *("Judgement", "commit_log_judge", "Staff", "staff", "Telling", "Chore", "ChoreDone", "chore", "chores"),
    *("LogSurvey", "SegmentAudit", "Upkeep", "upkeep", "upkeep_failure", "HeldBy", "hold_back", "let_go", "let-go"),
    *("held_back", "CARRIED", "rests_on", "Tap", "Lanes", "Recipe", "Drain", "United", "TraceDescriptor", "Traces"),
    *("DataflowPicture", "TaskPicture", "WorkerPicture", "LagPicture", "ChainPicture", "WebOperator"),
    *("next_lease", "first_lease", "leases", "survey", "speak_as", "Owned", "Judge", "Lane", "Sight", "Edited"),
    *("Resources", "Operator", "Owner", "Trace"),
)
"""Names that things of ours once had."""
_WORD = re.compile(r"(?<![\w-])(" + "|".join(map(re.escape, OLD_WORDS)) + r")(?![\w-])")


def old_words(text: str) -> Iterator[tuple[int, str]]:
    """The line and the word."""
    for number, line in enumerate(text.splitlines(), 1):
        yield from ((number, found[1]) for found in _WORD.finditer(line))


def test_what_was_renamed_does_not_come_back() -> None:
    told = ("CHANGELOG.md", "tests/house/test_words.py")
    expect_none(
        f"{path.relative_to(ROOT)}:{line} says '{word}'"
        for path in text_files()
        if path.suffix in (".py", ".md", ".yaml") and str(path.relative_to(ROOT)) not in told
        for line, word in old_words(path.read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("line", ["a chore", "`let-go NAME`", "self.decider.name", "the deciding sink's"])
def test_an_old_word_is_seen(line: str) -> None:
    assert len(list(old_words(line))) == 1


@pytest.mark.parametrize("line", ["ashore", "let-gone", "undecider", "DrainAll", "pull-let-go"])
def test_a_longer_word_is_another(line: str) -> None:
    assert list(old_words(line)) == []


def test_a_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for file in shipped_files():
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{file.path}:{node.lineno}")
    expect_none(f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1)
