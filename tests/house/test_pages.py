"""What people read: the README is short, every block of every page is run by a test, and prose is plain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house import prose
from tests.house.pages import (
    OUTPUT,
    PAGE_TESTS,
    RUNNABLE,
    SHOWN,
    Block,
    blocks_of,
    pages,
    parse_blocks,
    runnable_blocks,
    without_blocks,
)
from tests.house.tree import ROOT, expect_none, functions, python_files, shipped_files

README_LINES_MAX = 150
TROUBLESHOOTING = "docs/guide/troubleshooting.md"
EXCUSED = ("deploy/",)
"""Pages for operators of clusters: a block without a language only shows something."""
MORE_PROSE = ("SECURITY.md", "CHANGELOG.md", "tests/README.md")
"""Pages without blocks to run, whose prose is to be as plain."""

WORDS_OF_OURS = (
    "rounds?",
    "DLSN",
    "commit logs?",
    "narrow",
    "epoch",
    "fence[ds]?",
    "isolating",
    "staged",
    "incarnation",
)
"""Words with a meaning of their own here. `generation` and `checkpoint` are others' words as well."""


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES_MAX


def test_every_page_with_blocks_to_run_is_run_by_a_test() -> None:
    expect_none(page for page in pages() if runnable_blocks(page) and page not in PAGE_TESTS)


def test_every_page_that_a_test_claims_has_blocks_and_the_test_exists() -> None:
    tests = {
        f"{file.path}::{function.name.replace('.', '::')}" for file in python_files() for function in functions(file)
    }
    with_blocks = {page for page in pages() if runnable_blocks(page)}
    expect_none(page for page, test in PAGE_TESTS.items() if page not in with_blocks or test not in tests)


def test_every_block_says_whether_it_is_run_or_shown() -> None:
    blocks = [block for page in _ours() for block in blocks_of(page)]
    expect_none(f"{block.place} {block.language}" for block in blocks if block.language not in RUNNABLE | SHOWN)


def test_what_a_block_prints_is_shown_behind_one_that_prints() -> None:
    """Else nothing compares the two."""
    for page in pages():
        before: Block | None = None
        for block in blocks_of(page):
            prints = before is not None and before.language in RUNNABLE and not before.is_file
            assert block.title != OUTPUT or (block.language == "text" and prints), block.place
            before = block


def test_lines_of_prose_are_short() -> None:
    expect_none(_wrong(prose.long_lines))


def test_sentences_are_short() -> None:
    expect_none(_wrong(prose.long_sentences))


def test_a_page_with_words_of_ours_links_to_the_glossary() -> None:
    words = re.compile(rf"\b(?:{'|'.join(WORDS_OF_OURS)})\b", re.IGNORECASE)
    expect_none(
        page
        for page in _ours()
        if page.startswith(("README.md", "docs/")) and not page.startswith("docs/internals/")
        if words.search(without_blocks(text := (ROOT / page).read_text(encoding="utf-8")))
        if not re.search(r"\]\([\w/.]*internals/glossary\.md\)", text)
    )


def test_blocks_are_found_with_their_language_title_text_and_line() -> None:
    markdown = (
        'text\n\n```bash title="First terminal"\nls\n```\n\n  ~~~Python\nprint()\n```\n~~~\n````yaml title="a.yaml"'
        "\n```\na: 1\n````\n"
    )
    assert parse_blocks(markdown, "p.md") == [
        Block("bash", "First terminal", "ls\n", 3, "p.md"),
        Block("python", "", "print()\n```\n", 7, "p.md"),
        Block("yaml", "a.yaml", "```\na: 1\n", 11, "p.md"),
    ]
    assert [block.is_file for block in parse_blocks(markdown, "p.md")] == [False, False, True]


def test_an_unclosed_block_runs_to_the_end() -> None:
    assert parse_blocks("```\na\nb", "p.md") == [Block("", "", "a\nb\n", 1, "p.md")]


def test_a_text_without_its_blocks_keeps_its_lines() -> None:
    assert without_blocks("a\n```bash\nls\n```\nb\n```\n```\nc") == "a\n\n\n\nb\n\n\nc"


@pytest.mark.parametrize(
    ("text", "lines", "sentences"),
    [
        ("short and plain.", 0, 0),
        (f"{'long ' * 26}\n", 1, 1),
        (f"{'long ' * 25}\n", 1, 0),
        (f"{'a b ' * 6}\n{'c d ' * 7}\n", 0, 1),
        (f"- {'a b ' * 7}\n- {'c d ' * 7}\n", 0, 0),
        (f"{'a ' * 20}end. {'b ' * 20}end.", 0, 0),
        (f"| {'cell ' * 30}|\n", 0, 0),
        (f"```text\n{'block ' * 30}\n```\n", 0, 0),
        (f"{'a ' * 20}`one word of code` and [three words here](with/a/link.md)", 0, 0),
    ],
)
def test_the_rules_of_prose_see_what_they_should(text: str, lines: int, sentences: int) -> None:
    assert (len(prose.long_lines(text)), len(prose.long_sentences(text))) == (lines, sentences)


def texts_said(tree: ast.Module) -> Iterator[str]:
    """All texts but docstrings."""
    documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
            yield node.value


def test_symptoms_are_what_commands_say() -> None:
    """A first cell in backticks is looked for as it stands; `...` is what differs from case to case."""
    said = [text for file in shipped_files() for text in texts_said(file.tree)]
    text = (ROOT / TROUBLESHOOTING).read_text(encoding="utf-8")
    symptoms = re.findall(r"^\| (?:state )?`([^`]+)`", text, re.MULTILINE)
    parts = [(symptom, part.strip()) for symptom in symptoms for part in symptom.split("...")]
    assert len(symptoms) > 20
    expect_none(f"nothing says '{symptom}'" for symptom, part in parts if not any(part in text for text in said))


def _ours() -> list[str]:
    return [page for page in pages() if not page.startswith(EXCUSED)]


def _wrong(rule: object) -> list[str]:
    assert callable(rule)
    read = [*pages(), *MORE_PROSE]
    return [f"{page}:{line}" for page in read for line in rule((ROOT / page).read_text(encoding="utf-8"))]
