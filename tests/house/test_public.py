"""Every name that users import says what it is."""

from __future__ import annotations

import pytest

from scribengin_dev.site import PUBLIC_MODULES
from tests.house.public import public_names, undocumented
from tests.house.tree import expect_none


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_every_public_name_has_a_docstring(module: str) -> None:
    assert public_names(module)
    expect_none(undocumented(module))
