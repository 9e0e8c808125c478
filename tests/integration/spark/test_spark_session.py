"""The session's life: where it starts, what it leaves behind, and what is said when it cannot start or dies.

Each test runs its session in a process of its own: a process has one, and the other tests share theirs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from scribengin.base.process.scratch import ScratchDirectory
from scribengin.spark.session.session import SCRATCH_PREFIX

pytestmark = pytest.mark.spark

FLOW = """
from scribengin.connectors.contract import RECORD_SCHEMA
from scribengin.spark.transform.transformation import *
import pyarrow as pa
def load(session):
    sql = {"out": "SELECT upper(cast(payload as string)) AS payload FROM src"}
    inputs, outputs = {"src": InputSpec("src", RECORD_SCHEMA)}, {"out": OutputSpec("out")}
    return Transformation.load(TransformationSpec("flow", None, sql, None, {}, inputs, outputs), session)
RECORDS = pa.table([[0], ["c"], [b"k"], [b"a"]], schema=RECORD_SCHEMA)
"""


def run(script: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `script` in a new process, whose temporary directory is `tmp_path/tmp`."""
    temp = tmp_path / "tmp"
    temp.mkdir(exist_ok=True)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temp), **environment}
    text = f"from scribengin.spark.session import *\nfrom scribengin.errors import *\n{FLOW}{textwrap.dedent(script)}"
    return subprocess.run(
        [sys.executable, "-c", text], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
    )


def test_a_session_is_quiet_tells_nobody_has_room_for_a_large_round_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """From a directory that cannot be written, with output of a user's function in the log, twice in a process. What it
    is told stands in no command line, and its ports ask for a key. The driver maps the output of a round: it needs far
    less than a few times the round."""
    here = tmp_path / "read-only"
    here.mkdir(mode=0o555)
    (tmp_path / "secret").write_text("hunter2 Gr\u00fc\u00dfe = \\\\ #\n", encoding="utf-8")
    script = f"""
    import os, resource, subprocess
    def large_rounds(transformation):
        rows = 64 * 1024
        payload = pa.array([b"%01024d" % n for n in range(rows)], pa.binary())
        table = pa.table([range(rows), ["c"] * rows, [b"k"] * rows, payload], schema=RECORD_SCHEMA)
        transformation.run_tables({{"src": table.slice(0, 10)}})
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(2):
            outputs = transformation.run_tables({{"src": table}})
            yield sum(batch.num_rows for batch in outputs["out"])
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) // 1024
        yield grown_mb if grown_mb > 4 * 64 else "little"
    os.chdir({str(here)!r})
    before = dict(os.environ)
    told = {{"spark.x.password": "${{file:{tmp_path}/secret}}", "spark.y": "pass-word-y"}}
    told["spark.authenticate"] = "false"
    for turn, conf in enumerate((None, told)):
        session = start_session("quiet", memory_mb=1024, conf=conf)
        transformation = load(session)
        print(transformation.run_tables({{"src": RECORDS}})["out"][0]["payload"].to_pylist())
        if not turn:
            print(*large_rounds(transformation))
        else:
            print(*map(session.conf.get, ("spark.x.password", "spark.y", "spark.authenticate")))
            lines = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True).stdout
            print("hunter2" in lines, "pass-word-y" in lines)
        stop_session()
    stop_session()
    assert before.items() <= os.environ.items()
    assert not {{"SPARK_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"}} & (os.environ.keys() - before.keys())
    """
    written = tmp_path / "script.py"  # the test's own command line is in the list, too
    written.write_text(textwrap.dedent(script))
    done = run(f"exec(open({str(written)!r}).read())", tmp_path)
    told = "hunter2 Gr\u00fc\u00dfe = \\\\ # pass-word-y true\n"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"[b'A']\n65536 65536 little\n[b'A']\n{told}False False\n"
    assert [entry.name for entry in (tmp_path / "tmp").iterdir()] == []
    assert list(here.iterdir()) == []


