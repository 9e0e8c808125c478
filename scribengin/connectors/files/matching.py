"""Which of the files that are there are those that were read: by what their system knows them by, by their names, and
by the bytes before the place where reading stopped. Pure, but for the question whether those bytes are the same.

| what has happened to a file                   | what follows                                                     |
|-----------------------------------------------|------------------------------------------------------------------|
| it was renamed                                | it is read on under its new name                                 |
| it was renamed, and another one has its name  | the old one is read to its end, then the new one                 |
| ... to a name that the source does not mean   | the same; it is forgotten once it is read, and still             |
| it was finished, and another one has its name | the new one is read from its beginning                           |
| it was written anew under its name, and       | it is the same one: a copy that was put back, or is brought      |
| what was read is in it unchanged              | again and again as it grows                                      |
| it was cut, or overwritten in place           | an error: nobody knows what was written to it between            |
| it was half read, and is gone                 | an error                                                         |

HDFS knows no identities. A renamed file is told there by its time of modification; where that has moved, as when its
writer closed it, by what rotation adds to its name, and by the bytes that were read. Where a file system knows neither,
a renamed file is not told at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from scribengin.connectors.files.source.listing import unrotated
from scribengin.connectors.files.source.position import FilePosition, SeenFile
from scribengin.errors import DataflowError
from scribengin.filesystems.contract import FileInfo, is_lasting, is_time, is_version

IsSame = Callable[[FileInfo, SeenFile], bool]
"""Whether a file has, where reading stopped, the bytes that were read."""
_ROTATE = "Rotate files by renaming them (logrotate: without copytruncate)"


@dataclass(frozen=True, slots=True)
class Question:
    """What files are held against."""

    is_same: IsSame
    grows: Callable[[str], bool]
    beside: Callable[[], Iterable[FileInfo]]
    """Files that the source does not mean, where one that it means may have been renamed to."""
    is_settled: Callable[[FileInfo], bool]
    elsewhere: Callable[[], Iterable[FileInfo]]
    """What the source's other streams read."""
    what: str


@dataclass(slots=True)
class Match:
    """A position with the names that its files have now, and the files: those that the source means, and renamed ones
    that it does not."""

    position: FilePosition
    infos: list[FileInfo]


@dataclass(slots=True)
class _Changes:
    """What is to be done to a position: files under other names, or known by something else; names that are new."""

    opened: dict[str, SeenFile] = field(default_factory=dict)
    finished: dict[str, SeenFile] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)

    def know(self, position: FilePosition, name: str, to: str, seen: SeenFile) -> None:
        """The file that was `name` is `to` now; half read, or finished, as before."""
        (self.opened if name in position.open else self.finished)[to] = seen


def match(position: FilePosition, folded: Mapping[str, SeenFile], infos: list[FileInfo], ask: Question) -> Match:
    """Hold a position against the files that are there. `folded`: what the nodes say.

    Raises DataflowError when a half read file is gone, or any was changed in what was read of it; FileNotFoundError.
    """
    changes = _Changes()
    new: list[FileInfo] = []
    lost: dict[str, SeenFile] = {}
    others: dict[str, FileInfo] = {}
    for info in infos:
        seen = position.seen(info.name, folded)
        if seen is None:
            new.append(info)
        elif seen.identity == info.identity and _is_named_same(seen, info):
            _check_in_place(seen, info, ask)
        elif not is_lasting(seen.identity) and _holds(info, seen, ask):
            _know_as(position, info, seen, changes)
        else:
            lost[info.name], others[info.name] = seen, info
    there = {info.name for info in infos}
    for names in (position.open, position.finished, folded):
        for name in names:
            if name not in there and name not in lost and (seen := position.seen(name, folded)) is not None:
                lost[name] = seen
    found = _find_renamed(position, lost, [*new, *others.values()], ask, changes)
    renamed = {info.name for info in found}
    for name in lost.keys() - changes.forgotten:
        _follow(position, name, lost[name], None if name in renamed else others.get(name), ask, changes)
    more = [info for info in found if info.name not in there]
    return Match(_changed_position(position, folded, changes), [*infos, *more] if more else infos)


