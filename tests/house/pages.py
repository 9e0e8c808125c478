"""The pages that people read, their code blocks, and which test runs each page.

A reader copies the blocks of a page from top to bottom, so a test runs them in that order: `PAGE_TESTS` names it, and
it takes its blocks from `runnable_blocks`. A block's language says what becomes of it: shell and Python are run, YAML
is saved under its `title`, or, without one, has to be keys of a descriptor. `text` and the like only show something.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.house.tree import ROOT

RUNNABLE = frozenset({"bash", "python", "yaml"})
SHOWN = frozenset({"text", "json", "mermaid"})
OUTPUT = "Output"
"""The title of a `text` block that shows exactly what the block before it prints."""

_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>.*)$")
_TITLE = re.compile(r'\btitle="([^"]*)"')

TUTORIALS = (
    "analytics",
    "asyncio",
    "atomic-writes",
    "messaging",
    "replicated-state-machine",
    "rewinding",
    "stored-positions",
    "tailing",
    "transformer",
    "writer-and-readers",
)
_TUTORIALS = "tests/integration/docs/test_pages_tutorials.py::test_a_tutorial_runs_as_it_is_printed"
_LOGS = "tests/integration/docs/test_pages_logs.py::test_a_page_about_logs_runs_as_it_is_printed"
PAGE_TESTS: dict[str, str] = {
    "README.md": "tests/integration/docs/test_page_readme.py::test_the_readme_runs_as_it_is_printed",
    "deploy/yarn/README.md": "tests/integration/launcher/test_yarn_deploy.py::test_the_page_runs_as_it_is_printed",
    "docs/guide/chains.md": "tests/integration/docs/test_page_chains.py::test_chains_run_as_they_are_printed",
    "docs/guide/dafka.md": "tests/integration/docs/test_page_dafka.py::test_dafka_runs_as_it_is_printed",
    "docs/guide/dataflows.md": "tests/integration/docs/test_page_dataflows.py::test_dataflows_are_what_is_printed",
    "docs/guide/log-store.md": _LOGS,
    "docs/guide/monitoring.md": "tests/integration/docs/test_page_monitoring.py::test_watching_runs_as_it_is_printed",
    "docs/guide/notebook.md": _LOGS,
    "docs/guide/operating.md": "tests/integration/docs/test_page_operating.py::test_operating_runs_as_it_is_printed",
    "docs/guide/proxies.md": "tests/integration/docs/test_page_proxies.py::test_proxies_run_as_they_are_printed",
    "docs/guide/transformations.md": (
        "tests/integration/docs/test_page_dataflows.py::test_transformations_are_what_is_printed"
    ),
    "docs/internals/connectors.md": (
        "tests/integration/docs/test_page_connectors.py::test_a_sink_of_ones_own_is_held_against_the_contract"
    ),
    **{f"docs/tutorials/{name}.md": _TUTORIALS for name in TUTORIALS},
}
"""A page with blocks that a reader would run or save -> the test that does it, in the page's order."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: language, title ("" if it has none), text, the line of its fence, and the page."""

    language: str
    title: str
    text: str
    line: int
    page: str

    @property
    def is_file(self) -> bool:
        """Whether a reader saves it, under its title."""
        return "." in self.title

    @property
    def place(self) -> str:
        """Where it stands, for a message."""
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Every page for people, from the root of the tree."""
    found = [path for folder in ("docs", "deploy") for path in (ROOT / folder).rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *found])


def blocks_of(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    return parse_blocks(Path(ROOT, page).read_text(encoding="utf-8"), page)


def runnable_blocks(page: str) -> list[Block]:
    """Those that a reader would run or save."""
    return [block for block in blocks_of(page) if block.language in RUNNABLE]


def parse_blocks(markdown: str, page: str) -> list[Block]:
    """All fenced blocks of a Markdown text, in order. An unclosed fence runs to the end, as Markdown has it."""
    blocks: list[Block] = []
    opened: tuple[str, str, int] | None = None
    body: list[str] = []
    for number, line in enumerate([*markdown.splitlines(), None], start=1):
        fence = _FENCE.match(line) if line is not None else None
        if opened is None:
            if fence is not None:
                opened, body = (fence["marks"], fence["info"].strip(), number), []
        elif line is None or (fence is not None and _closes(opened[0], fence)):
            blocks.append(_block(opened[1], body, opened[2], page))
            opened = None
        else:
            body.append(line)
    return blocks


def without_blocks(markdown: str) -> str:
    """A Markdown text with an empty line for each line of a fenced block, so that the numbers of lines stay."""
    lines = markdown.splitlines()
    for block in parse_blocks(markdown, ""):
        end = block.line + len(block.text.splitlines())
        lines[block.line - 1 : end + 1] = [""] * len(lines[block.line - 1 : end + 1])
    return "\n".join(lines)


def _closes(marks: str, fence: re.Match[str]) -> bool:
    return fence["marks"][0] == marks[0] and len(fence["marks"]) >= len(marks) and not fence["info"].strip()


def _block(info: str, body: list[str], line: int, page: str) -> Block:
    title = _TITLE.search(info)
    language = info.split()[0].lower() if info else ""
    return Block(language, title[1] if title else "", "".join(f"{one}\n" for one in body), line, page)
