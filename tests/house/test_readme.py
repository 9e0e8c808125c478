"""Every block of the README that a reader would run is run by a test."""

from __future__ import annotations

from collections import Counter

from tests.house.readme import RUN_BY, Block, parse_blocks, readme_blocks
from tests.house.tree import expect_none, functions, python_files


def test_every_block_of_the_readme_is_run_by_a_test() -> None:
    unclaimed = [
        f"{b.page}:{b.line} {b.language} {b.name or '(no name)'}" for b in readme_blocks() if b.name not in RUN_BY
    ]
    expect_none(unclaimed)


def test_no_two_blocks_share_a_name() -> None:
    counts = Counter(block.name for block in readme_blocks() if block.name)
    expect_none(name for name, count in counts.items() if count > 1)


def test_every_claim_names_a_block_that_exists_and_a_test_that_exists() -> None:
    blocks = {block.name for block in readme_blocks()}
    tests = {
        f"{file.path}::{function.name.replace('.', '::')}" for file in python_files() for function in functions(file)
    }
    expect_none(name for name, test in RUN_BY.items() if name not in blocks or test not in tests)


def test_blocks_are_found_with_their_language_name_text_and_line() -> None:
    markdown = (
        "text\n\n```bash name=one\nls\n```\n\n  ~~~Python\nprint()\n```\n~~~\n````yaml name=two\n```\na: 1\n````\n"
    )
    assert parse_blocks(markdown) == [
        Block("bash", "one", "ls\n", 3),
        Block("python", "", "print()\n```\n", 7),
        Block("yaml", "two", "```\na: 1\n", 11),
    ]


def test_an_unclosed_block_runs_to_the_end() -> None:
    assert parse_blocks("```\na\nb") == [Block("", "", "a\nb\n", 1)]