def _is_named_same(seen: SeenFile, info: FileInfo) -> bool:
    """Whether two equal identities are of one file: where there are none, nothing may have changed."""
    return bool(seen.identity) or (seen.modified_ms == info.modified_ms and seen.read <= info.size_bytes)


def _check_in_place(seen: SeenFile, info: FileInfo, ask: Question) -> None:
    """The file is still the one that it was. Raises DataflowError when what was read of it is not."""
    is_whole = not ask.grows(info.name)
    if is_whole and info.size_bytes != seen.read:
        raise _whole_changed(info, seen, ask)
    if info.size_bytes < seen.read:
        raise DataflowError(
            f"{ask.what}: {info.name} has {info.size_bytes} bytes, and {seen.read} of them were read: it was cut, as "
            f"by copying and truncating it, and what was written before that may be lost. {_ROTATE}; put it back, or "
            "give new data a new name"
        )
    if seen.modified_ms != info.modified_ms and not ask.is_same(info, seen):
        if is_whole:
            raise _whole_changed(info, seen, ask)
        raise DataflowError(
            f"{ask.what}: {info.name} was overwritten in place, as by copying and truncating it: before byte "
            f"{seen.read} there is not what was read there, and lines may be lost. {_ROTATE}; put it back, or give new "
            "data a new name"
        )


def _know_as(position: FilePosition, info: FileInfo, seen: SeenFile, changes: _Changes) -> None:
    known = replace(seen, identity=info.identity, modified_ms=info.modified_ms)
    changes.know(position, info.name, info.name, known)


def _find_renamed(
    position: FilePosition, lost: Mapping[str, SeenFile], candidates: list[FileInfo], ask: Question, changes: _Changes
) -> list[FileInfo]:
    """Find lost files under other names: those files. Their old names are forgotten, the new ones known."""
    by_identity = _by_identity(candidates if lost else ())
    beside: dict[str, list[FileInfo]] | None = None
    found: list[FileInfo] = []
    for name, seen in lost.items():
        if not seen.identity or is_version(seen.identity):
            continue
        may_be_longer = ask.grows(name) and (is_lasting(seen.identity) or name in position.open)
        info = _under_other_name(seen, by_identity, ask, may_be_longer=may_be_longer)
        if info is None and (ask.grows(name) or seen.records is not None):
            beside = _by_identity(ask.beside()) if beside is None else beside
            info = _under_other_name(seen, beside, ask, may_be_longer=may_be_longer)
            if info is not None and seen.records is None and info.size_bytes == seen.read and ask.is_settled(info):
                changes.forgotten.add(name)  # it has been read, and nobody adds to it
                continue
        if info is not None:
            changes.forgotten.add(name)
            changes.know(position, name, info.name, seen)
            found.append(info)
    left = [info for infos in (by_identity, beside or {}) for same in infos.values() for info in same]
    return [*found, *_find_rotated(position, lost, left, ask, changes)]


def _find_rotated(
    position: FilePosition, lost: Mapping[str, SeenFile], left: list[FileInfo], ask: Question, changes: _Changes
) -> list[FileInfo]:
    """Find lost files whose time, all that they are known by, has moved since: as rotation names them, with the bytes
    that were read. A name of several such files says nothing."""
    found: list[FileInfo] = []
    for name, seen in lost.items():
        if name in changes.forgotten or not is_time(seen.identity) or not seen.read or not ask.grows(name):
            continue
        stem = unrotated(name)
        same = [i for i in left if i.name != name and unrotated(i.name) == stem and _holds(i, seen, ask)]
        if len(same) == 1:
            (info,) = same
            left.remove(info)
            changes.forgotten.add(name)
            changes.know(position, name, info.name, replace(seen, identity=info.identity, modified_ms=info.modified_ms))
            found.append(info)
    return found


