"""The output of a dataflow's containers on YARN: from the nodes while its application runs, from what YARN has
collected when it has ended."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView
from scribengin.launcher.yarn.client import node_web
from scribengin.launcher.yarn.client.aggregated_logs import AggregatedLogs
from scribengin.launcher.yarn.client.applications import ApplicationReport, YarnApplications
from scribengin.launcher.yarn.container_records import ContainerRecordDescriptor, ContainerRecords
from scribengin_tools.output.local import last_lines_of
from scribengin_tools.rendering.text import print_line
from scribengin_tools.terminal import check_read, visible_on

STREAMS = ("stdout", "stderr")
_TAIL_BYTES_MAX = 1 << 20
_POLL_S = 1.0
_RELIST_POLLS = 5
_SKEINS_LOG = {"stderr": "application.master.log"}
"""Where skein's own application master writes; ours, a container beside it, has left a record as workers do."""

ReadEnd = Callable[[str, int], tuple[int, bytes]]
"""A stream's whole length, and its last bytes."""


@dataclass(frozen=True, slots=True)
class ContainerOutput:
    """The output of one container: `name` as people call it, `id` as YARN does. `ended` is why, None while it runs."""

    name: str
    id: str
    node: str
    ended: str | None
    read: ReadEnd

    @property
    def heading(self) -> str:
        """What it is, where, and how it is, on one line."""
        return f"{self.name} on {self.node} ({self.ended or 'running'}; {self.id})"

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.name, "id": self.id, "node": self.node, "running": self.ended is None, "exit": self.ended}


@dataclass(frozen=True, slots=True)
class ApplicationOutput:
    """The containers of a dataflow's last application, oldest first; no `report` when YARN knows of none."""

    report: ApplicationReport | None
    containers: tuple[ContainerOutput, ...]


def application_output(view: DataflowView, config: DataflowConfig) -> ApplicationOutput:
    """What there is of a dataflow's last application. Raises ConfigInvalid, LauncherError."""
    records = {
        t.yarn_id: t for t in ContainerRecords(view.registry, view.paths.containers).all() if t.yarn_id is not None
    }
    with YarnApplications(config.yarn) as applications:
        reports = applications.reports(view.registry.hosts, view.dataflow)
        if not reports:
            return ApplicationOutput(None, ())
        skein = config.launcher == "skein"
        found = _collected(reports[-1], records, skein) if reports[-1].over else []
        return ApplicationOutput(reports[-1], tuple(found or _on_nodes(applications, reports[-1], records, skein)))


def print_containers(containers: Sequence[ContainerOutput], lines: int) -> None:
    """The last lines of each container, below its heading."""
    for container in containers:
        print_line(f"== {container.heading}")
        for stream in STREAMS:
            text = last_lines_of(_end(container, stream, lines)[0], lines).decode(errors="replace")
            sys.stdout.write(visible_on(sys.stdout, text if not text or text.endswith("\n") else f"{text}\n"))


def follow_containers(find: Callable[[], Sequence[ContainerOutput]], lines: int) -> None:
    """The last lines of every container, then what comes, each line behind the container's name. Never returns.

    Raises BrokenPipeError where nobody reads stdout any more.
    """
    places: dict[tuple[str, str], int] = {}
    for polls in itertools.count():
        if polls % _RELIST_POLLS == 0:
            containers = find()
        for container, stream in itertools.product(containers, STREAMS):
            if polls == 0:
                shown, place = _begun(container, stream, lines)
            else:
                shown, place = _news(container, stream, places.get((container.id, stream), 0))
            places[container.id, stream] = place
            for line in shown.decode(errors="replace").splitlines():
                print(f"{container.name} | {visible_on(sys.stdout, line)}")
        sys.stdout.flush()
        Event().wait(_POLL_S)
        check_read(sys.stdout)


def _end(container: ContainerOutput, stream: str, lines: int) -> tuple[bytes, int]:
    """The last bytes of a stream, with those of its older file if these lines take it; and its own file's length."""
    length, end = container.read(stream, _TAIL_BYTES_MAX)
    if length > len(end) or end.count(b"\n") >= lines:
        return end, length
    return container.read(node_web.rotated(stream), _TAIL_BYTES_MAX)[1] + end, length


def _begun(container: ContainerOutput, stream: str, lines: int) -> tuple[bytes, int]:
    """The last whole lines of a stream, and how far into its file they go."""
    end, length = _end(container, stream, lines)
    whole = end[: end.rfind(b"\n") + 1]
    return last_lines_of(whole, lines), max(0, length - (len(end) - len(whole)))


def _news(container: ContainerOutput, stream: str, known: int) -> tuple[bytes, int]:
    """The whole lines that came after the `known` bytes of a stream's file, and how far into it that goes. A file that
    is shorter now was full: what came behind the known bytes stands in the older one. One of no bytes says nothing: its
    node may not have answered."""
    length, end = container.read(stream, _TAIL_BYTES_MAX)
    before = b""
    if 0 < length < known:
        older, older_end = container.read(node_web.rotated(stream), _TAIL_BYTES_MAX)
        before, known = older_end[-(older - known) :] if older > known else b"", 0
    new = end[-(length - known) :] if length > known else b""
    whole = new[: new.rfind(b"\n") + 1]
    return before + whole, max(known, length - (len(new) - len(whole)))


def _on_nodes(
    applications: YarnApplications,
    report: ApplicationReport,
    records: dict[str, ContainerRecordDescriptor],
    skein: bool,
) -> list[ContainerOutput]:
    found = []
    for attempt in applications.attempts(report):
        name, read = _name_of(attempt.container, skein), _from_node(attempt.web, attempt.container, skein)
        found.append(ContainerOutput(name, attempt.container, attempt.node, attempt.ended, read))
    belongs = report.id.removeprefix("application_")
    for yarn_id, record in records.items():
        if belongs in yarn_id and record.web and record.node:
            ended = None if record.exit is None else record.exit.reason
            found.append(
                ContainerOutput(record.container.name, yarn_id, record.node, ended, _from_node(record.web, yarn_id))
            )
    return found


def _from_node(web: str, container: str, skeins: bool = False) -> ReadEnd:
    def read(stream: str, bytes_max: int) -> tuple[int, bytes]:
        return node_web.log_page(web, container, _SKEINS_LOG.get(stream, stream) if skeins else stream, bytes_max)

    return read


def _collected(
    report: ApplicationReport, records: dict[str, ContainerRecordDescriptor], skein: bool
) -> list[ContainerOutput]:
    logs = AggregatedLogs()
    return [
        ContainerOutput(
            records[container].container.name if container in records else _name_of(container, skein),
            container,
            ":".join(node.rsplit("_", 1)),  # collected logs have it without a colon
            "ended",
            partial(_read_collected, logs, report, container, node, skein and container not in records),
        )
        for container, node in logs.containers(report.id, report.user).items()
    ]


def _read_collected(
    logs: AggregatedLogs,
    report: ApplicationReport,
    container: str,
    node: str,
    skeins: bool,
    stream: str,
    bytes_max: int,
) -> tuple[int, bytes]:
    file = _SKEINS_LOG.get(stream, stream) if skeins else stream
    end = logs.end(report.id, report.user, container, node, file, bytes_max)
    return len(end), end


def _name_of(container: str, skein: bool) -> str:
    """YARN numbers an attempt's containers, its master's first: container_<application>_<attempt>_<number>."""
    *_, attempt, number = container.split("_")
    first = "skein" if skein else "master"
    return f"{first} attempt {int(attempt)}" if int(number) == 1 else f"container {int(attempt)}.{int(number)}"
