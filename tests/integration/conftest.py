"""Fixtures of the integration tests: one Spark session for all that need one, and packages as users write them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scribengin.spark.session import start_session, stop_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """This process's Spark session, stopped at the end of the run."""
    yield start_session("scribengin-tests", master="local[2]")
    stop_session()


@pytest.fixture
def package(tmp_path: Path) -> Callable[..., Path]:
    """Write the modules of a user's package and return its directory."""

    def write(**modules: str) -> Path:
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        return tmp_path

    return write
