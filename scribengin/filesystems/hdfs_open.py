"""Files of HDFS that are written to while others read them, through Hadoop's own client in a JVM (base/jvm.py).

hdfs-native (hdfs.py) does the rest, with no Java in the process; what it does not do is all that is here:
- It reads of an open file only the blocks that are complete. Hadoop's client asks a DataNode how far the last goes.
- `hsync` syncs the block that is being written, and no block before it. Only a file that is created with SYNC_BLOCK has
  its full blocks synced as well, and hdfs-native cannot ask for that.
- It cannot `hflush`: hand bytes to every DataNode, to be read from there, without waiting for their disks.
- A DataNode that dies is taken out of the pipeline, and the writer goes on with the others.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any

from scribengin.base.jvm import (
    hadoop_configuration,
    java,
    java_bytes,
    java_error,
    java_raising,
    java_reason,
    java_room,
    start_jvm,
)
from scribengin.filesystems.hdfs import os_error
from scribengin.filesystems.hdfs_growth import FileEnd, ReplicaLengths, data_nodes

_BUFFER_BYTES = 4096
_PIECE_BYTES = 4 * 1024 * 1024
"""So much is handed to Java, or taken from it, at once: its heap is small."""
_PASSING = frozenset(
    {
        "SafeModeException",
        "StandbyException",
        "RetriableException",
        "RecoveryInProgressException",
        "ConnectException",
        "ConnectTimeoutException",
        "SocketTimeoutException",
        "SocketException",
        "NoRouteToHostException",
        "UnknownHostException",
        "ClosedChannelException",
        "EOFException",
        "BlockMissingException",
        "CannotObtainBlockLengthException",
    }
)
_COPIES_MIN = "dfs.client.block.write.replace-datanode-on-failure.min-replication"
_NO_DATA_NODES = ("All datanodes", "Failed to replace a bad datanode", "Unable to create new block")
_SETTINGS = {
    _COPIES_MIN: "2",
    "ipc.client.connect.max.retries": "10",
    "ipc.client.connect.max.retries.on.timeouts": "3",
}
"""Where DataNodes are missing, a writer goes on with two copies, and never with one: what is acknowledged outlives any
one disk. What the cluster's configuration says goes first."""
_NO_SUCH_FILE = "FileNotFoundException"


class OpenFile:
    """A file that this process writes to. After any error it is only good for `close`."""

    def __init__(self, path: str, stream: Any, copies_min: int = 0) -> None:
        self._path = path
        self._stream = stream
        self._copies_min = copies_min

    def write(self, data: bytes) -> None:
        """Behind what was written. Raises OSError."""
        whole = memoryview(data)
        with _plain_errors(self._path):
            for start in range(0, len(whole), _PIECE_BYTES):
                self._stream.write(java_bytes(whole[start : start + _PIECE_BYTES]))

    def hsync(self) -> None:
        """Return once all that was written is on the disks of all its DataNodes. Raises OSError, also where these are
        too few by now: what was written may stay all the same."""
        with _plain_errors(self._path):
            self._stream.hsync()
            copies = int(self._stream.getCurrentBlockReplication()) if self._copies_min else 0
        if copies < self._copies_min:
            raise ConnectionError(
                f"{copies} of its DataNodes is left, and {self._copies_min} are wanted: start more, or let "
                f"{_COPIES_MIN} be {copies} in hdfs-site.xml"
            )

    def hflush(self) -> None:
        """Return once all that was written can be read, and is in the memory of all its DataNodes. Raises OSError."""
        with _plain_errors(self._path):
            self._stream.hflush()

    def close(self) -> None:
        """Let go of it, and of its lease. Raises OSError, as for one that was taken over."""
        with _plain_errors(self._path):
            self._stream.close()


class OpenFileReader:
    """What there is of a file up to now, whoever writes to it. Not thread-safe. `close` it, also after an error of
    `read`: its stream may have taken another length from the cluster since, and never reads what it had before."""

    def __init__(self, path: str, stream: Any, block_bytes: int) -> None:
        self._path = path
        self._stream = stream
        self._block_bytes = block_bytes
        self._lengths: ReplicaLengths | None = None
        self._node = ""
        """Which DataNode is asked."""
        self._silent: set[str] = set()
        """Those that did not answer: others are asked."""
        with _plain_errors(path):
            self._end = FileEnd(stream)
            self.size = int(stream.getVisibleLength())
            """Bytes that can be read through this: those that all its DataNodes had when that was last asked."""

    def look(self) -> bool:
        """Let `size` be what there is now: one DataNode is asked, over a connection that stays, and no NameNode.

        False: this cannot tell whether there is more, so the file has to be opened anew. That is so where a block has
        ended, and where the DataNode does not answer in time: another one is asked after that. One that the writer has
        left behind tells of no growth, as if nothing came: open the file anew from time to time.
        """
        try:
            with _plain_errors(self._path):
                block = self._end.growing_block()
                if block is None:
                    return False
                if self._lengths is None or not self._lengths.is_of(block):
                    self._leave_lengths()
                    self._node = self._data_node(block)
                    self._lengths = ReplicaLengths(block, self._node)
                length = self._lengths.ask(block)
                if length >= 0:
                    return self.extend(int(block.getStartOffset()) + length) and length < self._block_bytes
        except OSError:  # as of a DataNode that is gone
            pass
        self._leave_lengths()
        self._silent.add(self._node)
        return False

    def _data_node(self, block: Any) -> str:
        nodes = data_nodes(block)
        if self._silent.issuperset(nodes):
            self._silent.clear()
        return next(node for node in nodes if node not in self._silent)

    def extend(self, size: int) -> bool:
        """Whether the bytes before `size` can be read through this from here on. The caller knows that all DataNodes
        have them. False: there is a block that this does not know of. Raises OSError."""
        with _plain_errors(self._path):
            if size <= self.size:
                return True
            block = self._end.growing_block()
            if block is None or size > int(block.getStartOffset()) + self._block_bytes:
                return False
            self._end.move(block, size - int(block.getStartOffset()))
        self.size = size
        return True

    def read(self, start: int, end: int) -> bytes:
        """The bytes [start, end), fewer where it ends before. Raises OSError."""
        end = min(end, self.size)
        return b"".join(self._piece(at, min(at + _PIECE_BYTES, end)) for at in range(start, end, _PIECE_BYTES))

    def _piece(self, start: int, end: int) -> bytes:
        room = java_room(end - start)
        with _plain_errors(self._path):
            self._stream.readFully(start, room)
        return bytes(room)

    def take_over(self, before: OpenFileReader) -> None:
        """Ask the DataNode that `before` has asked, over its connection, and close `before`. Raises OSError."""
        self._lengths = before._lengths
        self._node = before._node
        self._silent = before._silent
        before._lengths = None
        before.close()

    def close(self) -> None:
        """Release it. Idempotent."""
        self._leave_lengths()
        with _plain_errors(self._path):
            self._stream.close()

    def _leave_lengths(self) -> None:
        lengths, self._lengths = self._lengths, None
        if lengths is not None:
            lengths.close()


