"""What a streaming query has written into its checkpoint about its batches: which it has planned, which were done.

Of each batch Spark writes `offsets/<number>` before it runs (a line for the format, one about the query, one a source),
and `commits/<number>` when it is done. Both are there whole or not at all.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from scribengin.errors import CheckpointMismatch
from scribengin.filesystems.contract import DurableFileSystem
from scribengin.spark.stateful.offers import Offset

_FILE_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class QueryLog:
    """The last batches of a query; -1: there is none."""

    planned: int
    done: int
    files: DurableFileSystem
    directory: str

    @classmethod
    def read(cls, files: DurableFileSystem, directory: str) -> QueryLog:
        """Of the query whose checkpoint is in `directory`."""
        return cls(_last(files, directory, "offsets"), _last(files, directory, "commits"), files, directory)

    def offsets(self, number: int) -> Mapping[str, Offset]:
        """Where the range of each source ended in a batch. Raises CheckpointMismatch: it has no such batch."""
        path = posixpath.join(self.directory, "offsets", str(number))
        try:
            lines = self.files.read(path, 0, _FILE_BYTES_MAX).decode().splitlines()[2:]
            found = [json.loads(line) for line in lines]
            return {str(offset["source"]): offset for offset in found}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            raise CheckpointMismatch(
                f"{path} is not there, or not as this engine's queries write it: bring the checkpoint back as it was"
            ) from None


def _last(files: DurableFileSystem, directory: str, of: str) -> int:
    names = files.names(posixpath.join(directory, of))
    return max((int(name) for name in names if name.isdecimal()), default=-1)
