"""What stands where a name should."""

from __future__ import annotations

import pytest

from scribengin.errors import ConfigInvalid, DescriptorUnreadable
from scribengin.operations.chain.registry import membership, path_of
from scribengin.operations.names import chain_of, refuse_name_of_chain, view_of
from scribengin.testing.memory.registry import MemoryEnsemble


@pytest.mark.parametrize("name", ["", " ", "/", "pair/", "/first"])
def test_what_is_no_name_is_bad_input_and_no_path_of_the_registry(name: str) -> None:
    with MemoryEnsemble().connect() as registry:
        for means in (view_of, chain_of):
            with pytest.raises(ConfigInvalid, match=f"^'{name}' names no dataflow and no chain: write NAME"):
                means(registry, name)


def test_a_chain_that_cannot_be_read_keeps_only_names_that_it_may_have_reserved() -> None:
    with MemoryEnsemble().connect() as registry:
        registry.create(path_of("whole"), b"{not json", parents=True)
        refuse_name_of_chain(registry, "wholesale")
        assert membership(registry, "wholesale") is None
        for look in (refuse_name_of_chain, membership):
            with pytest.raises(DescriptorUnreadable, match=f"^{path_of('whole')} does not hold"):
                look(registry, "whole-first")
