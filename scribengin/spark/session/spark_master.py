"""Where a session's executors run: threads of this process's JVM (`local[n]`), or further containers (`yarn`).

With `yarn` the worker is the driver, in client mode, and executors are sent nothing that lies on its disks. What is set
here suits a cluster whose nodes have Python and PySpark where this machine has them; elsewhere `spark.conf` says where
they are (`spark.yarn.dist.archives`, `spark.pyspark.python`, `spark.executorEnv.*`, `spark.yarn.archive`). How many
executors there are, and what they get, is `spark.conf`'s to say, too.
"""

from __future__ import annotations

import os
import re
import sys

from scribengin.base.jvm import LIGHT, configuration_directory
from scribengin.errors import ConfigInvalid
from scribengin.spark.session.spark_home import installed
from scribengin_registry.java.runtime import JavaRuntime

YARN = "yarn"
_LOCAL = re.compile(r"local(\[(0*[1-9][0-9]*|\*)(\s*,\s*[0-9]+\s*)?\])?")


def refuse_unknown(master: str) -> None:
    """Raise ConfigInvalid for a master that is none of those here."""
    if not makes_a_key(master):
        raise ConfigInvalid(f"spark.master {master!r}: choose local threads, as in local[2], or yarn")


def refuse_unusable(master: str) -> None:
    """The same, and for YARN where this machine has no cluster's configuration."""
    refuse_unknown(master)
    if master == YARN:
        configuration_directory()


def files_are_shared(master: str) -> bool:
    """Whether executors see the files of this process."""
    return master.startswith("local")


def makes_a_key(master: str) -> bool:
    """Whether Spark makes the key itself by which the processes of a session know each other: unless it refuses the
    master, which it is left to say."""
    return master == YARN or _LOCAL.fullmatch(master) is not None


def python_path() -> str:
    """What workers import from: where this process does, so that its packages need not be installed for them."""
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path)


def _threads(master: str) -> int:
    """Of `local[n]`; 1 where Spark will refuse it."""
    found = _LOCAL.fullmatch(master)
    number = found[2] if found is not None else None
    return os.cpu_count() or 1 if number == "*" else int(number or 1)


def settings_for(master: str, java: JavaRuntime) -> dict[str, str]:
    """What Spark must be told for this master, and may be told otherwise by `spark.conf`."""
    if master != YARN:
        # Spark has 200 tasks behind each shuffle, as of a static table that is grouped: each is sent all of the job.
        return {"spark.sql.shuffle.partitions": str(_threads(master))}
    of_containers = {"JAVA_HOME": str(java.home)}
    of_executors = {**of_containers, "PYTHONPATH": python_path()}
    return {
        "spark.submit.deployMode": "client",
        "spark.yarn.jars": f"local:{installed()}/jars/*",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        # The application ends with its driver: another attempt of its master would find nobody.
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.am.memory": "512m",
        # It only asks for containers: what counts is that it is there soon.
        "spark.yarn.am.extraJavaOptions": f"{LIGHT} -XX:+UseSerialGC",
        "spark.executor.instances": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "1g",
        # Its path would lie in the container's directory, which is too deep for a socket.
        "spark.python.unix.domain.socket.enabled": "false",
        **{f"spark.yarn.appMasterEnv.{name}": value for name, value in of_containers.items()},
        **{f"spark.executorEnv.{name}": value for name, value in of_executors.items()},
    }
