"""docs/reference is what the code says of itself, and the code says it of everything."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from scribengin.base.model import Config, models_in
from scribengin.dataflow.config import DataflowConfig
from scribengin.log import LogConfig
from scribengin.operations.chain.config import ChainConfig
from scribengin_dev.reference.pages import DIRECTORY, pages
from scribengin_tools.rendering.field_docs import described_schema, field_docs
from tests.house.tree import expect_none, shipped_files

PAGES = pages()
_VARIABLE = re.compile(r"\bSCRIBENGIN_[A-Z_]+\b")
_SERIES = re.compile(r'"(scribengin_[a-z_]+)"')
OF_TESTS_OF_LAUNCHERS = "SCRIBENGIN_CONFORMANCE"
"""Set and read inside of one test of the published suite."""


def configs() -> Iterator[type[Config]]:
    """What users write: everything below a chain, which holds all of it."""
    seen: set[type[BaseModel]] = set()

    def below(model: type[BaseModel]) -> Iterator[type[Config]]:
        if model in seen or not issubclass(model, Config):
            return
        seen.add(model)
        yield model
        for field in model.model_fields.values():
            for one in models_in(field.annotation):
                yield from below(one)

    yield from below(ChainConfig)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_page_is_what_the_code_says(name: str) -> None:
    written = (DIRECTORY / name).read_text(encoding="utf-8") if (DIRECTORY / name).is_file() else ""
    assert written == PAGES[name], "run: python -m scribengin_dev.reference"


def test_there_is_no_other_page() -> None:
    assert {path.name for path in DIRECTORY.iterdir()} == PAGES.keys()


def test_every_key_that_users_write_is_described() -> None:
    expect_none(
        f"{config.__module__}.{config.__name__}.{name}"
        for config in configs()
        for name in config.model_fields
        if name not in field_docs(config)
    )


def test_the_description_of_a_base_class_counts_and_a_later_one_wins() -> None:
    class Base(Config):
        first: int = 1
        """Of the base."""

    assert field_docs(LogConfig)["fsync"].startswith("Make every group durable")
    assert "paused" in field_docs(next(c for c in configs() if c.__name__ == "KafkaSourceConfig"))
    assert field_docs(Base) == {}, "classes of users are not read"


def test_the_schema_for_editors_describes_each_key() -> None:
    schema = described_schema(DataflowConfig)
    assert schema["properties"]["tasks"]["description"].startswith("How many tasks")
    assert schema["$defs"]["RoundConfig"]["properties"]["bytes_max"]["description"].startswith("So many bytes")


def test_every_environment_variable_in_the_code_is_on_its_page() -> None:
    named = {name for file in shipped_files() for name in _VARIABLE.findall(file.text)}
    told = set(_VARIABLE.findall(PAGES["environment.md"]))
    assert named - {OF_TESTS_OF_LAUNCHERS} == told


def test_every_series_that_the_code_names_is_on_its_page() -> None:
    files = [file for file in shipped_files() if file.path.endswith("/metrics.py") and "reference" not in file.path]
    named = {name for file in files for name in _SERIES.findall(file.text)}
    assert named, "the series have moved: look for them elsewhere"
    expect_none(name for name in sorted(named) if name not in PAGES["metrics.md"])


def test_every_way_to_end_is_on_its_page() -> None:
    page = PAGES["exit-codes.md"]
    for code in ("| 0 |", "| 1 |", "| 2 |", "| 75 |", "| 76 |", "| 96 |", "| 130 |"):
        assert code in page
    assert "`DataflowNotFound` | 2" in page
