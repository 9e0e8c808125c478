"""The ResourceManager and the NodeManagers as an application master speaks to them: Java behind plain values."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from scribengin.base import jvm
from scribengin.errors import LauncherError
from scribengin.launcher.yarn.config import YarnConfig
from scribengin.launcher.yarn.launching import Program, launch_context

_RECORDS = "org.apache.hadoop.yarn.api.records."
_CLIENT = "org.apache.hadoop.yarn.client.api."
_RESPONSE_WAIT = 0.1
_CONTAINER_PRIORITY = 1
_REFUSED = ("InvalidResourceRequestException", "InvalidLabelResourceRequestException")
_OVER = ("ApplicationAttemptNotFoundException", "ApplicationMasterNotRegisteredException", "InvalidToken")


class RequestRefused(LauncherError):
    """YARN will never give what was asked for: too much of it, or of a label that there is not."""


class AttemptOver(LauncherError):
    """YARN has given this master up: another attempt runs, or will, or the application was killed."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Room that YARN has given: for which `request` (0 when nobody knows any more), as which container, where."""

    request: int
    yarn_id: str
    node: str
    web: str
    raw: Any = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Completed:
    """A container has ended, with YARN's exit status and words."""

    yarn_id: str
    status: int
    diagnostics: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What the ResourceManager said: new room, containers that ended, and those of earlier attempts it has found
    again."""

    granted: tuple[Grant, ...]
    completed: tuple[Completed, ...]
    found: tuple[Grant, ...]


class ApplicationMaster:
    """This process as the master of its application. Must run in the container that YARN made for that. Thread-safe,
    but for `heartbeat`, which one thread calls."""

    def __init__(self, yarn: YarnConfig) -> None:
        """Connect and register. Raises LauncherError."""
        if "CONTAINER_ID" not in os.environ:
            raise LauncherError("this process is no application master: YARN has not started it (submit the dataflow)")
        configuration = jvm.yarn_configuration()
        self._yarn = yarn
        self._requests: dict[int, Any] = {}
        container = jvm.java(f"{_RECORDS}ContainerId").fromString(os.environ["CONTAINER_ID"])
        self.attempt = int(container.getApplicationAttemptId().getAttemptId())
        """The number of this attempt, from 1."""
        self.application = str(container.getApplicationAttemptId().getApplicationId().toString())
        self._manager = jvm.java(f"{_CLIENT}AMRMClient").createAMRMClient()
        self._nodes = jvm.java(f"{_CLIENT}NMClient").createNMClient()
        with jvm.java_errors("YARN does not take this master"):
            self._manager.init(configuration)
            self._manager.start()
            self._nodes.init(configuration)
            self._nodes.cleanupRunningContainersOnStop(False)
            self._nodes.start()
            host = os.environ.get("NM_HOST") or "localhost"
            answer = self._manager.registerApplicationMaster(host, -1, "")
        self.earlier = tuple(_grant(container) for container in answer.getContainersFromPreviousAttempts())
        """The containers of earlier attempts that still run."""
        self._largest = answer.getMaximumResourceCapability()

    def ask(self, request: int, memory_mb: int, cores: int) -> None:
        """Ask for room; a later heartbeat brings it, with this number. Raises RequestRefused: it is too large."""
        most_mb, most_cores = int(self._largest.getMemorySize()), int(self._largest.getVirtualCores())
        if memory_mb > most_mb or cores > most_cores:
            raise RequestRefused(
                f"YARN gives a container {most_mb} MB and {most_cores} cores at most, and {memory_mb} MB and {cores} "
                "cores are wanted: make `container` smaller, or ask for more workers instead"
            )
        builder = jvm.java(f"{_CLIENT}AMRMClient$ContainerRequest").newBuilder()
        builder.capability(jvm.java(f"{_RECORDS}Resource").newInstance(memory_mb, cores))
        builder.priority(jvm.java(f"{_RECORDS}Priority").newInstance(_CONTAINER_PRIORITY))
        builder.allocationRequestId(request)
        if self._yarn.node_label is not None:
            builder.nodeLabelsExpression(self._yarn.node_label)
        with jvm.java_errors(f"YARN cannot be asked for {memory_mb} MB and {cores} cores"):
            self._requests[request] = builder.build()
            self._manager.addContainerRequest(self._requests[request])

    def withdraw(self, request: int) -> None:
        """Room is not wanted any more, or has been given."""
        asked = self._requests.pop(request, None)
        if asked is not None:
            self._manager.removeContainerRequest(asked)

    def release(self, grant: Grant) -> None:
        """Give a container back: what runs in it is killed."""
        self._manager.releaseAssignedContainer(grant.raw.getId())

    def heartbeat(self) -> Heartbeat:
        """Say that this master lives, and hear what is new. Raises AttemptOver; RequestRefused (some of what was asked
        for); LauncherError (no answer)."""
        try:
            with jvm.java_errors("the ResourceManager does not answer"):
                answer = self._manager.allocate(_RESPONSE_WAIT)
        except LauncherError as error:
            if jvm.is_java(error.__cause__, *_OVER):
                raise AttemptOver(f"YARN has given this master up: {error}") from error
            if jvm.is_java(error.__cause__, *_REFUSED):
                raise RequestRefused(f"YARN refuses the containers: {jvm.java_reason(error.__cause__)}") from error
            raise
        completed = [_completed(status) for status in answer.getCompletedContainersStatuses()]
        return Heartbeat(
            tuple(_grant(container) for container in answer.getAllocatedContainers()),
            tuple(completed),
            tuple(_grant(container) for container in answer.getContainersFromPreviousAttempts() or ()),
        )

    def start(self, grant: Grant, program: Program) -> None:
        """Run a program in a container. Raises LauncherError."""
        with jvm.java_errors(f"{grant.node} does not start {grant.yarn_id}"):
            self._nodes.startContainer(grant.raw, launch_context(program))

    def stop(self, grant: Grant) -> None:
        """Have the node kill a container. Raises LauncherError: its node does not answer."""
        with jvm.java_errors(f"{grant.node} does not answer"):
            self._nodes.stopContainer(grant.raw.getId(), grant.raw.getNodeId())

    def unregister(self, *, succeeded: bool, message: str) -> None:
        """The application is over, and what runs of it is killed. Raises LauncherError."""
        statuses = jvm.java(f"{_RECORDS}FinalApplicationStatus")
        with jvm.java_errors("YARN does not take the application's end"):
            self._manager.unregisterApplicationMaster(statuses.SUCCEEDED if succeeded else statuses.FAILED, message, "")

    def close(self) -> None:
        """End the connections; containers go on."""
        self._nodes.stop()
        self._manager.stop()


def _grant(container: Any) -> Grant:
    return Grant(
        int(container.getAllocationRequestId()),
        str(container.getId().toString()),
        str(container.getNodeId().toString()),
        str(container.getNodeHttpAddress()),
        container,
    )


def _completed(status: Any) -> Completed:
    return Completed(
        str(status.getContainerId().toString()), int(status.getExitStatus()), str(status.getDiagnostics() or "")
    )
