"""Skein applications for whoever stands outside: submitted through skein, and found, seen and ended as what they are,
applications of YARN."""

from __future__ import annotations

import tempfile
from pathlib import Path

from scribengin.base import jvm
from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.errors import ConfigInvalid
from scribengin.launcher.contract import ContainerDescriptor, ContainerRequest
from scribengin.launcher.skein import client
from scribengin.launcher.skein.spec import WorkerSize, application_spec
from scribengin.launcher.yarn import security
from scribengin.launcher.yarn.client.applications import YarnApplications
from scribengin.launcher.yarn.config import YarnConfig
from scribengin.launcher.yarn.launching import Kit


class SkeinApplications(YarnApplications):
    """The applications of one cluster, each seen as the container of its dataflow's master. Thread-safe."""

    def __init__(self, yarn: YarnConfig, kit: Kit, worker: WorkerSize, clock: Clock = SYSTEM_CLOCK) -> None:
        """For `launch`. Raises ConfigInvalid, LauncherError."""
        super().__init__(yarn, kit, clock)
        self._worker = worker
        if security.is_secure(jvm.yarn_configuration()):
            raise ConfigInvalid("launcher: skein is not for clusters with Kerberos: choose launcher: yarn")

    def launch(self, request: ContainerRequest) -> ContainerDescriptor:
        """Submit an application whose service `master` runs this."""
        spec = application_spec(self._yarn, self._kit, request, self._worker)
        with tempfile.TemporaryDirectory(prefix="scribengin-skein-") as folder:
            return self._descriptor(request, client.submit(spec, Path(folder)))
