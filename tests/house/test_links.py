"""Every link of every page leads somewhere, and every source file that a page names is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.links import anchors, broken_links, links, missing_sources, strange_names
from tests.house.tree import ROOT, expect_none, python_files, text_files

PAGES = [path for path in text_files() if path.suffix == ".md"]


def test_every_link_within_the_tree_leads_somewhere() -> None:
    assert len(PAGES) > 20
    expect_none(line for page in PAGES for line in broken_links(page))


def test_every_source_file_that_a_page_names_is_there() -> None:
    known = frozenset(file.path for file in python_files())
    written = [page for page in PAGES if page.parts[-2] == "internals" or page.name in ("ARCHITECTURE.md", "README.md")]
    expect_none(line for page in written for line in missing_sources(page, known))


def test_every_name_of_code_that_a_page_places_is_there() -> None:
    sources = {file.path: file.text for file in python_files() if not file.path.startswith("tests/")}
    internals = [page for page in PAGES if page.parts[-2] == "internals" or page.name == "ARCHITECTURE.md"]
    expect_none(line for page in internals for line in strange_names(page, sources))


def test_every_page_that_code_refers_to_is_there() -> None:
    words = {(file.path, word.strip("\"'`().,;:")) for file in python_files() for word in file.text.split()}
    named = {(path, word.partition("#")[0]) for path, word in words if word.startswith("docs/") and ".md" in word}
    expect_none(f"{path}: {page} is not there" for path, page in sorted(named) if not (ROOT / page).is_file())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[a](b.md) ![c](d.png)", ["b.md", "d.png"]),
        ("[a b](c.md#d-e) `[no](x.md)` [f](<g.md>)", ["c.md#d-e", "g.md"]),
        ("```\n[no](x.md)\n```\n[a](b.md)", ["b.md"]),
        ('[`a`](b.md "title") [x [y]](z.md)', ["b.md", "z.md"]),
        ("array[1](2) f(x)", ["2"]),
    ],
)
def test_links_are_found_where_they_are_links(text: str, found: list[str]) -> None:
    assert list(links(text)) == found


def test_headings_are_named_as_github_does() -> None:
    text = "# A round\n## `kind: log`\n## Who may, and whom?\n```\n# no\n```\n## A round\n### [x](y.md) *z*\n"
    assert anchors(text) == {"a-round", "kind-log", "who-may-and-whom", "a-round-1", "x-z"}


def test_a_link_that_leads_nowhere_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.house.links.ROOT", tmp_path)
    page = tmp_path / "a.md"
    page.write_text("# One\n[x](#one) [x](#two) [x](b.md) [x](https://example.org/y) [x](a.md#one) [x](../c)\n")
    (tmp_path.parent / "c").write_text("outside")
    assert [line.rpartition(": there")[0] for line in broken_links(page)] == ["a.md: #two", "a.md: b.md", "a.md: ../c"]


def test_a_name_that_no_code_has_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.house.links.ROOT", tmp_path)
    page = tmp_path / "a.md"
    page.write_text(
        "`f` of `x/a.py`, `g(1)` in\n`a.py`, `Kept.f()`, `Gone.f`, `Kept.gone`; `h` of `x.f` and `json.dumps`\n"
    )
    told = list(strange_names(page, {"house/x/a.py": "class Kept:\n    def f(self): ...\n", "b.py": "def g(): ..."}))
    assert told == ["a.md: a.py has no g", "a.md: there is no class Gone", "a.md: nothing has Kept.gone"]
