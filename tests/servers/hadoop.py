"""HDFS and YARN: one cluster that all tests share, and one for tests that kill parts of it. Started when wanted."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import RUN_VARIABLE, YarnServers

HDFS, YARN = pytest.StashKey[HdfsServers](), pytest.StashKey[YarnServers]()
"""Where the run has its own, once it was started: it is stopped behind the last file that needs it (order.py)."""


@pytest.fixture(scope="session")
def hdfs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServers]:
    """HDFS for the whole run: leave its servers running, and use a directory of your own. Who is not its superuser, as
    tests are, has to have the permissions."""
    settings = {"dfs.permissions.enabled": True, "dfs.namenode.acls.enabled": True}
    with HdfsServers(tmp_path_factory.mktemp("hdfs"), settings=settings) as servers:
        request.config.stash[HDFS] = servers
        yield servers


@pytest.fixture(scope="session")
def first_node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, hdfs: HdfsServers
) -> Iterator[YarnServers]:
    """The same YARN as `yarn` before that has started its second node: whatever is unpacked, one node unpacks it."""
    os.environ.setdefault(RUN_VARIABLE, uuid.uuid4().hex)  # a run of pytest alone has no mark to look for
    patient = {"yarn.nm.liveness-monitor.expiry-interval-ms": 60_000}  # a slow node's containers are not to be lost
    servers = YarnServers(tmp_path_factory.mktemp("yarn"), hdfs=hdfs, settings=patient)
    try:
        request.config.stash[YARN] = servers.start(nodes=1)
        yield servers
    finally:
        servers.stop()


@pytest.fixture(scope="session")
def yarn(first_node: YarnServers) -> YarnServers:
    """YARN with two nodes on `hdfs`, for the whole run: leave its servers running, and end your applications."""
    return first_node.start()


@pytest.fixture(scope="module")
def own_hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServers]:
    """HDFS with two DataNodes for one module, which may kill them."""
    with HdfsServers(tmp_path_factory.mktemp("own-hdfs"), data_nodes=2) as servers:
        yield servers


@pytest.fixture(scope="module")
def own_yarn(tmp_path_factory: pytest.TempPathFactory, own_hdfs: HdfsServers) -> Iterator[YarnServers]:
    """YARN with two nodes on `own_hdfs` for one module, which may kill them."""
    with YarnServers(tmp_path_factory.mktemp("own-yarn"), hdfs=own_hdfs) as servers:
        yield servers
