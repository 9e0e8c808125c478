"""The links of Markdown pages: those within the tree, and the headings that they name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tests.house.tree import ROOT

_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?^ {0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(
    r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]"  # what is shown, one pair of brackets in it
    r"\(<?(?P<target>[^()\s>]+(?:\([^()\s]*\)[^()\s>]*)?)>?(?:\s+\"[^\"]*\")?\)"
)
_HEADING = re.compile(r"^#{1,6}[ \t]+(?P<text>.+?)[ \t]*#*$", re.MULTILINE)
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:")
_SOURCE = re.compile(r"`(?P<path>[\w/]+\.py)")


def links(text: str) -> Iterator[str]:
    """The targets of a page's links, in order; what stands in code is none."""
    plain = _CODE.sub("", _FENCED.sub("", text))
    yield from (found["target"] for found in _LINK.finditer(plain))


def anchors(text: str) -> set[str]:
    """What may follow `#` in a link to that page: a word for each heading, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.finditer(_FENCED.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["text"]).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(page: Path) -> Iterator[str]:
    """What a page's links name, and is not there. Links into the web are not looked at."""
    text = page.read_text(encoding="utf-8")
    for target in links(text):
        if _ELSEWHERE.match(target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / unquote(path)).resolve() if path else page
        where = f"{page.relative_to(ROOT)}: {target}"
        if not to.exists() or not to.is_relative_to(ROOT):
            yield f"{where}: there is no such file"
        elif anchor and (to.suffix != ".md" or anchor not in anchors(to.read_text(encoding="utf-8"))):
            yield f"{where}: there is no such heading"


def missing_sources(page: Path, known: frozenset[str]) -> Iterator[str]:
    """Files of Python that a page names in code, and none is called so, with that much of its path."""
    for found in _SOURCE.finditer(page.read_text(encoding="utf-8")):
        if not any(path == found["path"] or path.endswith(f"/{found['path']}") for path in known):
            yield f"{page.relative_to(ROOT)}: {found['path']} is not there"
