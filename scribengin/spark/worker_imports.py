"""What Spark's Python workers have imported, and their search for garbage.

PySpark looks for garbage behind every task, among all objects of the process. Most of those are modules of PySpark,
PyArrow and pandas, and never garbage. A look takes 40 ms of a core, and four processes look in each round: a third of
what a dataflow between logs did. Python can be told not to look at them again.
"""

from __future__ import annotations

import gc
import sys

_modules = 0
"""How many were there when it was last told so, in this process."""


def spare_imports() -> None:
    """Called where a task of a Python worker begins: what was imported since the last one is not looked at again.

    Some modules come only while the first task ends. No garbage is kept: it is collected first.
    """
    global _modules
    if len(sys.modules) != _modules:
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
