"""What the search for garbage leaves out, in Spark's Python workers."""

from __future__ import annotations

import subprocess
import sys

from scribengin.spark.python_daemon import TIMES_MAX

_SCRIPT = """
import gc, sys, types, weakref
from scribengin.spark.python_daemon import ImportsSpared

class Node:
    pass

def circle():
    node = Node()
    node.itself = node
    return node

gc.disable()
spared = ImportsSpared()
dead = weakref.ref(circle())
spared.before_a_task()
first = dead() is None

alive = circle()
later = weakref.ref(alive)
spared.before_a_task()
del alive
gc.collect()
second = later() is None

looked_at = len(gc.get_objects())
kept = []
for number in range(20):
    sys.modules[f"made {number}"] = types.ModuleType(f"made {number}")
    alive = circle()
    kept.append(weakref.ref(alive))
    spared.before_a_task()
    del alive
gc.collect()
print(first, second, looked_at, sum(one() is not None for one in kept))
"""


def test_it_leaves_out_what_was_imported_and_keeps_little_that_is_garbage_later() -> None:
    """In a process of its own: nothing takes it back."""
    told = subprocess.run([sys.executable, "-c", _SCRIPT], check=True, capture_output=True, text=True).stdout.split()
    garbage_of_before_went, a_task_without_imports_left_nothing_out, looked_at, kept = told
    assert garbage_of_before_went == "True"
    assert a_task_without_imports_left_nothing_out == "True"
    assert int(looked_at) < 1_000
    assert int(kept) == TIMES_MAX - 1, "however many modules its tasks make"
