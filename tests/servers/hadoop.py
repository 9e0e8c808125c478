"""HDFS and YARN: one cluster that all tests share, and one for tests that kill parts of it. Started when wanted."""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Iterator

import pytest

from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import RUN_VARIABLE, YarnServers
from tests.order import ON_YARN

YARN = pytest.StashKey[YarnServers]()
"""Where the run has its YARN, once it was started."""


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServers]:
    """HDFS for the whole run: leave its servers running, and use a directory of your own."""
    with HdfsServers(tmp_path_factory.mktemp("hdfs")) as servers:
        yield servers


@pytest.fixture(scope="session")
def yarn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, hdfs: HdfsServers
) -> Iterator[YarnServers]:
    """YARN with two nodes on `hdfs`, for the whole run: leave its servers running, and end your applications."""
    os.environ.setdefault(RUN_VARIABLE, uuid.uuid4().hex)  # a run of pytest alone has no mark to look for
    patient = {"yarn.nm.liveness-monitor.expiry-interval-ms": 60_000}  # a slow node's containers are not to be lost
    with YarnServers(tmp_path_factory.mktemp("yarn"), hdfs=hdfs, settings=patient) as servers:
        request.config.stash[YARN] = servers
        yield servers


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Behind the last test of a file that needs YARN, stop it: its three idle JVMs compute for the rest of the run."""
    result = yield
    servers = item.config.stash.get(YARN, None)
    on_yarn = [one is not None and one.path.stem in ON_YARN for one in (item, nextitem)]
    if servers is not None and on_yarn == [True, False]:
        servers.stop()
    return result


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
