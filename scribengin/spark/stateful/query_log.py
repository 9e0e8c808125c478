"""What a streaming query has written into its checkpoint: which batches it has planned, which were done, and what its
operators keep.

Of each batch Spark writes `offsets/<number>` before it runs (a line for the format, one about the query, one a source),
and `commits/<number>` when it is done. Both are there whole or not at all. The first says at which watermark it runs,
and the second at which the next one does.

Of an operator like transformWithState it writes `state/<operator>/_metadata/v2/<batch>` whenever a query starts: a line
for the format, and JSON, which names the files that describe its variables (`_stateSchema`) by their whole paths. A
checkpoint that was moved to its next owner has other paths, so `take_schemas_along` comes before the query.
"""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from scribengin.base.failpoints import failpoint
from scribengin.errors import CheckpointMismatch
from scribengin.filesystems.contract import TreeFileSystem
from scribengin.spark.stateful.offers import Offset

PARTITIONS = "spark.sql.shuffle.partitions"
"""What Spark calls the number of partitions of a query's state. It stands in the plan of each of its batches."""
READ_AGAIN = "let the dataflow read again without its state, with `scribengin rewind`"
BRING_BACK = f"bring the checkpoint back as it was, or {READ_AGAIN}"
_FILE_BYTES_MAX = 64 * 1024 * 1024
_SCHEMAS = "/_stateSchema/"
_METADATA = "_metadata"
_STATE = "state"
_UNFINISHED = ".new"


@dataclass(frozen=True, slots=True)
class QueryDirectory:
    """Where a query has its checkpoint. `str()` of it is for people."""

    files: TreeFileSystem
    path: str

    @property
    def url(self) -> str:
        """As Spark takes it: whatever file system it has for paths without a scheme."""
        return self.files.url_of(self.path)

    def __str__(self) -> str:
        return self.url.removeprefix("file:")


@dataclass(frozen=True, slots=True)
class QueryLog:
    """The last batches of a query; -1: there is none."""

    planned: int
    done: int
    directory: QueryDirectory

    @classmethod
    def read(cls, directory: QueryDirectory) -> QueryLog:
        """Of the query whose checkpoint is there."""
        return cls(_last(directory, "offsets"), _last(directory, "commits"), directory)

    @property
    def keeps_state(self) -> bool:
        """Whether an operator keeps something there. Before a batch is done that is not known: True."""
        return self.done < 0 or any(_operators(self.directory))

    @property
    def owes(self) -> bool:
        """Whether the last batch that is done has moved the watermark, for the next one to give out what that closed.
        Raises as `offsets`."""
        if self.done < 0 or not self.keeps_state:
            return False
        with self._damage_named(self.done, "commits"):
            behind_ms = int(json.loads(self._lines("commits", self.done)[1])["nextBatchWatermarkMs"])
        with self._damage_named(self.done):
            return behind_ms > int(json.loads(self._plan(self.done)[1])["batchWatermarkMs"])

    def offsets(self, number: int) -> Mapping[str, Offset]:
        """Where the range of each source ended in a batch. Raises CheckpointMismatch: it has no such batch."""
        with self._damage_named(number):
            found = [json.loads(line) for line in self._plan(number)[2:]]
            return {str(offset["source"]): offset for offset in found}

    def sources(self, number: int) -> list[str]:
        """The sources of a batch as its query has them, in their order: Spark knows them by nothing else. One that is
        read in several places may be there several times. Raises as `offsets`."""
        with self._damage_named(number):
            return [str(json.loads(line)["source"]) for line in self._plan(number)[2:]]

    def refuse_lost(self, number: int) -> None:
        """Raises CheckpointMismatch unless the plan of a batch is where it was. Where the directory was moved or is
        gone, the query makes it anew, and goes on."""
        with self._damage_named(number):
            self._plan(number)

    def partitions(self, number: int) -> int:
        """Into how many state is divided in a batch. Raises as `offsets`."""
        with self._damage_named(number):
            return int(json.loads(self._plan(number)[1])["conf"][PARTITIONS])

    def divides(self, number: int) -> bool:
        """Whether a batch only divides the state of the one before anew: no query of records changes the number of
        partitions. Raises as `offsets`."""
        if number < 1 or self.partitions(number) == self.partitions(number - 1):
            return False
        return self.offsets(number) == self.offsets(number - 1)

    def _plan(self, number: int) -> list[str]:
        return self._lines("offsets", number)

    def _lines(self, of: str, number: int) -> list[str]:
        path = posixpath.join(self.directory.path, of, str(number))
        return self.directory.files.read(path, 0, _FILE_BYTES_MAX).decode().splitlines()

    @contextmanager
    def _damage_named(self, number: int, of: str = "offsets") -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, ValueError, KeyError, TypeError, IndexError):
            raise CheckpointMismatch(
                f"{self.directory}/{of}/{number} is not there, or not as this engine's queries write it: {BRING_BACK}"
            ) from None


