"""What a soak does: every kind of act of its schedule, and bad edits that are bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.dataflow.edits import plan_edit
from scribengin.dataflow.registry.config_node import config_from_bytes, config_to_bytes
from scribengin.errors import ConfigInvalid
from scribengin_dev.soak.acts import DEEDS, bad_configs
from scribengin_dev.soak.chain import KEYS, chain_config
from scribengin_dev.soak.schedule import FLOWS, KINDS


def refusal_of(data: bytes, key: str) -> str | None:
    """Why a master refuses that edit of a dataflow that has workers."""
    config = chain_config(Path("/files")).dataflows[key]
    try:
        edited = config_from_bytes(data, "the edit")
    except ConfigInvalid as error:
        return str(error)
    return plan_edit(config, edited, running=True).refusal


@pytest.mark.parametrize("key", KEYS)
def test_every_bad_edit_is_refused_for_a_reason_of_its_own(key: str) -> None:
    config = chain_config(Path("/files")).dataflows[key]
    reasons = [refusal_of(data, key) for data in bad_configs(config)]
    assert None not in reasons
    assert len(set(reasons)) == len(reasons) == 5
    assert refusal_of(config_to_bytes(config), key) is None


def test_every_kind_of_act_can_be_carried_out_on_every_dataflow_of_the_chain() -> None:
    assert set(DEEDS) == set(KINDS)
    assert len(KEYS) == FLOWS
