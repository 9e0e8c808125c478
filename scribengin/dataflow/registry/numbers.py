"""Names and generations are never used twice in a registry, not even by a dataflow that is submitted again after it was
deleted: a process that nobody could reach may think that it is the deleted one's still.

What a deleted dataflow has used up to is kept: of its workers and masters by its name, of generations for the whole
registry, because a sink may go from one dataflow to another. Epochs are never below generations (ownership.py), so they
grow with them.
"""

from __future__ import annotations

from contextlib import suppress

from scribengin.base.model import Descriptor
from scribengin.dataflow.registry.paths import NUMBERS, numbers_of_name
from scribengin_registry.compare_and_set import compare_and_set
from scribengin_registry.contract import Node, Registry
from scribengin_registry.errors import NodeExists


class Numbers(Descriptor):
    """The first of each that was never used."""

    worker: int = 1
    master: int = 1
    generation: int = 1

    def reached(self, other: Numbers) -> Numbers:
        """The greater of each."""
        return Numbers(
            worker=max(self.worker, other.worker),
            master=max(self.master, other.master),
            generation=max(self.generation, other.generation),
        )


def first_numbers(registry: Registry, dataflow: str) -> tuple[Numbers, int]:
    """Where a dataflow of that name begins, and the version of the node that is to stand until it has begun."""
    of_all, version = _read(registry, NUMBERS)
    of_name, _ = _read(registry, numbers_of_name(dataflow))
    return Numbers(worker=of_name.worker, master=of_name.master, generation=of_all.generation), version


def keep_numbers(registry: Registry, dataflow: str, reached: Numbers) -> None:
    """Whoever comes later begins there, or above. Before anything of the dataflow is deleted."""
    _raise(registry, numbers_of_name(dataflow), Numbers(worker=reached.worker, master=reached.master))
    _raise(registry, NUMBERS, Numbers(generation=reached.generation))


def _read(registry: Registry, path: str) -> tuple[Numbers, int]:
    node = _node(registry, path)
    return _numbers(node.data, path), node.version


def _node(registry: Registry, path: str) -> Node:
    while (node := registry.find(path)) is None:
        with suppress(NodeExists):
            registry.create(path, Numbers().to_bytes(), parents=True)
    return node


def _numbers(data: bytes, path: str) -> Numbers:
    return Numbers.from_bytes(data, path=path) if data else Numbers()


def _raise(registry: Registry, path: str, reached: Numbers) -> None:
    def change(data: bytes) -> bytes:
        return _numbers(data, path).reached(reached).to_bytes()

    compare_and_set(lambda: _node(registry, path), registry, path, change)
