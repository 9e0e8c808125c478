"""Applications of YARN, for whoever stands outside: submits a dataflow's master, finds it, ends it.

A dataflow's application is found by a tag that is made of its registry and name, so also when nobody wrote down its id.
YARN tells nobody of anything by itself, so a moment passes between two looks (`pause`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from scribengin.base import jvm, threads
from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.errors import ContainerUnreachable, LauncherError
from scribengin.launcher.contract import (
    ContainerDescriptor,
    ContainerExit,
    ContainerPlace,
    ContainerRequest,
    LogName,
    last_lines,
)
from scribengin.launcher.yarn import security
from scribengin.launcher.yarn.client import node_web
from scribengin.launcher.yarn.config import YarnConfig
from scribengin.launcher.yarn.launching import KIT_VARIABLE, Kit, Program, launch_context
from scribengin.launcher.yarn.shipping.staging import Staging

APPLICATION_TYPE = "SCRIBENGIN"
KILL_TIMEOUT_S = 30.0
_RECORDS = "org.apache.hadoop.yarn.api.records."
_PROTOCOL = "org.apache.hadoop.yarn.api.protocolrecords."
_FINAL = ("FINISHED", "FAILED", "KILLED")
LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class ApplicationReport:
    """What the ResourceManager says of an application. `state` as YARN has it (ACCEPTED, RUNNING, FINISHED ...);
    `final` how its master said that it ended."""

    id: str
    name: str
    state: str
    final: str
    queue: str
    user: str
    attempt: int
    attempt_id: str
    master_host: str
    tracking_url: str
    diagnostics: str
    started_ms: int

    @property
    def over(self) -> bool:
        """Whether nothing of it is to run any more."""
        return self.state in _FINAL


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container of an application that runs, as the ResourceManager believes; `web` is its node's address."""

    id: str
    node: str
    web: str


@dataclass(frozen=True, slots=True)
class MasterAttempt:
    """An attempt of an application's master: its container, its node and that one's address for logs; `ended` says how
    it is over, None while it is not."""

    number: int
    container: str
    node: str
    web: str
    ended: str | None


