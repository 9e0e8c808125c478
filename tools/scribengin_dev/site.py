"""What mkdocs asks of us as it builds the site: the pages that stand in no file, and links that leave docs/.

tools/mkdocs.yml names this file as a hook. It runs in the environment of `python3 tools/dev.py docs`, and imports
nothing of ours: the site is made from the texts of the tree.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PUBLIC_MODULES = (
    "scribengin.dafka",
    "scribengin.errors",
    "scribengin.log",
    "scribengin.log.clients",
    "scribengin.proxy",
    "scribengin.spark.log_format",
    "scribengin.spark.session",
    "scribengin.testing",
    "scribengin.testing.simulation",
    "scribengin_registry.contract",
    "scribengin_registry.embedded",
    "scribengin_registry.errors",
)
"""What users import."""
API = "reference/api"
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)")
_ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|#)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the public modules, and a start page where docs/ has none: the README."""
    from mkdocs.structure.files import File

    for path, text in generated_pages().items():
        if files.get_file_from_path(path) is None:
            files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_more: Any) -> str:
    """A page as it is in the tree, for the site."""
    return rewritten(markdown, DOCS / page.file.src_uri)


def generated_pages() -> dict[str, str]:
    """The text of each page that stands in no file of docs/, by its path in there."""
    listed = "\n".join(f"- [{module}]({module}.md)" for module in PUBLIC_MODULES)
    pages = {f"{API}/index.md": f"# Python\n\nWhat programs import.\n\n{listed}\n"}
    pages |= {f"{API}/{module}.md": f"# {module}\n\n::: {module}\n" for module in PUBLIC_MODULES}
    if not any((DOCS / name).is_file() for name in ("index.md", "README.md")):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        pages["index.md"] = rewritten(readme, ROOT / "README.md", as_page=DOCS / "index.md")
    return pages


def rewritten(markdown: str, page: Path, as_page: Path | None = None) -> str:
    """The same text with links that are right in the site. What leads out of docs/ is named instead: a site has pages
    and no sources. `as_page`: where in docs/ the text is shown, if not at `page`."""

    def link(found: re.Match[str]) -> str:
        target, hash_, anchor = found["target"].partition("#")
        if _ELSEWHERE.match(found["target"]):
            return found[0]
        to = (page.parent / target).resolve()
        if to.is_relative_to(DOCS):
            to = to / "README.md" if to.is_dir() else to
            return f"{found['image']}[{found['text']}]({_relative(to, as_page or page)}{hash_}{anchor})"
        return "" if found["image"] else found["text"]

    return _outside_of_code(markdown, lambda text: _LINK.sub(link, text))


def _relative(to: Path, page: Path) -> str:
    return Path(os.path.relpath(to, page.parent)).as_posix()


def _outside_of_code(markdown: str, change: Any) -> str:
    """Blocks of code stay as they are."""
    parts = re.split(r"(^ {0,3}```.*?^ {0,3}```[ \t]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))
