"""Who makes a config in a program is told of a mistake as who writes one in a file: in one line, by our own error."""

from __future__ import annotations

import math
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from scribengin.base.model import Config, models_in
from scribengin.dafka import DafkaConfig
from scribengin.dataflow.config import DataflowConfig
from scribengin.errors import ConfigInvalid
from scribengin.log import LogConfig, ReadAhead, ReaderConfig
from scribengin.operations.chain.config import ChainConfig
from scribengin.proxy import ProxyClientConfig, ProxyConfig
from scribengin.spark.log_format.options import LogOptions

ROOTS = (DafkaConfig, DataflowConfig, LogConfig, ReaderConfig, ChainConfig, ProxyClientConfig, ProxyConfig, LogOptions)


def configs(*roots: type[Any]) -> Iterator[type[Config]]:
    """Every kind of config that there is."""
    waiting, seen = list(roots), set[type[Any]]()
    while waiting:
        kind = waiting.pop()
        if kind not in seen:
            seen.add(kind)
            waiting += [one for field in kind.model_fields.values() for one in models_in(field.annotation)]
            waiting += kind.__subclasses__()
            yield kind


NUMBERS = sorted(
    (kind.__name__, field.alias or name, kind, str(field.annotation).startswith("dict"))
    for kind in configs(*ROOTS)
    for name, field in kind.model_fields.items()
    if "float" in str(field.annotation) or "Any" in str(field.annotation)
)


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


def test_a_config_of_each_kind_was_looked_for_numbers() -> None:
    found = {name for name, *_ in NUMBERS}
    assert found > {
        "DafkaSinkConfig",
        "DataflowConfig",
        "KafkaSinkConfig",
        "LogConfig",
        "LogWriteOptions",
        "ProxyConfig",
    }


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(
    ("kind", "name", "of_keys"),
    [pytest.param(kind, name, of, id=f"{of_kind}.{name}") for of_kind, name, kind, of in NUMBERS],
)
def test_no_number_of_a_config_is_one_that_json_cannot_hold(
    kind: type[Config], name: str, of_keys: bool, value: float
) -> None:
    with pytest.raises(ValidationError) as refused:
        kind.model_validate({name: {"k": value} if of_keys else value})
    assert any(one["loc"][0] == name for one in refused.value.errors())


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(kind, name, id=f"{of}.{name}") for of, name, kind, _ in NUMBERS if name[-2:] in ("_s", "tS")],
)
def test_no_wait_of_a_config_is_longer_than_threads_can_wait(kind: type[Config], name: str) -> None:
    for seconds in (1.001e9, threading.TIMEOUT_MAX, 1e300):
        with pytest.raises(ValidationError) as refused:
            kind.model_validate({name: seconds})
        assert any(one["loc"] == (name,) for one in refused.value.errors())