class YarnApplications(ContainerPlace):
    """The applications of one cluster, each seen as the container of its dataflow's master. Thread-safe."""

    def __init__(self, yarn: YarnConfig, kit: Kit | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """`kit` is for `launch`. Raises ConfigInvalid, LauncherError."""
        self._yarn = yarn
        self._kit = kit or Kit()
        self._clock = clock
        configuration = jvm.yarn_configuration()
        security.login(configuration, yarn.security)
        self._client = jvm.java("org.apache.hadoop.yarn.client.api.YarnClient").createYarnClient()
        with jvm.java_errors("YARN's client does not start"):
            self._client.init(configuration)
            self._client.start()

    # -- the contract

    def launch(self, request: ContainerRequest) -> ContainerDescriptor:
        """Submit an application whose master runs this. On a Kerberos cluster it is given tokens, and the keytab."""
        kit, tokens = self._identified()
        with jvm.java_errors(f"YARN does not take dataflow '{request.dataflow}'"):
            context = self._client.createApplication().getApplicationSubmissionContext()
            self._describe(context, request)
            env = {**request.env, KIT_VARIABLE: self._kit.encoded()}
            context.setAMContainerSpec(launch_context(Program(request.argv, env, kit, tokens)))
            self._client.submitApplication(context)
            return self._descriptor(request, str(context.getApplicationId().toString()))

    def poll(self, container: ContainerDescriptor) -> ContainerExit | None:
        report = self.report(container.id)
        if report is None:
            return ContainerExit("lost", None, "YARN does not know the application any more")
        if not report.over:
            return None
        if report.state == "KILLED":
            return ContainerExit("killed", None, report.diagnostics or "the application was killed")
        good = report.final == "SUCCEEDED"
        return ContainerExit("exited", 0 if good else 1, report.diagnostics or f"the application ended: {report.final}")

    def kill(self, container: ContainerDescriptor) -> None:
        """Kill an application; nothing of it runs on return, also where its master hangs.

        Raises ContainerUnreachable, with the nodes that do not say so: what YARN has lost sight of may go on there.
        """
        report = self.report(container.id)
        if report is None:
            return
        running = [] if report.over else self.running_containers(report)
        with jvm.java_errors(f"YARN does not kill {container.id}"):
            if not report.over:
                self._client.killApplication(_application_id(container.id))
        deadline_s = self._clock.monotonic_s() + KILL_TIMEOUT_S
        while running and self._clock.monotonic_s() < deadline_s:
            running = [c for c in running if _may_run(c)]
            if running:
                pause()
        if running:
            names = ", ".join(f"{c.id} on {c.node}" for c in running)
            raise ContainerUnreachable(
                f"{container.id} was killed, and no word came of the end of {names}: it may go on there, but is fenced"
            )

    def containers(self, registry: str, dataflow: str) -> list[ContainerDescriptor]:
        return [self._seen(report, registry, dataflow) for report in self.reports(registry, dataflow, ended=False)]

    def log_tail(self, container: ContainerDescriptor, name: LogName, lines_max: int = 12) -> str:
        report = self.report(container.id)
        running = self.running_containers(report) if report is not None and not report.over else []
        masters = [c for c in running if c.id.endswith("_000001")]
        return last_lines(node_web.log_end(masters[0].web, masters[0].id, name, 8192), lines_max) if masters else ""

    def close(self) -> None:
        self._client.stop()

    # -- more than the contract

    def reports(self, registry: str, dataflow: str, *, ended: bool = True) -> list[ApplicationReport]:
        """The applications of a dataflow of this registry, oldest first. Raises LauncherError."""
        tags = jvm.java("java.util.HashSet")()
        tags.add(tag_of(registry, dataflow))
        request = jvm.java(f"{_PROTOCOL}GetApplicationsRequest").newInstance()
        request.setApplicationTags(tags)
        with jvm.java_errors("the ResourceManager does not answer"):
            found = [_report(java) for java in self._client.getApplications(request)]
        return sorted((r for r in found if ended or not r.over), key=lambda report: report.started_ms)

    def report(self, application: str) -> ApplicationReport | None:
        """One application, or None when YARN has forgotten it. Raises LauncherError."""
        try:
            with jvm.java_errors("the ResourceManager does not answer"):
                return _report(self._client.getApplicationReport(_application_id(application)))
        except LauncherError as error:
            if jvm.is_java(error.__cause__, "ApplicationNotFoundException"):
                return None
            raise

    def attempts(self, report: ApplicationReport) -> list[MasterAttempt]:
        """The attempts of an application's master, oldest first. Raises LauncherError."""
        with jvm.java_errors("the ResourceManager does not answer"):
            utilities = jvm.java("org.apache.hadoop.yarn.webapp.util.WebAppUtils")
            web = str(utilities.getRMWebAppURLWithScheme(self._client.getConfig()))
            ended = {
                str(java.getAMContainerId()): str(
                    java.getDiagnostics() or java.getYarnApplicationAttemptState()
                ).strip()
                for java in self._client.getApplicationAttempts(_application_id(report.id))
                if str(java.getYarnApplicationAttemptState()) in _FINAL
            }
        found = []
        for number, attempt in enumerate(node_web.attempts(web, report.id), start=1):
            container = str(attempt.get("containerId") or "")
            if container:
                address = str(attempt.get("nodeHttpAddress") or "")
                found.append(MasterAttempt(number, container, str(attempt["nodeId"]), address, ended.get(container)))
        return found

    def running_containers(self, report: ApplicationReport) -> list[RunningContainer]:
        """The containers that run of an application, the master's first. Raises LauncherError."""
        found: dict[str, RunningContainer] = {}
        with jvm.java_errors(f"the ResourceManager does not list the containers of {report.id}"):
            for attempt in self._client.getApplicationAttempts(_application_id(report.id)):
                for java in self._client.getContainers(attempt.getApplicationAttemptId()):
                    container = _running(java)
                    found[container.id] = container
        return [found[name] for name in sorted(found)]

    def _identified(self) -> tuple[Kit, Any]:
        """The master's own kit, with the keytab that no worker gets, and its tokens; on most clusters, neither."""
        configuration = self._client.getConfig()
        if not security.is_secure(configuration):
            return self._kit, None
        tokens = security.credentials(configuration, self._client, self._yarn.security.file_systems)
        if self._yarn.security.keytab is None:
            return self._kit, tokens
        keytab = security.keytab_path(self._yarn.security)
        name = f"{hashlib.sha256(keytab.read_bytes()).hexdigest()[:32]}.keytab"
        url = Staging(configuration, self._yarn.staging).put(keytab.absolute(), name)
        return replace(self._kit, files={**self._kit.files, security.KEYTAB: url}), tokens

    def _describe(self, context: Any, request: ContainerRequest) -> None:
        yarn = self._yarn
        tags = jvm.java("java.util.HashSet")()
        for tag in ("scribengin", tag_of(request.registry, request.dataflow)):
            tags.add(tag)
        context.setApplicationName(request.dataflow)
        context.setApplicationType(APPLICATION_TYPE)
        context.setApplicationTags(tags)
        context.setResource(jvm.java(f"{_RECORDS}Resource").newInstance(request.memory_mb, request.cores))
        context.setMaxAppAttempts(yarn.attempts)
        context.setAttemptFailuresValidityInterval(yarn.attempts_window_s * 1000)
        context.setKeepContainersAcrossApplicationAttempts(True)
        if yarn.queue is not None:
            context.setQueue(yarn.queue)
        if yarn.node_label is not None:
            context.setNodeLabelExpression(yarn.node_label)
        if yarn.priority is not None:
            context.setPriority(jvm.java(f"{_RECORDS}Priority").newInstance(yarn.priority))

    def _descriptor(self, request: ContainerRequest, application: str) -> ContainerDescriptor:
        return ContainerDescriptor(
            id=application,
            registry=request.registry,
            dataflow=request.dataflow,
            name=request.name,
            memory_mb=request.memory_mb,
            cores=request.cores,
            launched_ms=self._clock.now_ms(),
        )

    def _seen(self, report: ApplicationReport, registry: str, dataflow: str) -> ContainerDescriptor:
        return ContainerDescriptor(
            id=report.id,
            registry=registry,
            dataflow=dataflow,
            name=report.id,
            memory_mb=self._yarn.master.memory_mb,
            cores=self._yarn.master.cores,
            launched_ms=report.started_ms,
        )


def _may_run(container: RunningContainer) -> bool:
    """Whether it runs, or its node does not say."""
    try:
        return node_web.runs(container.web, container.id)
    except LauncherError:
        return True


def tag_of(registry: str, dataflow: str) -> str:
    """The tag of a dataflow's applications: YARN lowers them, and allows few characters."""
    return f"scribengin-{hashlib.sha256(f'{registry} {dataflow}'.encode()).hexdigest()[:32]}"


def _application_id(text: str) -> Any:
    return jvm.java(f"{_RECORDS}ApplicationId").fromString(text)


def _report(java: Any) -> ApplicationReport:
    attempt = java.getCurrentApplicationAttemptId()
    return ApplicationReport(
        id=str(java.getApplicationId().toString()),
        name=str(java.getName()),
        state=str(java.getYarnApplicationState().toString()),
        final=str(java.getFinalApplicationStatus().toString()),
        queue=str(java.getQueue()),
        user=str(java.getUser()),
        attempt=int(attempt.getAttemptId()) if attempt is not None else 0,
        attempt_id=str(attempt.toString()) if attempt is not None else "",
        master_host=str(java.getHost() or ""),
        tracking_url=str(java.getTrackingUrl() or ""),
        diagnostics=str(java.getDiagnostics() or "").strip(),
        started_ms=int(java.getStartTime()),
    )


def _running(java: Any) -> RunningContainer:
    web = str(java.getNodeHttpAddress() or "").removeprefix("http://").removeprefix("https://")
    return RunningContainer(str(java.getContainerId().toString()), str(java.getAssignedNode().toString()), web)


def pause() -> None:
    """A moment."""
    threads.pause(LOOK_S)
