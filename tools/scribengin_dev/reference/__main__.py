"""`python -m scribengin_dev.reference [DIRECTORY]`: writes the pages, by default to docs/reference."""

from __future__ import annotations

import sys
from pathlib import Path

from scribengin_dev.reference.pages import DIRECTORY, pages


def main(arguments: list[str]) -> None:
    """Write every page."""
    directory = Path(arguments[0]) if arguments else DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