def _by_identity(infos: Iterable[FileInfo]) -> dict[str, list[FileInfo]]:
    found: dict[str, list[FileInfo]] = {}
    for info in infos:
        found.setdefault(info.identity, []).append(info)
    return found


def _under_other_name(
    seen: SeenFile, by_identity: Mapping[str, list[FileInfo]], ask: Question, *, may_be_longer: bool
) -> FileInfo | None:
    """The file under another name, or the one of its name that the source does not mean, taken out of `by_identity`."""
    infos = by_identity.get(seen.identity, [])
    for info in infos:
        of_size = info.size_bytes == seen.read or (may_be_longer and info.size_bytes > seen.read)
        if of_size and ask.is_same(info, seen):
            del infos[infos.index(info)]
            return info
    return None


def _follow(
    position: FilePosition, name: str, seen: SeenFile, info: FileInfo | None, ask: Question, changes: _Changes
) -> None:
    """What becomes of a file that is not under another name: `info` is what has its name now."""
    if info is not None and _holds(info, seen, ask):
        _know_as(position, info, seen, changes)
    elif name in position.open:
        raise _half_read(name, seen, info, ask)
    elif info is not None and not info.identity:
        raise _replaced(info, seen, ask) if ask.grows(name) else _whole_changed(info, seen, ask)
    elif info is not None:
        changes.forgotten.add(name)


def _holds(info: FileInfo, seen: SeenFile, ask: Question) -> bool:
    of_size = info.size_bytes >= seen.read if ask.grows(info.name) else info.size_bytes == seen.read
    return of_size and ask.is_same(info, seen)


def _changed_position(position: FilePosition, folded: Mapping[str, SeenFile], changes: _Changes) -> FilePosition:
    """Files stay open or finished under their new names; what nodes say of a name that has changed is dropped."""
    opened, finished = dict(position.open), dict(position.finished)
    for name in changes.forgotten:
        opened.pop(name, None)
        finished.pop(name, None)
    for name in changes.opened:
        finished.pop(name, None)
    for name in changes.finished:
        opened.pop(name, None)
    dropped = position.dropped.union(name for name in changes.forgotten if name in folded)
    return replace(
        position, open={**opened, **changes.opened}, finished={**finished, **changes.finished}, dropped=dropped
    )


def _half_read(name: str, seen: SeenFile, info: FileInfo | None, ask: Question) -> DataflowError:
    read = f"{seen.read} bytes" if seen.records is None else f"{seen.records} records"
    if is_lasting(seen.identity):
        for other in ask.elsewhere():
            if other.identity == seen.identity and other.name != name:
                return DataflowError(
                    f"{ask.what}: {name} was renamed to {other.name} when only {read} of it were read, and that name "
                    "is another stream's; rename it back to go on, or use streams: 1 where files are renamed so"
                )
    if info is None:
        return DataflowError(f"{ask.what}: {name} is gone, and only {read} of it were read; put it back to go on")
    if not ask.grows(name):
        return _whole_changed(info, seen, ask)
    return DataflowError(
        f"{ask.what}: {name} is another file now, and only {read} of the one before were read. {_ROTATE} in their "
        "directory; put it back beside the new one, or under its name, to go on"
    )


def _replaced(info: FileInfo, seen: SeenFile, ask: Question) -> DataflowError:
    return DataflowError(
        f"{ask.what}: {info.name} has {info.size_bytes} bytes, and not what was read before byte {seen.read}: it was "
        "cut or replaced; put it back, or give new data a new name"
    )


def _whole_changed(info: FileInfo, seen: SeenFile, ask: Question) -> DataflowError:
    return DataflowError(
        f"{ask.what}: {info.name} has {info.size_bytes} bytes, and had {seen.read} when it was read, and others: a "
        "file of its kind is read once it is complete, and may not change; put it back, or give new data a new name"
    )
