"""One name for one thing: what was renamed does not come back, and a public class has a name of its own."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.house.tree import ROOT, SourceFile, expect_none, parse, shipped_files, text_files

OLD_WORDS = (
    *("TaskOwnership", "OwnedTask", "ConfigNumbers", "numbers_of", "CountedConfig", "unsettled"),
    *("Decider", "decider", "decided_by", "open_decider", "deciding_stream", "deciding sink", "deciding system"),
    *("Judgement", "commit_log_judge", "Staff", "staff", "Telling", "Chore", "ChoreDone", "chore", "chores"),
    *("LogSurvey", "SegmentAudit", "Upkeep", "upkeep", "upkeep_failure", "HeldBy", "hold_back", "let_go", "let-go"),
    *("held_back", "CARRIED", "rests_on", "Tap", "Lanes", "Recipe", "Drain", "United", "TraceDescriptor", "Traces"),
    *("DataflowPicture", "TaskPicture", "WorkerPicture", "LagPicture", "ChainPicture", "WebOperator"),
    *("next_lease", "first_lease", "leases", "survey", "speak_as", "Owned", "Judge", "Lane", "Sight", "Edited"),
    *("Resources", "Operator", "Owner", "Trace", "traces", "Lanes", "recipe", "filestore"),
    *("_judged", "EntryEdge", "KafkaCluster", "PartitionTap", "SegmentAuditor"),
)
"""Names that things of ours once had. A leading underscore makes no difference."""
OLD_CLASSES = (
    *("Standing", "Look", "Looks", "Ends", "Tap", "Cluster", "Place", "Run", "Gate", "Seen", "Output", "Measured"),
    *("Reader", "Worker", "Sight"),
)
"""Names that public classes of ours once had, and that mean other things elsewhere, in prose above all."""
OLD_FUNCTIONS = ("effect", "complain", "about", "speak_as", "answered", "judge", "settle", "look", "picture", "audit")
"""The same of functions that a module offers."""
_WORD = re.compile(r"(?<![\w-])_*(" + "|".join(map(re.escape, OLD_WORDS)) + r")(?![\w-])")


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


def old_names(file: SourceFile) -> list[str]:
    """Public classes of a file, and functions that it offers, that have a name from before."""
    return [
        f"{file.path}:{node.lineno} {node.name}"
        for node in file.tree.body
        if (isinstance(node, ast.ClassDef) and node.name in OLD_CLASSES)
        or (isinstance(node, ast.FunctionDef) and node.name in OLD_FUNCTIONS)
    ]


def test_a_name_that_is_a_word_elsewhere_is_given_to_nothing_again() -> None:
    expect_none(line for file in shipped_files() for line in old_names(file))
    again = parse("class Tap: ...\nclass _Run: ...\ndef settle(): ...\nclass A:\n def look(self): ...\n")
    assert [line.split()[1] for line in old_names(again)] == ["Tap", "settle"]


@pytest.mark.parametrize("line", ["a chore", "`let-go NAME`", "self.decider.name", "the deciding sink's", "x._let_go"])
def test_an_old_word_is_seen(line: str) -> None:
    assert len(list(old_words(line))) == 1


@pytest.mark.parametrize("line", ["ashore", "let-gone", "undecider", "DrainAll", "pull-let-go"])
def test_a_longer_word_is_another(line: str) -> None:
    assert list(old_words(line)) == []


WORDS = (
    *("generation", "epoch", "incarnation", "session", "commit log", "round", "staged", "prepared", "committed"),
    *("complete", "transaction coordinator", "checkpoint", "snapshot", "overview", "placement", "slot", "worker pool"),
    *("job", "config in force", "edit", "retention hold", "truncation", "tail", "side column", "endpoint", "failpoint"),
    *(
        "container record",
        "dataflow",
        "chain",
        "master",
        "worker",
        "executor",
        "task",
        "stream",
        "segment",
        "namespace",
    ),
)
"""Words that mean one thing here, and not what others may think."""


def test_the_glossary_has_the_words_in_their_order_and_names_what_there_is() -> None:
    page = (ROOT / "docs" / "internals" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| (.+) \|$", page, re.MULTILINE)[1:]
    words = [word for word, _ in rows]
    assert set(WORDS) - set(words) == set()
    assert words == sorted(words, key=str.lower)
    names = {name for _, meaning in rows for name in re.findall(r"`([A-Za-z_]{3,})`", meaning)}
    code = "\n".join(file.text for file in shipped_files())
    expect_none(sorted(name for name in names if not re.search(rf"\b{name}\b", code)))


def test_a_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for file in shipped_files():
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{file.path}:{node.lineno}")
    expect_none(f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1)
