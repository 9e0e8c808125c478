"""tools/COMMANDS.md is what the commands say of themselves."""

from __future__ import annotations

from scribengin_dev.reference import page
from tests.house.tree import ROOT


def test_the_reference_page_is_up_to_date() -> None:
    written = (ROOT / "tools" / "COMMANDS.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m scribengin_dev.reference > tools/COMMANDS.md"
