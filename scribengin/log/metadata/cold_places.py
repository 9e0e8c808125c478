"""The places of a log's cold copies: whether what is seen there is the place, or what stands for it where it is away.

A disk that is not mounted, a bucket of another account: each looks like a place from which all files have gone. What is
seen there, believed once, costs records: copies are forgotten, others are made where nobody will look for them, and
segments that are cold alone count as purged. So a place has a mark (store/cold.py), which the log's head names
(`cold_tokens`):

1. the head names the place, so that whoever deletes the log looks there;
2. the mark is made, under a name like no other, and durable;
3. the head names its token, unless it names another one by then: that one counts, and this one goes.

Who dies after 1 leaves a place that is in no use, after 2 a mark that the next one finds, and takes for its own. From 3
on nobody lists the place, writes to it, or takes away what it misses there, unless its mark is there.

A place that was used before there were marks has none. It gets one from the first who maintains its log, and sees there
a copy that the log names. Where it sees none of these, it is away. Until then any file in it tells that it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scribengin.base.failpoints import failpoint
from scribengin.errors import LogNotFound, StoreUnreachable
from scribengin.log.config import LogConfig
from scribengin.log.metadata.segments import LogMetadata, LogOperator, LogState, SegmentDescriptor, SegmentsHead
from scribengin.log.store.cold import (
    cold_names,
    cold_place,
    look_into,
    mark_cold,
    not_there,
    remove_cold,
    settle_mark,
    unmark_cold,
)
from scribengin.log.store.contract import SegmentName
from scribengin_registry.contract import Operation, Set

EMPTIED = ""
"""The token of a place that a deletion has emptied."""


def places_of(head: SegmentsHead, config: LogConfig) -> list[str]:
    """Where cold copies of a log may be."""
    configured = [] if config.cold_url is None else [cold_place(config.cold_url, head.directory)]
    return list(dict.fromkeys((*head.cold_places, *configured)))


def cold_files(head: SegmentsHead, config: LogConfig) -> list[SegmentName]:
    """Every file of a log that cold storage has. Raises StoreUnreachable (also where the mark of a place is not there),
    LogWriteFailed."""
    tokens = head.cold_tokens
    return [name for at in places_of(head, config) for name in cold_names(at, head.directory, tokens.get(at))]


def why_not_all_there(head: SegmentsHead, config: LogConfig) -> str | None:
    """Why what was not found in cold storage may be there all the same, for people; None: every place that may have
    copies of the log was seen. Raises as `cold_files`."""
    tokens = head.cold_tokens
    for place in places_of(head, config):
        if place not in tokens and not look_into(place, head.directory).is_there:
            return str(not_there(place))
        cold_names(place, head.directory, tokens.get(place))
    return None


def name_place(metadata: LogMetadata, directory: str, place: str) -> bool:
    """Let the log's head name the place, and say whether it does: not if the log is another one by now."""

    def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
        if place in head.cold_places:
            return head, []
        return head.model_copy(update={"cold_places": (*head.cold_places, place)}), []

    head = metadata.head()[0]
    if head.directory == directory and place not in head.cold_places:
        metadata.change(LogOperator(directory), change)
    return head.directory == directory


def token_of(metadata: LogMetadata, state: LogState, place: str) -> str:
    """The token of a place that the head names. It gets its mark, if it has none yet.

    Raises StoreUnreachable (it holds none of the copies that the log names there), LogWriteFailed, LogNotFound.
    """
    owner = LogOperator(state.head.directory)
    head = metadata.head()[0]
    owner.check(metadata.log, head)
    if place in head.cold_tokens:
        return head.cold_tokens[place]
    found = look_into(place, owner.directory)
    named = set() if found.marks else _named_in(state.segments, place)
    if named and named.isdisjoint(found.names):
        raise not_there(place)
    if found.marks:
        settle_mark(place)
        return _name_token(metadata, owner, place, min(found.marks))
    made = mark_cold(place)
    try:
        counts = _name_token(metadata, owner, place, made)
    except LogNotFound:  # it was deleted meanwhile, and nobody looks there any more
        unmark_cold(place, made)
        raise
    if counts != made:
        unmark_cold(place, made)
    return counts