@pytest.mark.full
def test_a_brief_session_compiles_lightly_and_its_python_workers_have_pyspark_from_where_this_process_has_it(
    tmp_path: Path,
) -> None:
    """Not from Spark's zip, whose modules every process compiles anew. Of two options that say the same, the user's is
    the last one (what is told to other sessions: `unit/spark/test_session_settings.py`). NumPy starts no threads in
    those that only plan. All that in a temporary directory of a long path: Unix sockets must have short ones; there are
    none then."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    script = """
    import pyspark
    def where(batches):
        import pyspark
        yield pa.record_batch([[pyspark.__file__]], names=["path"])
    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=3"}
    session = start_session("where", master="local[1]", conf=conf, brief=True)
    with open(f"/proc/{session.sparkContext._gateway.proc.pid}/cmdline") as file:
        print(*[word[-1] for word in file.read().split(chr(0)) if "Tiered" in word][-2:])
    with open(f"/proc/{session.sparkContext._gateway.proc.pid}/environ") as file:
        print(*[word for word in file.read().split(chr(0)) if word.startswith("OMP_")])
    (path,) = session.range(1).mapInArrow(where, "path string").toArrow()["path"].to_pylist()
    print(path == pyspark.__file__)
    stop_session()
    """
    environment = {"SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"].replace("-XX:TieredStopAtLevel=1", "")}
    done = run(script, tmp_path, TMPDIR=str(deep), **environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 3\nOMP_NUM_THREADS=1\nTrue\n", "")
    assert list(deep.iterdir()) == []


def test_without_java_one_line_says_so(tmp_path: Path) -> None:
    script = """
    from scribengin_registry.java import runtime as java
    java._candidates = lambda: iter([])  # this machine has one; what is under test is what is said without
    try:
        start_session("no-java")
    except SparkUnavailable as error:
        print(error)
    """
    done = run(script, tmp_path)
    assert done.stdout.startswith("Spark needs Java: no Java 17")
    assert done.stdout.count("\n") == 1


def test_a_session_that_does_not_start_or_dies_says_so_and_what_its_process_leaves_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be tried again, and a JVM that died is told from bad records. In the end the process is killed."""
    script = """
    import os, signal
    from pyspark import SparkContext
    for conf in ({"spark.driver.memory": "lots"}, {"spark.master": "local[no]"}, {}):
        try:
            session = start_session("tries", conf=conf)
            print(session.range(3).count())
        except SparkUnavailable as error:
            print(error)
    try:
        start_session("second")
    except SparkUnavailable as error:
        print(error)
    transformation = load(session)
    transformation.run_tables({"src": RECORDS})
    process = SparkContext._gateway.proc
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for run in (lambda: transformation.run_tables({"src": RECORDS}), lambda: load(session).check()):
        try:
            run()
        except SparkUnavailable as error:
            print(error)
    stop_session()
    print(load(start_session("again")).run_tables({"src": RECORDS})["out"][0].num_rows, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    done = run(script, tmp_path)
    lots, nowhere, counted, second, running, planning, again = done.stdout.splitlines()
    assert lots.startswith("Spark did not start: Invalid maximum heap size")
    assert nowhere.startswith("Spark did not start: ")
    assert "local[no]" in nowhere
    assert counted == "3"
    assert "has a Spark session already" in second
    assert running.startswith("Spark's JVM went away while running the transformation of flow")
    assert planning.startswith("Spark's JVM went away while planning the transformation of flow")
    assert again == "1"
    assert done.returncode == -signal.SIGKILL
    left = list((tmp_path / "tmp").iterdir())
    assert len(left) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    mine = ScratchDirectory(SCRATCH_PREFIX)
    other = ScratchDirectory(SCRATCH_PREFIX)
    assert not left[0].exists()
    assert mine.path.exists()
    mine.remove()
    other.remove()
