"""Programs that stand in strings, for processes that tests and tools start: no checker looks into strings by itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent

from tests.house.names import defined_names
from tests.house.tree import SourceFile


def program_of(file: SourceFile) -> str:
    """The programs of a file that import of ours, one after the other: they are often put together so."""
    found = []
    for node in file.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            text = dedent(node.value)
            if any(_is_ours(node) for node in _imports(text)):
                found.append((node.lineno, text))
    return "\n".join(text for _line, text in sorted(found))


def unknown_imports(text: str, modules: Mapping[str, SourceFile]) -> Iterator[str]:
    """What a program imports of ours that is not there."""
    for node in _imports(text):
        if isinstance(node, ast.ImportFrom) and (module := modules.get(node.module or "")) is not None:
            names = [alias.name for alias in node.names if f"{node.module}.{alias.name}" not in modules]
            yield from (f"{node.module}.{name}" for name in names if name not in {"*", *defined_names(module)})


def undefined_names(texts: Mapping[str, str], directory: Path) -> Iterator[str]:
    """What nothing in a program defines, told by the linter. The keys of `texts` are files' paths."""
    for path, text in texts.items():
        (directory / path.replace("/", "+")).write_text(text)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise"]
    found = subprocess.run([*command, str(directory)], capture_output=True, text=True, check=False, timeout=600)
    assert found.returncode in (0, 1), found.stderr
    lines = (line.split(" F821 ") for line in found.stdout.splitlines() if " F821 " in line)
    yield from sorted({f"{Path(at).name.split(':')[0].replace('+', '/')} {what}" for at, what in lines})


def _imports(text: str) -> list[ast.Import | ast.ImportFrom]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def _is_ours(node: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("scribengin", "tests"))
