"""The site of docs/ without mkdocs: which pages it has beside the files, and what becomes of links."""

from __future__ import annotations

from pathlib import Path

import yaml

from scribengin_dev import site
from tests.house.tree import ROOT

PAGE = site.DOCS / "internals" / "round.md"


def test_links_within_docs_stay_and_others_are_only_named() -> None:
    text = (
        "[a](recovery.md#what) [b](../reference/) [c](https://example.org) [d](#here) "
        "[e](../../tests/README.md) ![f](../../tools/web.png)"
    )
    assert site.rewritten(text, PAGE) == (
        "[a](recovery.md#what) [b](../reference/README.md) [c](https://example.org) [d](#here) e "
    )


def test_a_page_that_is_shown_elsewhere_keeps_its_links() -> None:
    text = "[a](docs/internals/round.md) [b](scribengin/ARCHITECTURE.md)"
    assert site.rewritten(text, ROOT / "README.md", as_page=site.DOCS / "index.md") == "[a](internals/round.md) b"


def test_blocks_of_code_are_left_alone() -> None:
    block = "```bash\n[a](../../b.md)\n```\n"
    assert site.rewritten(block, PAGE) == block


def test_each_public_module_has_a_page() -> None:
    pages = site.generated_pages()
    assert all(f"::: {module}" in pages[f"{site.API}/{module}.md"] for module in site.PUBLIC_MODULES)


def test_the_site_fetches_nothing_from_elsewhere() -> None:
    class Loader(yaml.SafeLoader):
        """Of what mkdocs alone understands, nothing."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    config = yaml.load((ROOT / "tools" / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    assert config["theme"]["font"] is False
    assert {"search", "offline"} <= {plugin for plugin in config["plugins"] if isinstance(plugin, str)}
    polyfills = config["extra"]["polyfills"]
    assert polyfills, "the theme would add one of its own, from elsewhere"
    assert all(Path(ROOT / "tools" / config["docs_dir"] / script).is_file() for script in polyfills)
    assert "http" not in "".join(polyfills)
