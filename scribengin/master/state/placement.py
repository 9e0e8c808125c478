"""Where the tasks of a dataflow stand, and how they move: placed, released, drained, regrouped, balanced. Pure.

A task is *clean* when its last owner reported its end, or it never had one: then nothing of it is staged or waits to be
completed. A task whose owner was lost is not, and is never left so: even a stopping dataflow gives it to somebody once
more, only to take it over and release it. A new master does not know which tasks are clean, and takes none for it.

What is to be changed in the registry collects in `changes`, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from scribengin.base.names import a_few, natural
from scribengin.base.text.counting import many
from scribengin.dataflow.registry.descriptors import PlacementHead, TaskDescriptor, TaskReport
from scribengin.dataflow.registry.view import Placement
from scribengin.dataflow.tasks import StreamKey, stream_key
from scribengin.master.state import events as ev
from scribengin.master.state.facts import TaskPlace
from scribengin.master.state.spreading import Slot, Spread, balanced, filled, spread

Executors = Mapping[str, Sequence[str]]


class TaskPlacement:
    """The tasks, their places, and the head that generations are counted in."""

    def __init__(self, tasks: Mapping[str, TaskDescriptor], head: PlacementHead, grouped_for: int | None) -> None:
        """`grouped_for`: what the config's `tasks` was when these were made."""
        self.tasks = dict(tasks)
        self.head = head
        self.grouped_for = grouped_for
        self.finished: set[str] = set()
        self.changes: list[ev.RegistryInstruction] = []
        self._places: dict[str, TaskPlace] = {}
        self._clean: set[str] = set(tasks) if head.next_generation == head.first_generation else set()
        self._to_come: dict[str, TaskDescriptor] | None = None
        self._growing: dict[str, TaskDescriptor] = {}
        self.unread: ev.Drained | None = None
        """What has drained so that all can be grouped anew, and may not have been read by those who read its output."""
        self._read = False
        self._destined: dict[str, Slot] = {}

    def remember(self, before: TaskPlacement) -> None:
        """Take over what an earlier standing of the same leadership knew, and no snapshot says."""
        self._clean = before._clean
        self.finished = before.finished

    def restore(self, placement: Placement) -> None:
        """A task stands there. Of two places the later one counts: call this in the order of generations."""
        assignment, slot = placement.assignment, Slot(placement.worker, placement.executor)
        earlier = self._places.get(assignment.task)
        if earlier is not None:
            self.changes.append(ev.Unassign(assignment.task, earlier.slot))
        self._places[assignment.task] = TaskPlace(slot, assignment.generation, assignment.release)
        self._destined.pop(assignment.task, None)
        if assignment.next_slot is not None:
            self._destined[assignment.task] = Slot(*assignment.next_slot)

    def heard(self, worker: str, report: TaskReport) -> bool:
        """A worker has said how a task is: whether that is about the place where the task stands now."""
        place = self._places.get(report.task)
        if place is None or place.generation != report.generation or place.slot.worker != worker:
            return False
        place.done = report.state in ("released", "finished", "failed")
        if report.state == "finished":
            self.finished.add(report.task)
        return True

    def looked(self, found: ev.TasksFound) -> tuple[int, list[str]]:
        """It was looked which streams there are: how many tasks are made for it, and which are looked at once more.

        Looks do not wait until they are heard. One that has seen other tasks than there are now counts in nothing, or
        a stream would be in two tasks that an earlier look has put into one of them. The next look finds it again.
        """
        if found.seen != self.tasks:
            return 0, []
        made = self._found(found.tasks, found.grouped_for, anew=found.anew)
        self._grows(found.grown, found.grouped_for, found.left)
        return made, self.run_again(found.again)

    def _found(self, tasks: Sequence[TaskDescriptor], grouped_for: int | None, *, anew: bool) -> int:
        """Tasks were found for streams that none reads (or `anew`, for all): how many of them are made now."""
        if self.regrouping(grouped_for) != anew:
            return 0  # found before an edit
        if anew:
            self._to_come = {task.name: task for task in tasks}
            self._growing = {}
            return 0
        if not tasks or any(task.name in self.tasks for task in tasks):
            return 0  # those that an edit has grouped so meanwhile
        self.changes.append(ev.CreateTasks(tuple(tasks), grouped_for))
        self.tasks.update({task.name: task for task in tasks})
        self.grouped_for = grouped_for
        self._clean.update(task.name for task in tasks if task.name not in self._places)
        return len(tasks)

    def _grows(self, tasks: Sequence[TaskDescriptor], grouped_for: int | None, left: Set[StreamKey]) -> None:
        """Tasks there are get further streams, which none reads: all that are found to, each as it will be. Those that
        have `left` are gone."""
        if self.regrouping(grouped_for):
            return  # found before an edit
        self._growing = {task.name: task for task in tasks if self._adds(task, left)}
        self.finished -= self._growing.keys()

    def _adds(self, grown: TaskDescriptor, left: Set[StreamKey]) -> bool:
        """Whether it is the task that is there and more, but for what has left: then it has finished, or is to grow so
        already. The owner of one that runs may have more to read of what is thought to be gone."""
        task = self.tasks[grown.name]
        stay = tuple(stream for stream in task.sources if stream_key(stream) not in left)
        if stay != task.sources and task.name not in self.finished and task.name not in self._growing:
            return False
        whole = grown.sources[: len(stay)] == stay and all(sink in grown.sinks for sink in task.sinks)
        return whole and task != grown

    # -- what is known

    def regrouping(self, wanted: int | None) -> bool:
        """Whether the streams are to be grouped anew, for `wanted` tasks (as the config says it)."""
        return bool(self.tasks) and self.grouped_for != wanted

    def all_finished(self) -> bool:
        """Whether there are tasks, and none has anything left to do."""
        return bool(self.tasks) and self.finished.issuperset(self.tasks)

    def load(self) -> Counter[str]:
        """How many tasks each worker has that it has not given back."""
        return Counter(place.slot.worker for place in self._places.values() if not place.done)

    def empty(self, worker: str) -> bool:
        """Whether the worker has given everything back."""
        return all(place.done for place in self._places.values() if place.slot.worker == worker)

    def drained(self, tasks: Collection[str] | None = None) -> bool:
        """Whether all tasks (or these) have been brought to a clean end."""
        asked = self.tasks if tasks is None else tasks
        return all(self._places[task].done if task in self._places else task in self._clean for task in asked)

    def unassigned(self) -> list[str]:
        """The tasks that wait for somebody, in order."""
        return sorted((t for t in self.tasks if t not in self._places and t not in self.finished), key=natural)

    # -- moving

    def place(self, executors: Executors, route: str | None = None) -> None:
        """Have all tasks that have not finished stand on the executors: evenly, or as they were balanced. But for those
        that do not write the sink `route` yet, which was added for bad records: they will."""
        settled: dict[str, Slot] = {}
        homeless: list[str] = []
        leaving = 0
        held = self._changing()
        if route is not None:
            held |= {name for name, task in self.tasks.items() if all(stream.sink != route for stream in task.sinks)}
        for task in self.tasks:
            place = self._places.get(task)
            if task in self.finished or task in held:
                continue
            if place is None or place.done:
                homeless.append(task)
            elif place.release:
                leaving += 1
            elif place.slot.worker in executors:
                settled[task] = place.slot
            else:
                self._release(task, place)
                leaving += 1
        spreading = self._spread(executors, settled, homeless, leaving)
        for task in spreading.release:
            self._release(task, self._places[task])
        for task, slot in spreading.assign.items():
            self._assign(task, slot)

    def drain(self, executors: Executors, tasks: Collection[str] | None = None) -> None:
        """Have all tasks (or these) brought to a clean end where they stand, or by somebody else where the owner was
        lost."""
        settled: dict[str, Slot] = {}
        for task, place in self._places.items():
            if (tasks is None or task in tasks) and not place.done and not place.release:
                self._release(task, place)
            if place.slot.worker in executors:
                settled[task] = place.slot
        asked = self.tasks if tasks is None else tasks
        lost = [task for task in asked if task not in self._places and task not in self._clean]
        for task, slot in spread(executors, settled, lost).assign.items():
            self._assign(task, slot, release=True)

    def regroup(self, executors: Executors, wanted: int | None) -> str | None:
        """Bring the regrouping forward, if there is one: drain the tasks that change, wait until what they wrote was
        read, then make them anew. Says so.

        A stream goes on in another log of the sink then. Who reads both must not find its later records first.
        """
        if self._to_come is not None and not self.regrouping(wanted):
            self._to_come = None  # edited back before it was done
        if self._to_come is None:
            self.unread = None
            self._read = False
            return None
        changing, to_come = self._changing(), self._to_come
        there = [task for task in self.tasks if task in changing]
        self.drain(executors, there)
        if not self.drained(there):
            self.unread = None
            self._read = False
            return None
        if self.unread is None:
            self.unread = ev.Drained(tuple(self.tasks[task] for task in there))
        if not self._read and there:
            return None
        self.unread = None
        self._read = False
        for task in there:
            place = self._places.pop(task, None)
            if place is not None:
                self.changes.append(ev.Unassign(task, place.slot))
        made = tuple(task for name, task in to_come.items() if name in changing)
        self.changes.append(ev.ReplaceTasks(tuple(there), made, len(to_come), wanted))
        kept = len(to_come) - len(made)
        before, self.tasks = len(self.tasks), to_come
        self.finished -= changing
        self._clean = (self._clean - changing) | {task.name for task in made}
        self.grouped_for = wanted
        self._to_come = None
        return f"{many(before, 'task')} -> {len(to_come)}, {kept} of them untouched"

    def was_read(self, drained: ev.Drained) -> None:
        """What these tasks have written was read by everybody who reads it."""
        self._read = self._read or drained is self.unread

    def regroups_again(self) -> None:
        """The config's `tasks` has changed: what was found for the earlier value does not count."""
        self._to_come = None
        self._growing = {}

    def grow(self, executors: Executors) -> list[str]:
        """Bring forward what joins tasks: each drains by itself, and is made anew. Says which have been."""
        told = []
        if self._growing:
            self.drain(executors, self._growing)
        for name in [name for name in self._growing if self.drained([name])]:
            place = self._places.pop(name, None)
            if place is not None:
                self.changes.append(ev.Unassign(name, place.slot))
            before, grown = self.tasks[name], self._growing.pop(name)
            self.changes.append(ev.GrowTask(grown))
            self.tasks[name] = grown
            self._clean.add(name)
            self.finished.discard(name)  # it may have come to its end while it drained
            joined = [f"{s.source}/{s.name}" for s in grown.sources if s not in before.sources]
            joined += [f"sink {s.sink}" for s in grown.sinks if s not in before.sinks]
            gone = [f"{s.source}/{s.name}" for s in before.sources if s not in grown.sources]
            instead = f" in place of {a_few(gone)}" if gone else ""
            told.append(f"{', '.join(joined)} to {name}{instead}")
        return told

    def rebalance(self, executors: Executors, load: Mapping[str, float]) -> dict[str, Slot] | None:
        """Move tasks so that every executor has about as much to do. `load` is of each task. Returns where tasks go,
        None while it is not known what each does, or some are on their way."""
        places = {task: self._places.get(task) for task in self.tasks if task not in self.finished}
        settled = {
            task: place.slot
            for task, place in places.items()
            if place is not None and not place.release and not place.done and place.slot.worker in executors
        }
        if not executors or len(settled) < len(places) or not load.keys() >= settled.keys():
            return None
        self._destined = balanced(executors, settled, load)
        self.head = self.head.model_copy(update={"balanced": tuple(sorted(executors))})
        for task, then in self._destined.items():
            self._release(task, self._places[task], then)
        return dict(self._destined)

    def remove(self, worker: str) -> list[str]:
        """A worker's nodes go, and what stands on it. Returns the tasks that it had not brought to an end."""
        self.changes.append(ev.RemoveWorker(worker))
        on_it = [task for task, place in self._places.items() if place.slot.worker == worker]
        done = [task for task in on_it if self._places[task].done]
        for task in on_it:
            del self._places[task]
        self._clean.update(done)
        return [task for task in on_it if task not in done]

    def run_again(self, tasks: Collection[str]) -> list[str]:
        """Have those of the tasks that had finished looked at once more, and say which: where they are to be read on
        may have been moved since, or a stream goes on that had ended.

        They stand nowhere from here on, so that a new master does not take their owners' word for it either.
        """
        again = sorted(self.finished.intersection(tasks), key=natural)
        self._clean.update(self.leave(again))
        self.finished = self.finished.difference(again)
        return again

    def leave(self, tasks: Iterable[str]) -> list[str]:
        """Have those of the tasks that stand anywhere stand nowhere, and say which: nothing that is told of where they
        stood counts any more. Who has them next takes them over."""
        left = [task for task in tasks if task in self._places]
        for task in left:
            self.changes.append(ev.Unassign(task, self._places.pop(task).slot))
        return left

    def _changing(self) -> set[str]:
        """The tasks that are not the same after the regrouping that is under way, or once further streams have joined
        them."""
        if self._to_come is None:
            return set(self._growing)
        to_come = self._to_come
        return {name for name in {*self.tasks, *to_come} if self.tasks.get(name) != to_come.get(name)}

    def _spread(
        self, executors: Executors, settled: Mapping[str, Slot], homeless: Sequence[str], leaving: int
    ) -> Spread:
        if not self.head.balanced:
            return spread(executors, settled, homeless, leaving)
        if self.head.balanced != tuple(sorted(executors)):
            self.head = self.head.model_copy(update={"balanced": ()})
            self._destined = {}
            return spread(executors, settled, homeless, leaving)
        stood = {task: place.slot for task in homeless if (place := self._places.get(task)) is not None}
        back = {task: slot for task, slot in stood.items() if slot.worker in executors}
        assign = {**back, **{task: self._destined.pop(task) for task in homeless if task in self._destined}}
        others = [task for task in homeless if task not in assign]
        return Spread({**assign, **filled(executors, {**settled, **assign}, others)}, [])

    def _release(self, task: str, place: TaskPlace, next_slot: Slot | None = None) -> None:
        place.release = True
        self.changes.append(ev.Release(task, place.slot, place.generation, next_slot))

    def _assign(self, task: str, slot: Slot, *, release: bool = False) -> None:
        previous = self._places.get(task)
        generation = self.head.next_generation
        self.head = self.head.model_copy(update={"next_generation": generation + 1})
        self._places[task] = TaskPlace(slot, generation, release)
        self._clean.discard(task)
        self.changes.append(ev.Assign(task, slot, generation, previous.slot if previous else None, release))
