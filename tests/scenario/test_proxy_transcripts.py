"""Every transcript in `proxies/` is what happens: what clients and proxies say to each other, and what logs hold then.

The requests and answers are those of the wire, carried as bytes; only the sockets are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.scenario.proxies_world import ProxiesWorld
from tests.scenario.transcripts import expect_transcript

TRANSCRIPTS = sorted((Path(__file__).parent / "proxies").glob("*.txt"))


def do(world: ProxiesWorld, line: str) -> list[str]:
    """Do what a line says: `log L`, `proxy P logs_max=1`, `client A`, `A writes L 3`, `A asks seal L`, `read L`,
    `kill P`, `end P`, `doom P` (it dies before its next answer), `cut P`, `heal P`, `lose answer`, `steal L`,
    `balance P`, `wait 5`."""
    what, *rest = line.split()
    words = [word for word in rest if "=" not in word]
    fields = {key: _value(value) for key, value in (word.split("=") for word in rest if "=" in word)}
    world.told = []
    acts: dict[str, Callable[[], object]] = {
        "log": lambda: world.log(words[0]),
        "proxy": lambda: world.proxy(words[0], **fields),
        "client": lambda: world.client(words[0]),
        "kill": lambda: world.kill(words[0]),
        "doom": lambda: world.dying.add(words[0]),
        "end": lambda: world.end(words[0]),
        "cut": lambda: world.cut.add(words[0]),
        "heal": lambda: world.cut.discard(words[0]),
        "lose": lambda: setattr(world, "lose", words[0]),
        "balance": lambda: world.balance(words[0]),
        "steal": lambda: world.steal(words[0]),
        "read": lambda: world.read(words[0]),
        "wait": lambda: world.wait(float(words[0])),
    }
    if what in acts:
        acts[what]()
    elif words[0] == "writes":
        world.writes(what, words[1], int(words[2]))
    else:
        world.asks(what, words[1], words[2], **fields)
    return world.told or ["nothing"]


def _value(text: str) -> object:
    """A number, places of a record, or yes or no."""
    if "/" in text:
        return [int(part) for part in text.split("/")]
    return text == "yes" if text in ("yes", "no") else int(text)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_transcript_is_what_happens(path: Path, request: pytest.FixtureRequest) -> None:
    with closing(ProxiesWorld()) as world:
        expect_transcript(path, lambda line: do(world, line), request.config)


def test_there_are_transcripts_of_proxies() -> None:
    assert len(TRANSCRIPTS) >= 6
