"""Who makes a config in a program is told of a mistake as who writes one in a file: in one line, by our own error."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from scribengin.base.model import Config
from scribengin.dafka import DafkaConfig
from scribengin.errors import ConfigInvalid
from scribengin.log import LogConfig, ReadAhead
from scribengin.proxy import ProxyClientConfig, ProxyConfig


@pytest.mark.parametrize(
    ("kind", "values", "line"),
    [
        (LogConfig, {"retention_hour": 7}, "LogConfig: unknown key 'retention_hour': did you mean 'retention_hours'?"),
        (LogConfig, {"codec": "gzip"}, "LogConfig: codec: 'gzip' is none of none, lz4, zstd"),
        (ReadAhead, {"threads": 99}, "ReadAhead: threads: 99 is too high: at most 16"),
        (ProxyConfig, {"log_rates": {"bytes": 1}}, "ProxyConfig: unknown key 'log_rates.bytes'"),
        (ProxyClientConfig, {"patience_s": "long"}, "ProxyClientConfig: patience_s: 'long' is no number"),
        (DafkaConfig, {"towr": 1}, "DafkaConfig: unknown key 'towr'"),
    ],
)
def test_a_mistake_is_one_line_of_our_own_error(kind: type[Config], values: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigInvalid) as error:
        kind(**values)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is None


def test_all_mistakes_of_one_config_are_told() -> None:
    with pytest.raises(ConfigInvalid, match=r"^LogConfig: codec: .*; unknown key 'kye'"):
        LogConfig(codec="gzip", kye=1)  # type: ignore[arg-type, call-arg]


def test_a_config_within_another_is_told_of_with_the_others_and_by_its_whole_key() -> None:
    with pytest.raises(ConfigInvalid, match=r"^here: host: .*; unknown key 'log_rates.bytes'"):
        ProxyConfig.parse({"host": [], "log_rates": {"bytes": 1}}, source="here")


def test_a_config_is_copied_and_sent_as_ever() -> None:
    config = LogConfig(codec="zstd")
    assert pickle.loads(pickle.dumps(config)) == config.model_copy() == LogConfig.model_validate({"codec": "zstd"})
