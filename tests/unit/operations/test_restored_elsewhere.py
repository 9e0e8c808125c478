"""A registry that is restored under another path of its ZooKeeper: what its nodes name is found there, too."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.log import LogNamespace
from scribengin.operations.registry.backup import back_up, restore
from scribengin.testing.log_samples import payloads_read
from scribengin.testing.memory.registry import MemoryEnsemble

LOG = "x"


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("commit_log", ["/scribengin/locks/sinks/out/0/commit-log", "spark/job/x"])
def test_a_round_that_was_left_unfinished_is_decided_by_its_commit_log_under_the_new_path(
    tmp_path: Path, commit_log: str, committed: bool
) -> None:
    file, ensemble = tmp_path / "registry.backup", MemoryEnsemble()
    path = commit_log if commit_log.startswith("/") else f"/logs/{commit_log}"
    with ensemble.connect("/before") as registry:
        LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
        with LogNamespace.open("/logs", registry=registry) as namespace:
            namespace.create(LOG)
            writer = namespace.open_writer(LOG, commit_log=commit_log)
            writer.stage(pa.RecordBatch.from_pydict({"payload": pa.array([b"1"], pa.binary())}))
            staged = writer.prepare()
            assert staged is not None
            last = CommitDescriptor(kind="log", records=staged.records, data=staged.model_dump()) if committed else None
            said = CommitLog(dataflow="flow", task="t", owner="w", generation=0, epoch=0, round=1, committed=last)
            registry.create(path, said.to_bytes(), parents=True)
            back_up(registry, file)
            writer.abort()
        for child in registry.children("/"):
            registry.delete(f"/{child}", recursive=True)
    with ensemble.connect("/after") as registry:
        restore(registry, file, replace=False)
        with LogNamespace.open("/logs", registry=registry) as namespace:
            namespace.open_writer(LOG, commit_log=commit_log).close()
            assert payloads_read(namespace, LOG) == ([b"1"] if committed else [])
