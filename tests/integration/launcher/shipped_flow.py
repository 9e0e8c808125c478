"""A dataflow that takes everything along that YARN and skein can bring to its containers: a package, a file, a variable
of the environment. Its transformation fails where one of them is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scribengin_dev.servers.hadoop.yarn import YarnServers
from tests.integration.cluster import Cluster
from tests.integration.yarn_cluster import YarnFlow, submit_on_yarn

SESSION_S = 20
"""So long that who was not killed is not lost on a busy machine either."""
_TRANSFORMATION = """
import os
from pathlib import Path

assert os.environ["FLAVOUR"] == 'a "quoted" $word', os.environ["FLAVOUR"]
assert Path("notes.txt").read_text() == "of the submitter", "yarn.files did not come along"


def transform(inputs, context):
    return inputs["src"].select("payload")
"""


def submit_shipped(
    cluster: Cluster, servers: YarnServers, folder: Path, *, workers: int, yarn: dict[str, Any], **config: Any
) -> YarnFlow:
    """Submit it, with its package and its file in `folder`, and wait until it runs. It reads all logs below `in/`, and
    has more of `yarn`'s settings."""
    package = folder / "package"
    package.mkdir()
    (package / "shipped.py").write_text(_TRANSFORMATION)
    notes = folder / "notes-of-the-submitter.txt"
    notes.write_text("of the submitter")
    return submit_on_yarn(
        cluster,
        servers,
        name="flow",
        sources={"src": {"kind": "log", "logs": "in/*"}},
        sinks={"out": {"kind": "log", "log": "out"}},
        transformation="shipped:transform",
        package=str(package),
        workers=workers,
        container={"memory_mb": 1536},
        round={"records_max": 50},
        session_timeout_s=SESSION_S,
        yarn={
            "queue": "second",
            "environment": {"FLAVOUR": 'a "quoted" $word'},
            "files": {"notes.txt": str(notes)},
            **yarn,
        },
        **config,
    ).up()


def feed(cluster: Cluster, logs: Sequence[str], count: int = 200) -> None:
    """Append so many records to each of the logs."""
    for log in logs:
        cluster.append(log, count)
