"""What YARN says of a dataflow: its application, where its containers are, and whether these find what they need."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigInvalid, LauncherError
from scribengin.launcher.yarn.application_master.preflight import (
    PreflightReport,
)
from scribengin.launcher.yarn.client.applications import ApplicationReport, YarnApplications
from scribengin_tools.rendering.text import table

_DIAGNOSTICS_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class ApplicationFacts:
    """A dataflow's last application. `trouble` says why nothing is known of it."""

    report: ApplicationReport | None = None
    nodes: dict[str, int] = field(default_factory=dict)
    """How many of its containers run on each node."""
    trouble: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For `status --json`."""
        report = None if self.report is None else asdict(self.report)
        return {"application": report, "nodes": self.nodes, "application_trouble": self.trouble}

    def rows(self) -> list[tuple[str, str | Text | None]]:
        """For a terminal: what is not known is None."""
        report = self.report
        if report is None:
            return [("application", Text(self.trouble or "none is known to YARN", "yellow"))]
        nodes = ", ".join(f"{count} on {node}" for node, count in sorted(self.nodes.items()))
        return [
            ("application", f"{report.id}, {report.state}, attempt {report.attempt}, queue {report.queue}"),
            ("tracking", report.tracking_url or None),
            ("containers", nodes or None),
            ("YARN says", report.diagnostics[:_DIAGNOSTICS_CHARACTERS] or None if report.over else None),
        ]


def application_facts(view: DataflowView) -> ApplicationFacts | None:
    """What YARN says of a dataflow that runs there; None for one that does not. Raises DataflowNotFound."""
    config = view.config_in_force().value
    if config.launcher == "local":
        return None
    try:
        with YarnApplications(config.yarn) as applications:
            reports = applications.reports(view.registry.hosts, view.dataflow)
            if not reports:
                return ApplicationFacts()
            running = [] if reports[-1].over else applications.running_containers(reports[-1])
            return ApplicationFacts(reports[-1], dict(Counter(container.node for container in running)))
    except (ConfigInvalid, LauncherError) as error:  # the registry's side is worth showing all the same
        return ApplicationFacts(trouble=str(error))


def shown(report: PreflightReport) -> RenderableType:
    """The report for a terminal."""
    rows = [
        (check.name, Text("ok", "green") if check.ok else Text("missing", "red"), check.found)
        for check in report.checks
    ]
    steps = [Text(f"{check.name}: {check.next_step}") for check in report.checks if not check.ok and check.next_step]
    return Group(table(("CHECK", "", f"ON {report.host.upper()}"), rows), *steps)
