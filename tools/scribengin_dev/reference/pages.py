"""Which pages there are. A test compares each with its file, so none can be out of date."""

from __future__ import annotations

import textwrap
from pathlib import Path

from scribengin_dev.reference import commands, environment, exit_codes, keys, metrics

_COLUMNS_MAX = 118
_KEPT = ("|", "    ", "#", "```")
DIRECTORY = Path(__file__).resolve().parents[3] / "docs" / "reference"

_INDEX = """# Reference

Everything that can be set, called, or seen. `python -m scribengin_dev.reference` makes these pages from the code.

| page | what |
|---|---|
| [dataflow.md](dataflow.md) | the keys of a dataflow's descriptor, and what an edit of each does |
| [sources.md](sources.md), [sinks.md](sinks.md) | the keys of every kind of source and of sink |
| [log.md](log.md) | the keys of a log's configuration, and of its readers |
| [chain.md](chain.md) | the keys of a chain's file |
| [commands.md](commands.md) | every command, with its options |
| [metrics.md](metrics.md) | every series that Prometheus is told |
| [exit-codes.md](exit-codes.md) | how commands and processes end |
| [environment.md](environment.md) | every environment variable |
"""
_WORDS = "Words of ours stand in the [glossary](../internals/glossary.md)."


def pages() -> dict[str, str]:
    """The text of each page, by the name of its file."""
    made = {
        "README.md": _INDEX,
        "dataflow.md": keys.dataflow_page(),
        "sources.md": keys.sources_page(),
        "sinks.md": keys.sinks_page(),
        "log.md": keys.log_page(),
        "chain.md": keys.chain_page(),
        "commands.md": commands.page(),
        "metrics.md": metrics.page(),
        "exit-codes.md": exit_codes.page(),
        "environment.md": environment.page(),
    }
    return {name: _wrapped(f"{text.rstrip()}\n\n{_WORDS}\n") for name, text in made.items()}


def _wrapped(text: str) -> str:
    """The page with its long lines of prose, and items of lists, on several lines. Tables and blocks stay."""
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= _COLUMNS_MAX or line.startswith(_KEPT):
            lines.append(line)
            continue
        indent = "  " if line.startswith("- ") else ""
        lines += textwrap.wrap(
            line, _COLUMNS_MAX, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    return "\n".join(lines)
