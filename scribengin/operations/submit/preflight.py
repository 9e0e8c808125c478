"""Asking YARN before a dataflow starts: whether its containers will find what they need."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.threads import pause
from scribengin.connectors import KINDS
from scribengin.dataflow.config import DataflowConfig
from scribengin.errors import ClusterNotReady, LauncherError
from scribengin.launcher.contract import ContainerDescriptor, ContainerRequest
from scribengin.launcher.yarn.application_master.preflight import (
    REQUEST_VARIABLE,
    PreflightReport,
    PreflightRequest,
    encoded,
    report_in,
)
from scribengin.launcher.yarn.client.applications import YarnApplications
from scribengin.launcher.yarn.shipping.shipping import Shipping
from scribengin.operations.submit.shipping import Say

TIMEOUT_S = 600.0
_POLL_S = 0.5
_SAY_EVERY_POLLS = 20
_PACKAGES = ("pyspark", "pyarrow", "kazoo", "jpype", "scribengin_tools")
_DIAGNOSTIC_LINES = 8


def preflight(hosts: str, config: DataflowConfig, home: Path, say: Say) -> PreflightReport:
    """Run the check in a container of the dataflow's queue and node label, and return what it found.

    Raises LauncherError: the container did not start, or came to no answer within ten minutes; ConfigInvalid.
    """
    yarn = Shipping(config.yarn, home).shipped().model_copy(update={"attempts": 1})
    request = ContainerRequest(
        registry=f"preflight {hosts}",  # so that it is never taken for the dataflow's own application
        dataflow=f"{config.name}-preflight",
        name="preflight",
        argv=[sys.executable, "-m", "scribengin.operations.submit.preflight_checks"],
        memory_mb=yarn.master.memory_mb,
        cores=1,
        env={REQUEST_VARIABLE: encoded(_request(hosts, config))},
    )
    with YarnApplications(yarn, Shipping(yarn, home).kit(None)) as applications:
        container = applications.launch(request)
        say(f"checking the cluster in a container: {container.id} ...")
        return _answer(applications, container, config, say)


def refuse_unless_ready(report: PreflightReport) -> None:
    """Raises ClusterNotReady when anything is missing."""
    missing = [check.name for check in report.checks if not check.ok]
    if missing:
        raise ClusterNotReady(
            f"the cluster is not ready for it: on {report.host} {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing or wrong (see above); nothing was started "
            "(--no-preflight starts it all the same)"
        )


def _request(hosts: str, config: DataflowConfig) -> PreflightRequest:
    return PreflightRequest(
        registry=hosts,
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        config=config.model_dump(mode="json"),
        packages=_packages(config),
        sent_ms=SYSTEM_CLOCK.now_ms(),
    )


def _packages(config: DataflowConfig) -> list[str]:
    kinds = {one.kind for one in config.sources.values()} | {one.kind for one in config.sinks.values()}
    wanted = [package for kind in sorted(kinds) for package in KINDS[kind].packages]
    launcher = ["skein"] if config.launcher == "skein" else []
    return [*_PACKAGES, *launcher, *(package for package in wanted if importlib.util.find_spec(package) is not None)]


def _answer(
    applications: YarnApplications, container: ContainerDescriptor, config: DataflowConfig, say: Say
) -> PreflightReport:
    polls = int(TIMEOUT_S / _POLL_S)
    try:
        for poll in range(polls):
            found = applications.report(container.id)
            if found is None or found.over:
                return _report_of(container.id, found.diagnostics if found is not None else "YARN has forgotten it")
            if poll % _SAY_EVERY_POLLS == _SAY_EVERY_POLLS - 1:
                say(f"checking the cluster in a container: {container.id} is {found.state} ...")
            pause(_POLL_S)
    except BaseException:
        applications.kill(container)
        raise
    applications.kill(container)
    raise LauncherError(
        f"{container.id}, which was to check the cluster, came to no answer within {TIMEOUT_S:g} s: has queue "
        f"'{config.yarn.queue or 'default'}' room for {config.yarn.master.memory_mb} MB?"
    )


def _report_of(application: str, diagnostics: str) -> PreflightReport:
    report = report_in(diagnostics)
    if report is None:
        lines = [line for line in diagnostics.splitlines() if line.strip()][:_DIAGNOSTIC_LINES]
        raise LauncherError(
            f"{application}, which was to check the cluster, did not run: is there Python at yarn.python? YARN said:\n"
            + "\n".join(lines)
        )
    return report
