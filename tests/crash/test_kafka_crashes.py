"""Exactly once with a transaction coordinator: the same harness as test_round_crashes, for a flow whose rounds Kafka
decides.

A task writes a topic and a log in every round. Whatever happens to its owner, both must hold every record once. Owners
are simulated, and Kafka is in memory: every stop is tried in every way, Kafka's own answers get lost, its marks come
late. `test_kafka_processes.py` has real owners on a real broker.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache, partial

import pytest

from scribengin.testing.memory.registry import Loss
from tests.crash.simulated import SimulatedOwner, Stage, simulated
from tests.crash.stops import COMMITTED, DECIDED, FINISHED, PREPARED, STAGED, Stop, stops_to_try
from tests.crash.test_round_crashes import killed, killed_twice, paused, recovered, unanswered, undisturbed
from tests.house.failpoints import failpoint_names

TASKS = pytest.mark.parametrize("tasks", [1, pytest.param(3, marks=pytest.mark.full)])
BASES = (STAGED, PREPARED, DECIDED, COMMITTED)
ACTS = ("init_transactions", "produce", "send_offsets", "commit", "committed")
SEEDS = 60
OWNERS_MAX = 4
TRIES_MAX = 5

# Kafka's effects that no round of this flow meets, and where they are stopped instead.
ELSEWHERE = {
    "kafka.abort": "a round that is rolled back by its owner: check_sink crashes there, in test_sink_conformance",
    "kafka.produce_at_once": "at least once, where a crash may leave records twice: test_kafka_sink",
}
with_kafka = partial(simulated, kafka=True)


@cache
def stops(tasks: int) -> tuple[str, ...]:
    """What an undisturbed owner passes."""
    return tuple(with_kafka(tasks, undisturbed))


@TASKS
def test_a_killed_owner_is_taken_over_from_wherever_it_stopped(tasks: int) -> None:
    problems = []
    for stop in stops_to_try(stops(tasks)):
        problems += with_kafka(tasks, partial(killed, stop))
    assert not problems, "\n".join(problems)


@TASKS
@pytest.mark.parametrize("base", BASES, ids=["staged", "prepared", "decided", "committed"])
def test_a_recovery_that_is_killed_is_recovered_from(tasks: int, base: Stop) -> None:
    passed = with_kafka(tasks, partial(recovered, base))
    problems = []
    for stop in stops_to_try(passed[: passed.index("kafka.produce:before")]):
        problems += with_kafka(tasks, partial(killed_twice, base, stop))
    assert not problems, "\n".join(problems)


@TASKS
def test_an_owner_that_lost_the_registrys_reply_finds_out_what_happened(tasks: int) -> None:
    problems = []
    for stop in stops_to_try(stops(tasks)):
        if stop.name.endswith(":before"):
            problems += with_kafka(tasks, partial(unanswered, stop.but("lose_reply")))
    assert not problems, "\n".join(problems)


@TASKS
def test_a_stalled_owner_that_resumes_after_another_took_over_writes_nothing(tasks: int) -> None:
    problems = []
    for stop in stops_to_try(stops(tasks)):
        problems += with_kafka(tasks, partial(paused, stop.but("pause")))
    assert not problems, "\n".join(problems)


def lost(act: str, number: int, loss: Loss) -> Callable[[str, str], Loss | None]:
    """Lose the n-th request of that kind, or its answer."""
    seen: Counter[str] = Counter()

    def lose(asked: str, _name: str) -> Loss | None:
        seen[asked] += 1
        return loss if (asked, seen[asked]) == (act, number) else None

    return lose


def asked(stage: Stage) -> list[str]:
    """What an undisturbed owner asks of Kafka."""
    found: list[str] = []
    stage.kafka.lose = lambda act, _name: found.append(act)
    assert stage.own_to_the_end(1).code == FINISHED
    return found


def owned_by_somebody(stage: Stage, first: int) -> None:
    """Run owners, as a worker does, until one has come to the end."""
    codes = [stage.own_to_the_end(first).code]
    while codes[-1] != FINISHED:
        assert len(codes) < TRIES_MAX, f"the owners ended with {codes}"
        codes.append(stage.own_to_the_end(first + len(codes)).code)


def unanswered_by_kafka(act: str, number: int, loss: Loss, stage: Stage) -> list[str]:
    stage.kafka.lose = lost(act, number, loss)
    owned_by_somebody(stage, 1)
    return stage.wrong((act, loss))


@TASKS
@pytest.mark.parametrize("loss", ["request", "reply"])
def test_an_owner_that_lost_a_request_or_a_reply_of_kafkas_finds_out_what_happened(tasks: int, loss: Loss) -> None:
    problems = []
    for stop in stops_to_try(with_kafka(tasks, asked)):
        problems += with_kafka(tasks, partial(unanswered_by_kafka, stop.name, stop.occurrence, loss))
    assert not problems, "\n".join(problems)


def tossed_about(tasks: int, chance: random.Random, stage: Stage) -> list[str]:
    """Owners follow each other, each stopped somewhere, or with a loss; the paused ones go on at the end."""
    stage.kafka.mark_after_s = lambda _id, _place: chance.choice((0.0, 0.0, 0.05, 1.0))
    late: list[SimulatedOwner] = []
    generation = 0
    for generation in range(1, chance.randrange(1, OWNERS_MAX) + 1):
        stage.kafka.lose = lost(chance.choice(ACTS), chance.randrange(1, 6), chance.choice(("request", "reply", None)))
        stop = Stop(chance.choice(stops(tasks)), chance.choice(("kill", "pause", "lose_reply")), chance.randrange(1, 4))
        owner = stage.start(generation, stop)
        if stage.wait_until_paused(owner):
            late.append(owner)
    owned_by_somebody(stage, generation + 1)
    problems = stage.wrong("before the late ones go on")
    stage.outlast_pause()
    for owner in late:
        stage.finish(owner)
    owned_by_somebody(stage, generation + 1 + TRIES_MAX)
    return problems + stage.wrong("after the late ones went on")


@pytest.mark.parametrize("seed", [*range(SEEDS), *(pytest.param(s, marks=pytest.mark.full) for s in range(60, 3000))])
def test_whatever_happens_to_owners_every_record_is_there_once(seed: int) -> None:
    chance = random.Random(seed)
    tasks = chance.choice((1, 1, 3))
    stops(tasks)  # which is a simulation of its own
    problems = with_kafka(tasks, partial(tossed_about, tasks, chance), seed)
    assert not problems, "\n".join(problems)


def test_every_effect_of_kafka_in_the_code_is_one_of_the_stops() -> None:
    passed = {*stops(1), *with_kafka(1, partial(recovered, DECIDED))}
    tried = {name.rsplit(":", 1)[0] for name in passed}
    wanted = set(failpoint_names("kafka."))
    assert sorted(wanted - tried) == sorted(ELSEWHERE)
    assert {"round.prepare", "ownership.resolve"} <= tried
