"""PyFlink as a peer of our dataflows: from PyPI, in an environment of its own, from topic to topic of one broker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scribengin.errors import ArtifactUnavailable, ServerDown
from scribengin_dev.bench.clients.jobs import Job, run_job
from scribengin_dev.bench.nexmark.flink import statement, tables
from scribengin_dev.bench.peers.kafka import KafkaPeer
from scribengin_dev.servers.jars.artifacts import jars_of
from scribengin_registry.java.runtime import cache_directory, find_java

VERSION = "2.2.1"
"""The last one that Kafka's connector is there for."""
LOCK = "flink-kafka"
_CLIENT = Path(__file__).parents[1] / "clients" / "flink.py"
_INSTALL_TIMEOUT_S = 900
_MANAGED_SHARE = 4
"""One part of so many of the memory is for RocksDB."""
_CHECKPOINT_S = 1
MS_PER_S = 1000


class FlinkPeer:
    """Flink's queries over a broker's topics, on as many cores as ours."""

    def __init__(self, kafka: KafkaPeer, folder: Path) -> None:
        """`folder` is its own, and there is none yet. Raises ArtifactUnavailable, and as `jars_of`."""
        self._kafka = kafka
        self._folder = folder
        self._jars = jars_of(LOCK)
        self._python = _environment()

    @property
    def title(self) -> str:
        """What it is, and what it guarantees."""
        connector = next(jar.stem.rpartition("kafka-")[2] for jar in self._jars if "flink-connector" in jar.name)
        return (
            f"PyFlink {VERSION}, Kafka connector {connector}, RocksDB with incremental checkpoints every "
            f"{_CHECKPOINT_S} s, object reuse, from a topic to a topic: at least once, with {self._kafka.title}"
        )

    def rate(
        self, query: str, topic: str, ends: Sequence[Sequence[int]], *, runs: int, cores: int, memory_mb: int
    ) -> float:
        """Events a second between two ends of the topic, each given by partition: a run up to the later one less a run
        up to the earlier one, so that starting, and the last checkpoint, do not count. The median. Raises ServerDown.
        """
        sink = self._kafka.new_topic(partitions=cores)
        job: Job = {
            "system": "flink",
            "job": query,
            "conf": self._conf(cores, memory_mb),
            "parts": [tables(query, self._kafka.bootstrap, topic, sink, end) for end in ends],
            "insert": statement(query),
            "runs": runs,
        }
        java_mb = memory_mb - memory_mb // _MANAGED_SHARE
        environment = {**_plain(), "JAVA_HOME": str(find_java().home), "JVM_ARGS": f"-Xmx{java_mb}m"}
        rest_ms = run_job(job, [str(self._python), str(_CLIENT)], environment)["rest_ms"]
        earlier, later = ends
        events = sum(later) - sum(earlier)
        if rest_ms <= 0:
            raise ServerDown(f"Flink took no longer for {events:,} more events of {query}: {rest_ms:,} ms")
        return MS_PER_S * events / rest_ms

    def _conf(self, cores: int, memory_mb: int) -> dict[str, str]:
        return {
            "pipeline.jars": ";".join(jar.as_uri() for jar in self._jars),
            "pipeline.object-reuse": "true",
            "parallelism.default": str(cores),
            "state.backend.type": "rocksdb",
            "execution.checkpointing.interval": f"{_CHECKPOINT_S} s",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.dir": (self._folder / "checkpoints").absolute().as_uri(),
            "taskmanager.memory.managed.size": f"{memory_mb // _MANAGED_SHARE} mb",
            "table.local-time-zone": "UTC",
        }


def _environment() -> Path:
    """The Python that has PyFlink; made once, in the cache of this user. Raises ArtifactUnavailable."""
    place = cache_directory() / f"pyflink-{VERSION}-python{sys.version_info.major}.{sys.version_info.minor}"
    python = place / "bin" / "python"
    if not (place / "made").exists():
        shutil.rmtree(place, ignore_errors=True)  # half of one, as of a run that was ended
        _run([sys.executable, "-m", "venv", str(place)])
        _run([str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"])
        (place / "made").touch()
    return python


def _run(words: list[str]) -> None:
    try:
        subprocess.run(words, check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, env=_plain())
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", None) or error).strip().splitlines()
        raise ArtifactUnavailable(f"PyFlink {VERSION} cannot be installed: {said[-1] if said else error}") from error


def _plain() -> dict[str, str]:
    """This process's environment without what makes a Python find our modules."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
