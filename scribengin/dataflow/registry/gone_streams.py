"""Streams that no task reads any more, such as producers of Dafka that have gone: put together, many in one node.

Each would leave two nodes for ever, its own and its commit log. What the commit logs said stands in pages instead.

1. A commit log that stands counts. Only where there is none, what a page says of the stream does.
2. A stream's nodes are deleted only in a transaction that raises the *era* of its source: the version of that one's
   node. Whoever makes a commit log anew, or changes one, holds the era under which he has looked. So who has looked
   before the deletion changes nothing, though the versions of a node that is made anew begin at 0 again.
3. So streams may be put together at any time, by anybody. An owner of others holds the new era from then on, once it
   has seen that its own stand as it left them (commit_logs.py). One that has lost its nodes takes over again, and goes
   on where it stood.
4. A page's entry stays when its stream is back, and is replaced when that is put together again: there is one at most
   of each stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass

from pydantic_core import from_json

from scribengin.base.commit_log import CommitLog
from scribengin.base.failpoints import failpoint
from scribengin.base.model import Descriptor, from_node_name, indented
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.paths import DataflowPaths
from scribengin.errors import DescriptorUnreadable
from scribengin_registry.client import operation_bytes
from scribengin_registry.compare_and_set import RACES
from scribengin_registry.contract import ANY_VERSION, Check, Create, Delete, Node, Operation, Registry, Set
from scribengin_registry.errors import NodeMissing

TOGETHER_MIN = 64
"""So many have nodes of their own before they are put together. Each time, all owners of the source look again."""
PAGE_BYTES_MAX = 512 * 1024
_CHANGED_BYTES_MAX = 704 * 1024
"""Two pages have so much at most when one transaction changes both."""
_MOVED_BYTES_MAX = 128 * 1024
"""What is put into a page at once. Beside the page it has to fit into one transaction."""


class GoneStreamsPage(Descriptor):
    """What the commit logs of these streams of a source said, by their names."""

    streams: dict[str, CommitLog] = {}

    def to_bytes(self) -> bytes:
        """JSON without what is null."""
        return indented(self.model_dump(mode="json", exclude_none=True))


@dataclass(frozen=True, slots=True)
class _Page:
    path: str
    page: GoneStreamsPage
    version: int | None = None
    """None: there is no such node yet."""

    def with_these(self, logs: Mapping[str, CommitLog]) -> bytes:
        return GoneStreamsPage(streams={**self.page.streams, **logs}).to_bytes()

    def without(self, streams: Collection[str]) -> bytes:
        return GoneStreamsPage(streams={s: log for s, log in self.page.streams.items() if s not in streams}).to_bytes()


def gone_streams(registry: Registry, dataflow: str, source: str) -> dict[str, CommitLog]:
    """What the pages say of the streams of a source, by their names. Raises DescriptorUnreadable."""
    pages = _pages(registry, DataflowPaths(dataflow), source)
    return {stream: log for one in pages for stream, log in one.page.streams.items()}


def gone_ones(registry: Registry, dataflow: str, source: str, streams: Collection[str]) -> dict[str, CommitLog]:
    """The same of these alone: of those that a page has. Raises DescriptorUnreadable."""
    wanted, found = set(streams), {}
    for path, node in _page_nodes(registry, DataflowPaths(dataflow), source):
        if _may_have(node.data, wanted):
            page = GoneStreamsPage.from_bytes(node.data, path=path)
            found.update({stream: log for stream, log in page.streams.items() if stream in wanted})
    return found


def put_together(registry: Registry, dataflow: str, source: str, beside: Collection[str]) -> None:
    """Put streams of a source into a page that are not `beside`, if they are many: what fits into one transaction. What
    somebody has, or changes meanwhile, has its nodes until the next time. Raises DescriptorUnreadable (a page)."""
    root = registry.find(paths.source_streams(dataflow, source))
    if root is not None and root.children_count - len(beside) >= TOGETHER_MIN:
        with suppress(*RACES):
            _put(registry, DataflowPaths(dataflow), source, beside)


def _put(registry: Registry, nodes: DataflowPaths, source: str, beside: Collection[str]) -> None:
    root = paths.source_streams(nodes.dataflow, source)
    standing = _standing(registry, nodes)
    era = registry.get(root).version  # before anything is looked at
    gone = [stream for child in registry.children(root) if (stream := from_node_name(child)) not in beside]
    if len(gone) < TOGETHER_MIN:
        return
    pages = _pages(registry, nodes, source)
    for number, streams in _by_page(pages, gone):
        logs, deletions = _found(registry, nodes, source, streams)
        if deletions:
            written = _written(registry, nodes, source, pages, number, logs) if logs else []
            with failpoint("streams.put_together"):
                registry.commit([*standing, Set(root, b"", era), *written, *deletions])
            return


def _standing(registry: Registry, nodes: DataflowPaths) -> list[Operation]:
    """Holds that the dataflow was not deleted since, and submitted again: versions come back then, and names of workers
    never do (numbers.py). Raises NodeMissing: it has none, so nobody knows."""
    workers = registry.children(nodes.workers)
    if not workers:
        raise NodeMissing(f"{nodes.workers} has no worker", path=nodes.workers)
    return [Check(f"{nodes.workers}/{workers[0]}", ANY_VERSION)]


def _by_page(pages: Sequence[_Page], streams: Iterable[str]) -> list[tuple[int | None, list[str]]]:
    """The streams by the page that has them, the most first. None: none has, they go into the last one or a new one."""
    homes = {stream: number for number, one in enumerate(pages) for stream in one.page.streams}
    groups: dict[int | None, list[str]] = {}
    for stream in streams:
        groups.setdefault(homes.get(stream), []).append(stream)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _found(
    registry: Registry, nodes: DataflowPaths, source: str, streams: Iterable[str]
) -> tuple[dict[str, CommitLog], list[Operation]]:
    """What stands in the commit logs of these streams, and how their nodes go: as much as is moved at once. One that
    says more by itself keeps its nodes, and holds up none of the others."""
    logs: dict[str, CommitLog] = {}
    deletions: list[Operation] = []
    left = _MOVED_BYTES_MAX
    for stream in streams:
        path = nodes.source_stream(source, stream)
        node, log = registry.find(path), registry.find(paths.commit_log(path))
        if node is None or node.children_count > (log is not None):  # somebody has it
            continue
        moved: dict[str, CommitLog] = {}
        if log is not None:
            with suppress(DescriptorUnreadable):
                moved[stream] = CommitLog.from_bytes(log.data, path=paths.commit_log(path))
            if stream not in moved or moved[stream].prepared is not None:
                continue
        gone = [] if log is None else [Delete(paths.commit_log(path), log.version)]
        gone.append(Delete(path))
        needed = sum(map(operation_bytes, gone)) + (0 if log is None else len(log.data))
        if needed > _MOVED_BYTES_MAX:
            continue
        left -= needed
        if left < 0:
            break
        logs |= moved
        deletions += gone
    return logs, deletions


def _pages(registry: Registry, nodes: DataflowPaths, source: str) -> list[_Page]:
    found = _page_nodes(registry, nodes, source)
    return [_Page(path, GoneStreamsPage.from_bytes(node.data, path=path), node.version) for path, node in found]


def _page_nodes(registry: Registry, nodes: DataflowPaths, source: str) -> list[tuple[str, Node]]:
    root = nodes.gone_streams(source)
    try:
        children = sorted(registry.children(root))
    except NodeMissing:
        return []
    return [(f"{root}/{child}", registry.get(f"{root}/{child}")) for child in children]


def _may_have(page: bytes, streams: AbstractSet[str]) -> bool:
    """Whether a page has one of these. To check all of what thousands say takes several times as long."""
    try:
        return not streams.isdisjoint(from_json(page)["streams"])
    except (ValueError, KeyError, TypeError):
        return True  # who reads it says what is wrong with it


def _written(
    registry: Registry,
    nodes: DataflowPaths,
    source: str,
    pages: Sequence[_Page],
    number: int | None,
    logs: Mapping[str, CommitLog],
) -> list[Operation]:
    left: list[Operation] = []
    page = _roomy(nodes, source, pages, logs) if number is None else pages[number]
    data = page.with_these(logs)
    if page.version is not None and len(data) > PAGE_BYTES_MAX:  # positions have become longer: these stand elsewhere
        rest = page.without(logs)
        left = [Set(page.path, rest, page.version)]
        page = _roomy(nodes, source, pages, logs, beside=len(rest))
        data = page.with_these(logs)
    if page.version is not None:
        return [*left, Set(page.path, data, page.version)]
    parents = (nodes.all_gone_streams, nodes.gone_streams(source))
    return [*left, *(Create(path) for path in parents if registry.find(path) is None), Create(page.path, data)]


def _roomy(
    nodes: DataflowPaths, source: str, pages: Sequence[_Page], logs: Mapping[str, CommitLog], *, beside: int = 0
) -> _Page:
    """The last page, if that has room for these, and one transaction for what it is then and `beside`; or a new one."""
    size = len(pages[-1].with_these(logs)) if pages else 0
    if pages and size <= PAGE_BYTES_MAX and beside + size <= _CHANGED_BYTES_MAX:
        return pages[-1]
    return _Page(nodes.gone_page(source, len(pages)), GoneStreamsPage())