class OpenFiles:
    """One cluster's files through Hadoop's client. Thread-safe. Everything raises OSErrors, a missing file is
    FileNotFoundError, a name that is taken FileExistsError, and a cluster that does not answer ConnectionError."""

    def __init__(self, url: str) -> None:
        """`url` as `HdfsFileSystem.url` has it. Starts the JVM when it is used first: raises ConfigInvalid (no JPype),
        LauncherError (no Java)."""
        self._url = url

    def create(self, path: str) -> OpenFile:
        """A file that is not there, in a directory that is. It survives the NameNode's death from here on."""
        files, where = self._files, self._path(path)
        flags = java("org.apache.hadoop.fs.CreateFlag")
        with _plain_errors(path):
            defaults = files.getServerDefaults(where)
            copies_min = min(int(defaults.getReplication()), int(files.getConf().getInt(_COPIES_MIN, 0)))
            stream = files.createNonRecursive(
                where,
                java("org.apache.hadoop.fs.permission.FsPermission").getFileDefault(),
                java("java.util.EnumSet").of(flags.CREATE, flags.SYNC_BLOCK),
                _BUFFER_BYTES,
                defaults.getReplication(),
                defaults.getBlockSize(),
                None,
            )
        return OpenFile(path, stream, copies_min)

    def append(self, path: str) -> OpenFile:
        """A file that is there, and that nobody has open, to be written on. Raises FileExistsError: somebody has."""
        with _plain_errors(path):
            return OpenFile(path, self._files.append(self._path(path)))

    def open(self, path: str) -> OpenFileReader:
        """What there is of a file now."""
        with _plain_errors(path):
            block_bytes = int(self._files.getFileStatus(self._path(path)).getBlockSize())
            stream = self._files.open(self._path(path))
        try:
            return OpenFileReader(path, stream, block_bytes)
        except BaseException:
            with suppress(java_error()):
                stream.close()
            raise

    def is_closed(self, path: str) -> bool:
        """Whether nobody has it open, or it is gone."""
        try:
            with _plain_errors(path):
                return bool(self._files.isFileClosed(self._path(path)))
        except FileNotFoundError:
            return True

    def number(self, path: str) -> int:
        """The number that the NameNode gave to the file, and to no other one."""
        with _plain_errors(path):
            return int(self._files.getClient().getFileInfo(path).getFileId())

    @property
    def _files(self) -> Any:
        return _client(self._url)

    def _path(self, path: str) -> Any:
        """Starts the JVM first."""
        return java("org.apache.hadoop.fs.Path")(f"{self._url}{path}") if self._files else None


@cache
def _client(url: str) -> Any:
    start_jvm()
    configuration = hadoop_configuration()
    for name, value in _SETTINGS.items():
        if not configuration.getPropertySources(name) or _is_default(configuration, name):
            configuration.set(name, value)
    with _plain_errors(url):
        return java("org.apache.hadoop.fs.FileSystem").newInstance(java("java.net.URI").create(url), configuration)


def _is_default(configuration: Any, name: str) -> bool:
    return all("-default.xml" in str(source) for source in configuration.getPropertySources(name))


@contextmanager
def _plain_errors(path: str) -> Iterator[None]:
    """Turn what Hadoop's client throws into OSErrors."""
    with java_raising(partial(_turned, path)):
        yield


def _turned(path: str, error: Any) -> OSError:
    kind, words = str(error.getClass().getSimpleName()), java_reason(error)
    if kind == "RemoteException":
        kind = str(error.getClassName()).rpartition(".")[2]
    if kind == _NO_SUCH_FILE:
        return FileNotFoundError(errno.ENOENT, "there is no such file", path)
    passing = kind in _PASSING or any(said in words for said in _NO_DATA_NODES)
    return os_error(path, f"{kind} {words}", words, passing=passing)
