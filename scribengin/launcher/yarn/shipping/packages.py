"""Which packages an environment has, as files: those of its site directories, and what is installed in place (`-e`)."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from scribengin.errors import ConfigInvalid
from scribengin.launcher.yarn.shipping.archive import Entry

OURS = ("scribengin", "scribengin_registry", "scribengin_tools")
_SITE_NAMES = ("site-packages", "dist-packages")
_LEFT_OUT = frozenset({"tests", "pip", "node_modules"})
_METADATA_LEFT_OUT = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
_DEVELOPMENT = "dev"
_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


def package_entries(place: str, added: Path | None = None) -> Iterator[Entry]:
    """The packages that this interpreter can import, below `place` in the archive, and those in `added`.

    Left out: tests, byte code, pip, what only Scribengin's own development needs, and what says where a package was
    installed from. Raises ConfigInvalid (something is installed in place, and does not say where it is), OSError.
    """
    for name in OURS:
        yield from tree_entries(_package_directory(name), f"{place}/{name}", _wanted)
    development = _development_files()
    sites = [Path(entry) for entry in sys.path if Path(entry).name in _SITE_NAMES and Path(entry).is_dir()]
    for directory in [*sites, *([added] if added is not None else [])]:
        yield from tree_entries(directory, place, lambda path: _wanted(path) and path not in development)
        for pth in sorted(directory.glob("*.pth")):
            yield from _in_place(pth, place)


def tree_entries(directory: Path, place: str, wanted: Callable[[Path], bool]) -> Iterator[Entry]:
    """The files below `directory`, as entries below `place`. Links are followed. Raises OSError."""
    for root, directories, names in os.walk(directory, followlinks=True):
        here = Path(root)
        directories[:] = sorted(name for name in directories if name != "__pycache__" and wanted(here / name))
        below = f"{place}/{here.relative_to(directory).as_posix()}" if here != directory else place
        for name in sorted(names):
            path = here / name
            if not name.endswith((".pyc", ".pyo")) and wanted(path) and path.is_file():
                yield Entry(f"{below}/{name}", path, executable=os.access(path, os.X_OK))


def _wanted(path: Path) -> bool:
    if path.name in _LEFT_OUT or path.suffix in (".pth", ".egg-link") or path.name.startswith("pip-"):
        return False
    return not (path.name in _METADATA_LEFT_OUT and path.parent.suffix == ".dist-info")


def _package_directory(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigInvalid(f"the package {name} is not installed as a directory: install Scribengin again")
    return Path(spec.submodule_search_locations[0])


def _in_place(pth: Path, place: str) -> Iterator[Entry]:
    """What the directories that a `.pth` file names offer for import. Hooks are refused: they may import anything."""
    for line in pth.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("import ") and pth.name.startswith("__editable__"):
            raise ConfigInvalid(
                f"{pth.name.removesuffix('.pth').removeprefix('__editable__.')} is installed in place, by an import "
                "hook that does not say where its files are: install it without -e"
            )
        directory = Path(pth.parent, line.strip())
        if not line.strip() or line.startswith(("import ", "import\t", "#")) or not directory.is_dir():
            continue
        if any(_package_directory(name).parent == directory for name in OURS):
            continue  # Scribengin's own tree: its packages are in the archive already, and nothing else there is one
        yield from _top_level(directory, place)


def _top_level(directory: Path, place: str) -> Iterator[Entry]:
    for child in sorted(directory.iterdir()):
        if child.is_dir() and (child / "__init__.py").is_file() and _wanted(child):
            yield from tree_entries(child, f"{place}/{child.name}", _wanted)
        elif child.suffix in (".py", ".so") and child.is_file():
            yield Entry(f"{place}/{child.name}", child)


def _development_files() -> frozenset[Path]:
    """The top of what Scribengin's extra `dev` alone brings: directories and modules that no dataflow needs."""
    wanted = [(_NAME.match(line), _EXTRA.search(line)) for line in importlib.metadata.requires("scribengin") or ()]
    extras = [(name[0].lower(), extra[1] if extra else "") for name, extra in wanted if name]
    needed = {name for name, extra in extras if extra != _DEVELOPMENT}
    found: set[Path] = set()
    for name in {name for name, extra in extras if extra == _DEVELOPMENT} - needed:
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        found |= {Path(str(distribution.locate_file(top))) for top in tops}
    return frozenset(found)
