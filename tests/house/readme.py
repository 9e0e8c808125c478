"""The README's code blocks, and which test runs each of them.

A block that a reader can run carries a name in its fence: ```` ```bash name=tour-1 ````. `RUN_BY` says which test runs
it, and that test takes its blocks from `blocks_run_by`: the text that runs is the text that is printed.
`test_readme.py` fails when a block has no name, when nothing runs it, or when the test named here does not exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.house.tree import ROOT

RUNNABLE = frozenset({"bash", "sh", "shell", "console", "python", "py", "yaml", "yml"})
_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>.*)$")

PAGES = ("README.md", "deploy/yarn/README.md")
"""The pages whose blocks are run."""

_TOUR = "tests/integration/test_readme_tour.py"
_YARN = "tests/integration/test_yarn_deploy.py"
_WATCHING = "tests/integration/test_readme_watching.py"
_CHAINS = "tests/integration/test_readme_chains.py"
_LOGS = "tests/integration/test_readme_logs.py"
RUN_BY: dict[str, str] = {
    "two-commands": f"{_TOUR}::test_the_two_commands_are_commands_of_dev",
    "tour-sandbox": f"{_TOUR}::sandbox",
    "heat-alarm-descriptor": f"{_TOUR}::test_the_files_that_are_printed_are_the_files",
    "heat-alarm-transformation": f"{_TOUR}::test_the_files_that_are_printed_are_the_files",
    **dict.fromkeys(
        (
            "tour-connect", "tour-logs", "tour-explain", "tour-submit", "tour-tail", "tour-rejected", "tour-python",
            "tour-look", "tour-stop", "tour-clean", "sql-dataflow",
        ),
        f"{_TOUR}::test_the_tour_runs_as_it_is_printed",
    ),
    **dict.fromkeys(
        ("operate-config", "operate-rewind", "operate-restart"), f"{_TOUR}::test_operating_runs_as_it_is_printed"
    ),
    **dict.fromkeys(
        ("yarn-once", "yarn-flow", "yarn-submit", "yarn-look", "yarn-skein"),
        f"{_YARN}::test_the_page_runs_as_it_is_printed",
    ),
    "watch-once": f"{_WATCHING}::test_scripts_watch_as_it_is_printed",
    "watch-web": f"{_WATCHING}::test_the_web_page_is_served_as_it_is_printed",
    "watch-config": f"{_WATCHING}::test_the_keys_that_are_printed_are_keys",
    "chain": f"{_CHAINS}::test_a_chain_runs_as_it_is_printed",
    **dict.fromkeys(("logs-python", "logs-look", "spark-logs"), f"{_LOGS}::test_logs_are_used_as_it_is_printed"),
}  # fmt: skip
"""Name of a block -> the test that runs it, as pytest names it (`tests/integration/test_readme_tour.py::test_...`)."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: language, name ("" if it has none), text, the line of its fence, and the page."""

    language: str
    name: str
    text: str
    line: int
    page: str = PAGES[0]


def parse_blocks(markdown: str, page: str = PAGES[0]) -> list[Block]:
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


def readme_blocks() -> list[Block]:
    """The blocks of the pages that a reader would run or save: shell, Python, YAML."""
    found = [block for page in PAGES for block in parse_blocks((ROOT / page).read_text(encoding="utf-8"), page)]
    return [block for block in found if block.language in RUNNABLE]


def blocks_run_by(test: str) -> list[Block]:
    """The blocks that the test `test` runs, in the README's order."""
    return [block for block in readme_blocks() if RUN_BY.get(block.name) == test]


def _closes(marks: str, fence: re.Match[str]) -> bool:
    return fence["marks"][0] == marks[0] and len(fence["marks"]) >= len(marks) and not fence["info"].strip()


def _block(info: str, body: list[str], line: int, page: str) -> Block:
    words = info.split()
    names = [word.removeprefix("name=") for word in words if word.startswith("name=")]
    return Block(words[0].lower() if words else "", names[0] if names else "", "\n".join(body) + "\n", line, page)