def maintained_names(metadata: LogMetadata, state: LogState, place: str) -> list[SegmentName]:
    """Every file of the log in a place that its head names. Where that is away, and no segment is there any more, it
    may be gone for good, and holds up nobody: none. Raises as `token_of`."""
    try:
        return _maintained_names(metadata, state, place)
    except StoreUnreachable:
        if _named_in(state.segments, place):
            raise
        return []


def _maintained_names(metadata: LogMetadata, state: LogState, place: str) -> list[SegmentName]:
    token = state.head.cold_tokens.get(place)
    if token is None:
        there = look_into(place, state.head.directory).is_there
        if not there and not _named_in(state.segments, place):
            return []  # nothing was ever kept there, or nothing is any more
        token = token_of(metadata, state, place)
    return cold_names(place, state.head.directory, token)


def empty_places(metadata: LogMetadata) -> None:
    """Remove what cold storage has of a log that is being deleted: its head names the places, so it goes after it.

    A place whose mark was seen, and no segment beside it, is noted in the head as empty. Then its marks go, too: what
    is left of it could not be told from a place that is away. Raises StoreUnreachable, LogWriteFailed, and what the
    registry raises.
    """
    node = metadata.registry.find(metadata.segments_path)
    places = () if node is None else SegmentsHead.from_bytes(node.data, path=metadata.segments_path).cold_places
    for place in places:
        node = metadata.registry.find(metadata.segments_path)
        if node is None:
            return  # somebody else deletes it, too
        head = SegmentsHead.from_bytes(node.data, path=metadata.segments_path)
        if head.cold_tokens.get(place) != EMPTIED:
            _empty(metadata, head, place)
            after = head.model_copy(update={"cold_tokens": {**head.cold_tokens, place: EMPTIED}})
            with failpoint("log.cold_emptied"):
                change = Set(metadata.segments_path, after.to_bytes(), node.version)
                metadata.registry.commit([metadata.same(head.directory), change])
        for mark in look_into(place, head.directory).marks:
            unmark_cold(place, mark)


def _empty(metadata: LogMetadata, head: SegmentsHead, place: str) -> None:
    """Remove every segment in a place, and look until a mark was seen without one."""
    found = look_into(place, head.directory)
    token = head.cold_tokens.get(place)
    if token is None:
        if not found.is_there and not _named_in(_nodes_of(metadata), place):
            return
        if found.names and not found.marks:
            mark_cold(place)
    removed: tuple[SegmentName, ...] = ()
    while True:
        found = look_into(place, head.directory)
        if not (found.marks if token is None else token in found.marks):
            raise not_there(place, token)
        if found.names == removed:  # none is left, or what is no file of ours
            return
        removed = found.names
        for name in removed:
            remove_cold(name)


def _name_token(metadata: LogMetadata, owner: LogOperator, place: str, token: str) -> str:
    """Let the head name the token of a place, unless it names one: the one that it names then."""

    def change(head: SegmentsHead) -> tuple[SegmentsHead, list[Operation]]:
        if place in head.cold_tokens:
            return head, []
        return head.model_copy(update={"cold_tokens": {**head.cold_tokens, place: token}}), []

    return metadata.change(owner, change).cold_tokens[place]


def _named_in(segments: Iterable[SegmentDescriptor], place: str) -> set[SegmentName]:
    """The copies that a log names there."""
    return {name for name in (segment.cold_file for segment in segments) if name is not None and name.place == place}


def _nodes_of(metadata: LogMetadata) -> Iterator[SegmentDescriptor]:
    """What the nodes of a log that is being deleted say of its segments."""
    paths = [f"{metadata.segments_path}/{node}" for node in metadata.registry.children(metadata.segments_path)]
    for path, node in zip(paths, metadata.registry.find_all(paths), strict=True):
        if node is not None:
            yield SegmentDescriptor.from_bytes(node.data, path=path)
