"""The physical thing that a sink writes has one name, however its path is spelled: else two dataflows could have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.connectors import Environment, open_sink
from scribengin.connectors.files import FileSinkConfig
from scribengin.dataflow.config import StateConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.round.checkpoints import checkpoint_root
from scribengin.filesystems.hdfs import canonical_cluster
from scribengin.filesystems.paths import durable_file_system, tree_file_system
from scribengin.spark.stateful.query_log import QueryDirectory
from scribengin_registry.contract import Registry

ALONE = {"fs.defaultFS": "hdfs://nn.example:8020"}
SERVICE = {
    "fs.defaultFS": "hdfs://Lake",
    "dfs.nameservices": "lake, other",
    "dfs.ha.namenodes.lake": "a,b",
    "dfs.namenode.rpc-address.lake.a": "nn-a.example:8020",
    "dfs.namenode.rpc-address.lake.b": "NN-B.example:9000",
}


@pytest.mark.parametrize(
    ("url", "settings", "wanted"),
    [
        ("hdfs://nn.example:8020", ALONE, "hdfs://nn.example:8020"),
        ("hdfs://NN.Example", ALONE, "hdfs://nn.example:8020"),
        ("hdfs://somebody@nn.example/", ALONE, "hdfs://nn.example:8020"),
        ("hdfs://nn.example:9000", ALONE, "hdfs://nn.example:9000"),
        ("hdfs://Lake", SERVICE, "hdfs://lake"),
        ("hdfs://nn-a.example", SERVICE, "hdfs://lake"),
        ("hdfs://nn-b.example:9000", SERVICE, "hdfs://lake"),
        ("hdfs://nn-b.example", SERVICE, "hdfs://nn-b.example:8020"),
    ],
)
def test_a_cluster_has_one_name(url: str, settings: dict[str, str], wanted: str) -> None:
    assert canonical_cluster(url, settings) == wanted


def test_an_hdfs_directory_has_one_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://nn.example</value></property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    spellings = [
        "hdfs:///lake/out",
        "hdfs://nn.example/lake/out",
        "hdfs://nn.example:8020/lake/out/",
        "HDFS://NN.example:8020//lake/./out",
        "hdfs:///lake/raw/../out",
    ]
    found = set()
    for spelling in spellings:
        path = FileSinkConfig.parse({"kind": "hdfs", "path": spelling}, source="a test").path
        files, inside = durable_file_system(path)
        found.add((files.resource(inside), inside))
    assert found == {("hdfs://nn.example:8020/lake/out", "/lake/out")}


def test_a_program_that_opens_it_itself_gets_a_service_as_it_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Hadoop's Java client looks for `dfs.ha.namenodes.MyCluster`, letter by letter."""
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>dfs.nameservices</name><value>MyCluster</value></property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    state = StateConfig.parse({"checkpoints": "hdfs://MyCluster/State/"}, source="a test")
    root, above = tree_file_system(checkpoint_root(state))
    assert root.url_of(f"{above}/of") == "hdfs://MyCluster/State/of"
    files, inside = tree_file_system("hdfs://MyCluster/State/of/task-0")
    assert QueryDirectory(files, inside).url == "hdfs://MyCluster/State/of/task-0"
    assert files.resource(inside) == "hdfs://mycluster/State/of/task-0"


def test_a_local_directory_has_one_name(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real" / "out").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "again").symlink_to("out")
    monkeypatch.chdir(tmp_path)
    spellings = [
        f"{tmp_path}/real/out",
        f"{tmp_path}/link/out/",
        f"{tmp_path}/link/again",
        f"file://{tmp_path}/real/./out",
        f"FILE://{tmp_path}/link/out",
        "link/../real/out",
        f"//{tmp_path}/real//out",
    ]
    environment = Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES)
    found = set()
    for spelling in spellings:
        config = FileSinkConfig.parse({"kind": "hdfs", "path": spelling}, source="a test")
        found.add(open_sink("out", config, environment).resource)
    assert found == {f"file:{tmp_path}/real/out"}


def test_two_servers_behind_one_protocol_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    from scribengin.filesystems.fsspec import FsspecDurableFileSystem

    class Server:
        protocol = "sftp"

        def __init__(self, **options: object) -> None:
            self.storage_options = options

    resources = {
        FsspecDurableFileSystem(Server(host=host)).resource(path)  # type: ignore[arg-type]
        for host, path in (("one", "/out"), ("ONE", "/x/../out/"), ("two", "/out"))
    }
    assert resources == {"sftp://one/out", "sftp://two/out"}