def take_schemas_along(directory: QueryDirectory) -> None:
    """Have the operators' metadata name their schemas where they are now: below the query's directory.

    For the checkpoint's owner, while no query of its own runs. It may end anywhere, and be done again: each file is
    replaced whole. The path is made from what never changes, so it does not matter whose path stood there.

    Raises CheckpointMismatch where a file is damaged, FileNotFoundError once a later owner has moved the checkpoint.
    """
    files = directory.files
    state = posixpath.join(directory.path, _STATE)
    for operator in _operators(directory):
        metadata = posixpath.join(state, operator, _METADATA)
        versioned = posixpath.join(metadata, "v2")
        numbers = [name for name in files.names(versioned) if name.isdecimal()]
        moved = {
            number: data
            for number in numbers
            if (data := _naming(files, posixpath.join(versioned, number), posixpath.join(state, operator))) is not None
        }
        if moved:
            _replace(files, metadata, moved)


def take_back(directory: QueryDirectory, number: int) -> None:
    """Have it as if a batch had never been planned: the last one, which is not done, and whose number no commit log
    has. For the checkpoint's owner, as above. Its plan goes last, so that this may end anywhere, and be done again.

    State that it has written stays: only a batch that is done has the names of such files. But of an operator like
    transformWithState the newest description counts.
    """
    state = posixpath.join(directory.path, _STATE)
    versioned = [posixpath.join(state, operator, _METADATA, "v2") for operator in _operators(directory)]
    for described in filter(directory.files.names, versioned):
        _remove_numbered(directory.files, described, number)
    _remove_numbered(directory.files, posixpath.join(directory.path, "offsets"), number)


def _remove_numbered(files: TreeFileSystem, directory: str, number: int) -> None:
    """Spark's checksum goes before the file: without one, none is compared."""
    for name in (f".{number}.crc", f"{number}"):
        files.remove(posixpath.join(directory, name))
    files.sync_directory(directory)


def _operators(directory: QueryDirectory) -> Iterator[str]:
    """The names, which are numbers, of the directories of those that keep something."""
    return filter(str.isdecimal, directory.files.names(posixpath.join(directory.path, _STATE)))


def _naming(files: TreeFileSystem, path: str, operator: str) -> bytes | None:
    """That file of metadata, with the schemas of `operator`'s directory in it. None: it names them already."""
    text = files.read(path, 0, _FILE_BYTES_MAX).decode(errors="replace")
    here = files.url_of(operator)
    try:
        version, _, described = text.partition("\n")
        content = json.loads(described)
        changed = False
        for store in content["stateStoreInfo"]:
            before = store["stateSchemaFilePaths"]
            now = [f"{here}{one[one.rindex(_SCHEMAS) :]}" for one in before]
            store["stateSchemaFilePaths"] = now
            changed |= now != before
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointMismatch(f"{files.url_of(path)} is not as Spark writes it: {BRING_BACK}") from None
    return f"{version}\n{json.dumps(content, separators=(',', ':'))}".encode() if changed else None


def _replace(files: TreeFileSystem, metadata: str, contents: Mapping[str, bytes]) -> None:
    """Replace files of the directory `v2` in `metadata`. New ones are written beside it: in it Spark takes every name
    for a number. Spark's checksum of a file goes before the file changes: without one, none is compared."""
    versioned = posixpath.join(metadata, "v2")
    for left in files.names(metadata):
        if left.endswith(_UNFINISHED):
            files.remove(posixpath.join(metadata, left))
    written = {number: posixpath.join(metadata, f"{number}-{uuid.uuid4().hex}{_UNFINISHED}") for number in contents}
    for number, path in written.items():
        with closing(files.create(path)) as file:
            file.append(contents[number])
            file.sync()
    for number in contents:
        files.remove(posixpath.join(versioned, f".{number}.crc"))
    files.sync_directory(versioned)
    for number, path in written.items():
        with failpoint("checkpoint.take_schemas"):
            files.replace(path, posixpath.join(versioned, number))
    files.sync_directory(versioned)


def _last(directory: QueryDirectory, of: str) -> int:
    names = directory.files.names(posixpath.join(directory.path, of))
    return max((int(name) for name in names if name.isdecimal()), default=-1)
