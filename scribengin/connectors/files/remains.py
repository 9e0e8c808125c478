"""What a file sink's stream has on its way, looked at by somebody who tidies up after its dataflow. Changes nothing.

What no commit names was never output: it may go. All else may be the only copy of committed records, or what says which
of two copies counts: then the stream's node has to stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.connectors.files.sink.segments import PRIVATE, MergeDescriptor, StreamLayout, segment_keys
from scribengin.connectors.files.sink.writer import KIND, StagedRound
from scribengin.filesystems.contract import DurableFileSystem
from scribengin.filesystems.paths import durable_file_system
from scribengin_registry.contract import Registry

_LOCAL = "file:"


@dataclass(frozen=True, slots=True)
class StreamRemains:
    """`strays` are files that no commit names; `awaited` says why the stream's node must stay (None: it need not)."""

    files: DurableFileSystem
    directory: str
    strays: tuple[str, ...]
    awaited: str | None

    def remove_strays(self) -> None:
        """Delete them."""
        for path in self.strays:
            self.files.remove(path)


def remains_of(registry: Registry, resource: str, node: str, stream: str) -> StreamRemains:
    """What there is of one stream. `node` is the registry path of the stream, below that of its `resource`.

    Files are listed first: what is named later, by a commit that nobody had seen, is no stray. Raises ConfigInvalid
    (the file system cannot be opened here), DescriptorUnreadable, and what the file system and the registry raise.
    """
    files, root = durable_file_system(resource.removeprefix(_LOCAL))
    layout = StreamLayout(root, stream)
    staged, merging = files.names(layout.staged), files.names(layout.merging)
    waiting = segment_keys(files.names(layout.committed))
    log, merge = registry.find(f"{node}/commit-log"), registry.find(f"{node}/merge")
    said = None if log is None else CommitLog.from_bytes(log.data, path=f"{node}/commit-log")
    pending = None if merge is None else MergeDescriptor.from_bytes(merge.data, path=f"{node}/merge").pending
    named = _named(said.committed if said else None) | _named(
        said.prepared.committed if said and said.prepared else None
    )
    strays = [f"{layout.staged}/{name}" for name in staged if name not in named]
    strays += [f"{layout.merging}/{name}" for name in merging if pending is None or name != pending.temporary]
    awaited = None
    if said is not None and said.prepared is not None:
        awaited = f"'{said.prepared.decision.coordinator}' decides about its last round"
    elif named & set(staged):
        awaited = f"{len(named & set(staged))} committed files of its last round are not in their place"
    elif pending is not None:
        awaited = f"the merge that makes {pending.file} is not done"
    elif waiting:
        awaited = f"{len(waiting)} committed files wait to be merged"
    elif named and not files.is_directory(root):
        awaited = f"{root} is not to be seen from here, and its last round may not be in its place"
    return StreamRemains(files, layout.root, tuple(strays), awaited)


def files_on_their_way(path: str) -> tuple[str, dict[str, int]]:
    """The resource of a sink's directory, and how many files of which kind are on their way there: staged, committed,
    merging. Raises ConfigInvalid, and what the file system raises."""
    files, root = durable_file_system(path)
    found: dict[str, int] = {}
    for kind in ("staged", "committed", "merging"):
        below = f"{root}/{PRIVATE}/{kind}"
        count = sum(len(files.names(f"{below}/{stream}")) for stream in files.names(below) if stream.isdecimal())
        found |= {kind: count} if count else {}
    return files.resource(root), found


def _named(committed: CommitDescriptor | None) -> set[str]:
    if committed is None or committed.kind != KIND:
        return set()
    return {segment.name for segment in StagedRound.model_validate(committed.data).segments}
