"""What stands where a name should."""

from __future__ import annotations

import pytest

from scribengin.errors import ConfigInvalid
from scribengin.operations.names import chain_of, view_of
from scribengin.testing.memory.registry import MemoryEnsemble


@pytest.mark.parametrize("name", ["", " ", "/", "pair/", "/first"])
def test_what_is_no_name_is_bad_input_and_no_path_of_the_registry(name: str) -> None:
    with MemoryEnsemble().connect() as registry:
        for means in (view_of, chain_of):
            with pytest.raises(ConfigInvalid, match=f"^'{name}' names no dataflow and no chain: write NAME"):
                means(registry, name)
