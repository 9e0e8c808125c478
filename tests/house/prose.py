"""How long lines and sentences of a page may be. Each rule takes a page's text and returns what is wrong in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.house.pages import without_blocks

LINE_COLUMNS_MAX = 120
SENTENCE_WORDS_MAX = 25

_NO_PROSE = re.compile(r"^\s*(\||#|<!--|!\[|$)")
_LIST_ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")
_CODE, _LINK = re.compile(r"`[^`]*`"), re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?:;])[\"')*_]*\s+")


def long_lines(text: str) -> list[str]:
    """Lines of prose over the limit. A row of a table, and a block, may be longer: neither can be broken."""
    return [
        f"{number} {len(line)} columns"
        for number, line in enumerate(without_blocks(text).splitlines(), 1)
        if len(line) > LINE_COLUMNS_MAX and not _NO_PROSE.match(line)
    ]


def long_sentences(text: str) -> list[str]:
    """Sentences over the limit. A colon or a semicolon ends a thought, too; what stands in backticks is one word."""
    return [
        f"{number} {words} words: {sentence[:60]} ..."
        for number, paragraph in _paragraphs(without_blocks(text))
        for sentence in _END.split(paragraph)
        if (words := len(sentence.split())) > SENTENCE_WORDS_MAX
    ]


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Each paragraph, and each item of a list, as one line of plain words, with the number of its first line."""
    first, words = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        item = _LIST_ITEM.match(line)
        if (_NO_PROSE.match(line) or item) and words:
            yield first, words
            words = ""
        if not _NO_PROSE.match(line):
            first = first if words else number
            plain = _LINK.sub(r"\1", _CODE.sub("code", line[item.end() if item else 0 :]))
            words = f"{words} {plain.strip()}".strip()
