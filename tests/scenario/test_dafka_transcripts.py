"""Every transcript in `dafka/` is what happens: who says what to whom, and what consumers get."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from scribengin.dafka.state import StartOf
from scribengin.dafka.wire import Message
from tests.scenario.dafka_world import TOPIC, Faults, World
from tests.scenario.transcripts import expect_transcript

TRANSCRIPTS = sorted((Path(__file__).parent / "dafka").glob("*.txt"))


def shown(sender: str, message: Message) -> str:
    """One message in a line, without what is the same everywhere."""
    fields = {name: _as_text(value) for name, value in message._asdict().items()}
    told = " ".join(f"{name}={value}" for name, value in fields.items() if value != TOPIC)
    return f"{sender}: {type(message).__name__} {told}"


def _as_text(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    return [one.decode() for one in value] if isinstance(value, list) else value


def do(world: World, line: str) -> list[str]:
    """Do what a line says: `producer P`, `consumer C`, `store S`, `publish P 3`, `kill P`, `wait 2`, and `lose` or
    `carry` everything from now on. `c-consumer C` and `c-store S` hear what C programs hear. `since C 2.5` is a
    consumer that begins with what was published from then on, in seconds."""
    what, _, rest = line.partition(" ")
    before = {name: {p: len(records) for p, records in got.items()} for name, got in world.got.items()}
    del world.sent[:]
    del world.given_up[:]
    acts = {
        "producer": lambda: world.add_producer(rest),
        "consumer": lambda: world.add_consumer(rest),
        "store": lambda: world.add_store(rest),
        "c-consumer": lambda: world.add_consumer(rest, batches=False),
        "c-store": lambda: world.add_store(rest, batches=False),
        "since": lambda: add_since(world, *rest.split()),
        "kill": lambda: world.kill(rest),
        "wait": lambda: world.pass_time(float(rest)),
        "publish": lambda: world.publish(rest.split()[0], int(rest.split()[1])),
        "lose": lambda: setattr(world, "faults", Faults(lost=100)),
        "carry": lambda: setattr(world, "faults", Faults()),
    }
    acts[what]()
    world.run()
    said = [shown(sender, message) for sender, message in world.sent]
    for name, got in world.got.items():
        for partition, records in got.items():
            new = records[before.get(name, {}).get(partition, 0) :]
            if new:
                said.append(f"{name} gets {new[0][0]} to {new[-1][0]} of {partition.address}")
    said += [f"{name} gives up {one.partition.address}" for name, one in world.given_up]
    return said or ["nothing"]


def add_since(world: World, name: str, seconds: str) -> None:
    world.add_consumer(name, StartOf("latest", since_ms=int(float(seconds) * 1000)))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_transcript_is_what_happens(path: Path, request: pytest.FixtureRequest) -> None:
    expect_transcript(path, partial(do, World()), request.config)


def test_there_are_transcripts_of_dafka() -> None:
    assert len(TRANSCRIPTS) >= 4
