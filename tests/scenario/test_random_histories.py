"""Whatever happens to a dataflow, in whatever order: no task ever stands twice, generations only grow, and it heals.

Random histories run in the same world as the transcripts, which itself refuses instructions that contradict what stands
in the registry. After each one the world is made well again, and the master must bring everything where it belongs.
"""

from __future__ import annotations

import random

import pytest

from scribengin.dataflow.registry.descriptors import FINAL_STATES
from tests.scenario.world import World

SEEDS = range(150)
STEPS = 60
HEALING_STEPS_MAX = 400


class History:
    """One random history. Every line is kept, so that a failure can be read, and made a transcript of."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World()
        self.lines: list[str] = []
        self.masters = 1
        self.last_generation = 0
        self.late: list[str] = []
        """What was found at the last look, and may still be heard."""
        per_worker = self.random.randint(1, 2)
        self.happen(f"submit endless=1 workers={self.random.randint(0, 3)} executors_per_worker={per_worker}")
        self.streams = self.random.randint(1, 7)
        self.happen(f"tasks {self.streams}")

    def happen(self, line: str) -> list[str]:
        self.lines.append(line)
        answer = self.world.run(line)
        new = [int(words.split(" generation ")[1].split()[0]) for words in answer if words.startswith("Assign ")]
        assert new == sorted(set(new)), "generations are given out in order"
        assert not new or new[0] > self.last_generation, "a generation was used twice"
        self.last_generation = max([self.last_generation, *new])
        return answer

    def disturb(self) -> None:
        """Let one thing happen that may happen now."""
        worker = self.random.choice(sorted(self.world.containers) or [""])
        lines = ["advance 1", "advance 40", f"edit workers={self.random.randint(0, 3)}"]
        lines += [f"edit desired_state={self.random.choice(['running', 'paused'])}", "new-master master-"]
        lines += [f"edit container.memory_mb={self.random.randint(1, 9)}024", "edit rebalance=" + str(len(self.lines))]
        lines += [f"edit tasks={self.random.randint(1, 7)}", self.regrouped(), self.regrouped()]
        self.streams += self.random.random() < 0.05
        lines += [*self.joined(), *self.taken(), *self.made(), "readers are behind", "readers have read"]
        lines += ["look", *self.late, *self.gone_on()]
        if worker:
            lines += self.deeds_of(worker)
        line = self.random.choice(lines)
        if line == "new-master master-":
            self.masters += 1
            line += str(self.masters)
        if line == "look":
            self.late = [f"late {found}" for found in (*self.joined(), *self.taken(), *self.taken(), *self.made())]
        self.happen(line)

    def deeds_of(self, worker: str) -> list[str]:
        if worker not in self.world.workers:
            gone = f"{worker} exits 1 young"
            return [gone] if worker in self.removed() else [f"{worker} registers", gone]
        if not self.world.workers[worker].alive:
            return [f"{worker} exits -9"]
        releasing = [t for t, (slot, a) in self.world.places.items() if slot.worker == worker and a.release]
        deeds = [f"{worker} exits -9", f"{worker} expires"] + [f"{worker} is ready"] * 4 + [f"{worker} runs"] * 3
        running = [t for t, (slot, a) in self.world.places.items() if slot.worker == worker and not a.release]
        deeds += [f"{worker} finishes {self.random.choice(running)}"] * 2 if running else []
        return deeds + [f"{worker} releases {' '.join(releasing)}"] * 4 * bool(releasing) + [f"{worker} leaves"]

    def regrouped(self) -> str:
        """The streams as the config wants them grouped."""
        count = min(self.world.config.tasks or self.streams, self.streams)
        groups = [",".join(str(n) for n in range(k, self.streams, count)) for k in range(count)]
        return f"regroup {' '.join(groups)}"

    def joined(self) -> list[str]:
        """Streams that no task reads yet join tasks, if there are as many of these as are wanted."""
        read = {stream.name for task in self.world.tasks.values() for stream in task.sources}
        left = [n for n in range(self.streams) if f"in/{n}" not in read]
        if not left or not self.world.tasks or self.world.grouped_for != self.world.config.tasks:
            return []
        return [f"join {self.random.choice(sorted(self.world.tasks))}={','.join(map(str, left))}"]

    def taken(self) -> list[str]:
        """Of streams that no task reads yet, one takes a task whose own are gone, most often one that has finished."""
        found = [line.partition("=")[2].split(",") for line in self.joined()]
        tasks = sorted(self.finished() or self.world.tasks)
        return [f"take {self.random.choice(tasks)}={self.random.choice(numbers)}" for numbers in found]

    def made(self) -> list[str]:
        """Of streams that no task reads yet, one gets a task of its own."""
        return [f"new {self.random.choice(line.partition('=')[2].split(','))}" for line in self.joined()]

    def gone_on(self) -> list[str]:
        """Streams of a task go on that had ended."""
        finished = sorted(self.finished())
        return [f"go-on {self.random.choice(finished)}"] if finished else []

    def finished(self) -> set[str]:
        return self.world.master.placement.finished & self.world.tasks.keys() if self.world.master else set()

    def removed(self) -> set[str]:
        """Containers of workers that have registered once, and whose nodes are gone."""
        registered = {line.split()[0] for line in self.lines if line.endswith(" registers")}
        return {name for name in self.world.containers if name in registered and name not in self.world.workers}

    def balanced(self) -> bool:
        """Whether the tasks were last spread by load, and stay so."""
        return self.world.head.balanced == tuple(sorted(self.world.workers))

    def heal(self, wanted: str) -> None:
        """From now on every worker does what it is asked to, and nothing dies."""
        self.happen(f"edit workers=2 desired_state={wanted}")
        self.happen("readers have read")
        for _ in range(HEALING_STEPS_MAX):
            before = (dict(self.world.places), list(self.world.containers), self.world.status)
            self.happen("advance 1")
            regrouping = self.world.grouped_for != self.world.config.tasks
            for line in [self.regrouped()] if regrouping else [*self.joined(), *self.gone_on()]:
                self.happen(line)
            for worker in list(self.world.containers):
                self.behave(worker)
            if self.world.status.state in FINAL_STATES:
                return
            if self.world.status.state == "stopping":
                self.happen("last-maintenance")
            if wanted == "running" and before == (self.world.places, self.world.containers, self.world.status):
                return
        raise AssertionError("it never came to rest")

    def behave(self, worker: str) -> None:
        known = self.world.workers.get(worker)
        if worker in self.removed() or (known is not None and (not known.alive or known.report.leaving)):
            self.happen(f"{worker} exits 0")
        elif known is None:
            self.happen(f"{worker} registers")
        elif not known.report.spark_ready:
            self.happen(f"{worker} is ready")
        else:
            mine = {t: a for t, (slot, a) in self.world.places.items() if slot.worker == worker}
            releasing = [task for task, assignment in mine.items() if assignment.release]
            running = [task for task, assignment in mine.items() if not assignment.release]
            if running:
                self.happen(f"{worker} runs {' '.join(running)}")
            if releasing:
                self.happen(f"{worker} releases {' '.join(releasing)}")


@pytest.mark.parametrize("wanted", ["running", "stopped"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_dataflow_heals_from_any_history(seed: int, wanted: str) -> None:
    history = History(seed)
    try:
        for _ in range(STEPS):
            history.disturb()
        history.heal(wanted)
        check(history, wanted)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}\n" + "\n\n".join(history.lines)) from error


def check(history: History, wanted: str) -> None:
    world = history.world
    if wanted == "stopped":
        assert world.status.state == "stopped"
        assert not world.unclean, "a stopped dataflow has left rounds half done"
        assert not world.workers
        assert not world.containers
        return
    assert world.status.state == "running"
    assert set(world.places) == set(world.tasks)
    assert sorted(s.name for task in world.tasks.values() for s in task.sources) == sorted(
        f"in/{n}" for n in range(history.streams)
    )
    assert world.grouped_for == world.config.tasks
    assert not any(assignment.release for _, assignment in world.places.values())
    assert all(worker.config_version >= world.workers_since for worker in world.workers.values())
    held = [sum(slot.worker == worker for slot, _ in world.places.values()) for worker in world.workers]
    assert len(held) == 2
    assert max(held) - min(held) <= 1 or history.balanced(), "tasks stand unevenly, and were not balanced so"
