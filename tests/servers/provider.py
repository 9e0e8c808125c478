"""What serves the fixtures: processes from jars, or containers where a Docker engine answers and they are asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from scribengin_dev.servers import containers
from scribengin_dev.servers.machines import why_no_machines

PROCESSES, CONTAINERS = "processes", "containers"
PROVIDER_VARIABLE = "SCRIBENGIN_TEST_SERVERS"
IMAGES_VARIABLE = "SCRIBENGIN_TEST_IMAGES"
_CHOSEN = pytest.StashKey["Provider"]()


@dataclass(frozen=True, slots=True)
class Provider:
    """What serves the fixtures, and the line that says so. `images` has an entry for every system that can have one;
    `engine` is the Docker engine that answers, "" for none."""

    line: str
    images: Mapping[str, str]
    engine: str
    asked: bool

    def image(self, system: str) -> str:
        """The image that a system's server runs in, "" for a process of this machine."""
        return self.images[system] if self.engine and self.asked else ""


def choose(asked: str, images: Mapping[str, str], engine: str) -> Provider:
    """What is used when `asked` is asked for and `engine` answers."""
    wanted = asked == CONTAINERS
    if wanted and engine:
        line = f"containers of {engine} ({', '.join(images.values())}); all other servers are processes"
    elif wanted:
        line = "processes from jars: containers were asked for, and no Docker engine answers on this machine"
    else:
        line = "processes from jars"
    return Provider(f"servers: {line}", images, engine, wanted)


def images_of(words: Sequence[str]) -> dict[str, str]:
    """The images of all systems, with those of `NAME=IMAGE` words in place of the usual. Raises UsageError."""
    images = dict(containers.IMAGES)
    for word in words:
        name, _, image = word.partition("=")
        if name not in images or not image:
            raise pytest.UsageError(f"'{word}' names no image: write NAME=IMAGE, NAME one of {', '.join(images)}")
        images[name] = image
    return images


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, each with a variable for runs whose command line is another's."""
    group = parser.getgroup("scribengin")
    group.addoption(
        "--servers",
        choices=(PROCESSES, CONTAINERS),
        default=os.environ.get(PROVIDER_VARIABLE, PROCESSES),
        help=f"What serves ZooKeeper and Kafka to the tests. Default: ${PROVIDER_VARIABLE}, or {PROCESSES}.",
    )
    group.addoption(
        "--server-image",
        action="append",
        default=os.environ.get(IMAGES_VARIABLE, "").split(),
        metavar="NAME=IMAGE",
        help=f"Another image, as in kafka=example/kafka:4. More of them in ${IMAGES_VARIABLE}, with blanks between.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose, once for the run."""
    images = images_of(config.getoption("--server-image"))
    config.stash[_CHOSEN] = choose(config.getoption("--servers"), images, _engine())


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what was chosen, and what cannot be run here."""
    return [
        config.stash[_CHOSEN].line,
        f"servers in containers: {_untested(config.stash[_CHOSEN]) or 'tested, too'}",
        f"several machines: {_no_machines() or 'tested, as namespaces'}",
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say it at the end where a quiet run has no header."""
    if config.get_verbosity() < 0:
        for line in pytest_report_header(config):
            terminalreporter.write_line(line)


def pytest_ignore_collect(collection_path: object, config: pytest.Config) -> bool | None:
    """Leave out the tests of containers, and of machines, where none can be had: the header has said so."""
    path = str(collection_path)
    out = path.endswith("test_servers_containers.py") and _untested(config.stash[_CHOSEN])
    out = out or (path.endswith("tests/integration/machines") and _no_machines())
    return True if out else None


@pytest.fixture(scope="session")
def provider(pytestconfig: pytest.Config) -> Provider:
    """What serves the fixtures of this run."""
    return pytestconfig.stash[_CHOSEN]


def _untested(provider: Provider) -> str:
    """Why containers cannot be tried here, "" when they can. Nothing is downloaded unless they were asked for."""
    if not provider.engine:
        return "not tested, no Docker engine answers"
    missing = [] if provider.asked else [name for name in provider.images.values() if not _is_here(name)]
    return f"not tested, there is no image {missing[0]} here (--servers containers fetches it)" if missing else ""


@cache
def _no_machines() -> str:
    """Why machines cannot be tried here, "" when they can."""
    why = why_no_machines()
    return f"not tested, {why}" if why else ""


@cache
def _engine() -> str:
    return containers.engine()


@cache
def _is_here(image: str) -> bool:
    return containers.has_image(image)
