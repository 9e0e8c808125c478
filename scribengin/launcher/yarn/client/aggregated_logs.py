"""The logs that YARN has collected of an application that ended, wherever it keeps them, in whichever of its formats.

They are there some seconds after the end, if the cluster collects logs (`yarn.log-aggregation-enable`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scribengin.base.jvm import java, java_errors, yarn_configuration
from scribengin.errors import LauncherError
from scribengin.launcher.yarn.client import node_web

_LOGS = "org.apache.hadoop.yarn.logaggregation."
_RECORDS = "org.apache.hadoop.yarn.api.records."
_NOT_THERE = "does not exist"


class AggregatedLogs:
    """Collected logs of one cluster."""

    def __init__(self) -> None:
        """Raises ConfigInvalid, LauncherError."""
        self._configuration = yarn_configuration()
        factory = java(f"{_LOGS}filecontroller.LogAggregationFileControllerFactory")
        with java_errors("the cluster does not say how it collects logs"):
            self._factory = factory(self._configuration)

    def containers(self, application: str, user: str) -> dict[str, str]:
        """The containers of an application whose logs were collected, and where each ran, oldest first.

        Raises LauncherError: the place cannot be read.
        """
        with self._reading(application):
            controller, request = self._controller(application, user)
            found = controller.readAggregatedLogsMeta(request) if controller is not None else None
            return dict(sorted((str(meta.getContainerId()), str(meta.getNodeId())) for meta in found or ()))
        return {}

    def end(self, application: str, user: str, container: str, node: str, stream: str, bytes_max: int) -> bytes:
        """The last bytes of one of a container's log files; nothing when there is none. `node` as `containers` says.

        Raises LauncherError.
        """
        with self._reading(application):
            controller, request = self._controller(application, user)
            if controller is None:
                return b""
            request.setContainerId(container)
            request.setNodeId(node)
            request.setBytes(-bytes_max)
            streams = java("java.util.HashSet")()
            streams.add(stream)
            request.setLogTypes(streams)
            output = java("java.io.ByteArrayOutputStream")()
            controller.readAggregatedLogs(request, output)
            return node_web.contents(bytes(output.toByteArray()))
        return b""

    def _controller(self, application: str, user: str) -> tuple[Any, Any]:
        identity = java(f"{_RECORDS}ApplicationId").fromString(application)
        request = java(f"{_LOGS}ContainerLogsRequest")()
        request.setAppId(identity)
        request.setAppOwner(user)
        return self._factory.getFileControllerForRead(identity, user), request

    @contextmanager
    def _reading(self, application: str) -> Iterator[None]:
        """What is not there (yet) is no failure."""
        try:
            with java_errors(f"the collected logs of {application} cannot be read"):
                yield
        except LauncherError as error:
            if _NOT_THERE not in str(error):  # the readers of all formats were asked, and say no more than this
                raise
