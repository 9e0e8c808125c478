"""Which way servers run: what was asked for, what answers, and that the suite says which it is."""

from __future__ import annotations

import pytest

from scribengin_dev.servers.containers import IMAGES
from tests.servers.provider import CONTAINERS, PROCESSES, Provider, choose, images_of, pytest_report_header


def test_processes_are_used_unless_containers_are_asked_for() -> None:
    chosen = choose(PROCESSES, IMAGES, "Docker 28.1")
    assert chosen.image("kafka") == ""
    assert chosen.line == "servers: processes from jars"


def test_processes_are_used_where_no_engine_answers_and_the_header_says_so() -> None:
    chosen = choose(CONTAINERS, IMAGES, "")
    assert chosen.image("kafka") == ""
    assert "processes from jars: containers were asked for, and no Docker engine answers" in chosen.line


def test_containers_are_used_where_an_engine_answers_with_the_images_that_were_named() -> None:
    chosen = choose(CONTAINERS, images_of(["kafka=example/kafka:7"]), "Docker 28.1")
    assert chosen.image("kafka") == "example/kafka:7"
    assert chosen.image("zookeeper") == IMAGES["zookeeper"]
    assert chosen.line.startswith(f"servers: containers of Docker 28.1 (example/kafka:7, {IMAGES['zookeeper']});")


@pytest.mark.parametrize("word", ["kafka", "kafka=", "oracle=example/oracle:1"])
def test_a_word_that_names_no_image_is_refused(word: str) -> None:
    with pytest.raises(pytest.UsageError, match="write NAME=IMAGE, NAME one of kafka, zookeeper"):
        images_of([word])


def test_the_run_says_what_serves_its_fixtures(provider: Provider, pytestconfig: pytest.Config) -> None:
    line, other, machines = pytest_report_header(pytestconfig)
    assert machines.startswith("several machines: ")
    assert line == provider.line
    assert other.startswith("servers in containers: ")
