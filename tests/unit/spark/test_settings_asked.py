"""What a transformation is told that asks `context.settings` for a key that there is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark import cloudpickle

from scribengin.spark.transform.plan_builder import Settings

SETTINGS = {"limit_celsius": 60, "rooms": [{"name": "hall", "limits": {"low": 1}}]}


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda s: s["limit_celcius"],
            "settings has no 'limit_celcius' (it has: limit_celsius, rooms): did you mean 'limit_celsius'?",
        ),
        (lambda s: s["rooms"][0]["limits"]["high"], "settings.rooms.0.limits has no 'high' (it has: low)"),
    ],
)
def test_a_key_that_there_is_not_is_told_with_those_that_there_are(ask: Any, said: str) -> None:
    with pytest.raises(KeyError) as raised:
        ask(Settings(SETTINGS))
    assert raised.value.args == (said,)


def test_settings_are_a_dict_wherever_they_go() -> None:
    settings = Settings(SETTINGS)
    assert settings == SETTINGS
    assert settings.get("nothing", 5) == 5
    assert json.loads(json.dumps(settings)) == SETTINGS
    sent = cloudpickle.loads(cloudpickle.dumps(settings))
    assert (type(sent), type(sent["rooms"][0]), sent) == (dict, dict, SETTINGS)
