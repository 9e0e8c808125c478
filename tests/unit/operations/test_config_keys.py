"""What who looks for a value of a config is told where there is no such key."""

from __future__ import annotations

import pytest

from scribengin.errors import ConfigInvalid
from scribengin.operations.editing import value_at
from tests.unit.submitted import CONFIG


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("wrokers", "did you mean 'workers'?"),
        ("sql_", "did you mean 'sql'?"),
        ("round.recrods_max", "did you mean 'round.records_max'?"),
        ("settings.limt", "the config has no 'settings.limt' (it has settings.limit): did you mean 'settings.limit'?"),
        ("settings.limit.low", "the config has no 'settings.limit.low': 'settings.limit' holds no keys"),
        ("spark.conf.x", "the config has no 'spark.conf.x' (it has nothing there)"),
        ("sources.scr.kind", "did you mean 'sources.src'?"),
    ],
)
def test_a_key_that_there_is_not_is_told_with_the_one_that_is_like_it(key: str, said: str) -> None:
    config = CONFIG.model_copy(update={"settings": {"limit": 5}})
    with pytest.raises(ConfigInvalid) as refused:
        value_at(config, key)
    assert str(refused.value).endswith(said)


def test_a_key_that_is_left_out_has_no_value() -> None:
    assert value_at(CONFIG, "tasks") is None
    assert value_at(CONFIG, "sources.src.kind") == "log"
