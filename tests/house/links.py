"""The links of Markdown pages: those within the tree, and the headings that they name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
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
_NAME_OF = re.compile(r"`(?P<name>[A-Za-z_][\w.]*)(?:\([^`]*\))?`\s+(?:of|in)\s+`(?P<path>[\w/]+\.py)`")
_MEMBER = re.compile(r"`(?P<owner>[A-Z]\w*[a-z]\w*)\.(?P<name>[a-z_]\w*)(?:\([^`]*\))?`")


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


def strange_names(page: Path, sources: Mapping[str, str]) -> Iterator[str]:
    """Names of code that a page says stand in a file, or in a class, and no source does. `sources`: path -> text."""
    text = page.read_text(encoding="utf-8")
    for found in _NAME_OF.finditer(text):
        meant = [source for path, source in sources.items() if f"/{path}".endswith(f"/{found['path']}")]
        if not any(_has(source, part) for source in meant for part in [found["name"].rpartition(".")[2]]):
            yield f"{page.relative_to(ROOT)}: {found['path']} has no {found['name']}"
    for found in _MEMBER.finditer(text):
        if not any(_has(source, f"class {found['owner']}") for source in sources.values()):
            yield f"{page.relative_to(ROOT)}: there is no class {found['owner']}"
        elif not any(_has(source, found["name"]) for source in sources.values()):
            yield f"{page.relative_to(ROOT)}: nothing has {found['owner']}.{found['name']}"


def _has(source: str, words: str) -> bool:
    return words in source and re.search(rf"\b{re.escape(words)}\b", source) is not None
