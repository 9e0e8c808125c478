"""How far a file of HDFS goes that grows, without its being opened anew for each look.

Hadoop's client learns a file's length when it opens it: it asks the NameNode for the blocks, and a DataNode, over a
connection made for that one question, for the length of the last. Its stream never looks beyond that. What is here
asks the DataNode again, over a connection that stays, and tells the stream what it has learnt. So the stream goes on
to find its way round DataNodes that are gone, as ever.

That needs two fields of the stream that Hadoop shows to nobody. Where another version of it has others, nothing grows
here, and whoever reads opens the file anew. Everything raises what Java throws.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

from scribengin.base.jvm import hadoop_configuration, java, java_error

_BY_NAME = "dfs.client.use.datanode.hostname"
_ANSWER_MS = 3000
_SETTINGS = {
    "ipc.client.connect.timeout": str(_ANSWER_MS),
    "ipc.client.connect.max.retries": "0",
    "ipc.client.connect.max.retries.on.timeouts": "0",
}
"""A DataNode that does not answer is not waited for: the file has others."""
_PROTOCOL = "org.apache.hadoop.hdfs.protocolPB.ClientDatanodeProtocolPB"
_QUESTION = "org.apache.hadoop.hdfs.protocol.proto.ClientDatanodeProtocolProtos$GetReplicaVisibleLengthRequestProto"


class FileEnd:
    """Where a stream that reads a file believes that it ends."""

    def __init__(self, stream: Any) -> None:
        """`stream` as Hadoop's `FileSystem.open` returns it."""
        self._stream = stream.getWrappedStream()
        self._fields = _fields_of_stream()

    def growing_block(self) -> Any:
        """The LocatedBlock that is being written to, as far as this stream knows. None: it knows of none."""
        if self._fields is None:
            return None
        blocks = self._fields[0].get(self._stream)
        if blocks is None or not blocks.isUnderConstruction() or blocks.isLastBlockComplete():
            return None
        block = blocks.getLastLocatedBlock()
        return block if block is not None and len(block.getLocations()) else None

    def move(self, block: Any, length: int) -> None:
        """Let the stream read so many bytes of the block that `growing_block` has returned."""
        assert self._fields is not None, "there is a block that grows"
        block.getBlock().setNumBytes(length)
        self._fields[1].setLong(self._stream, length)


def data_nodes(block: Any) -> list[str]:
    """The addresses of those that have the block, the nearest first."""
    return [str(place.getXferAddr()) for place in block.getLocations()]


class ReplicaLengths:
    """Asks one DataNode of a block how much of it can be read. `close` it.

    Each question ends. Hadoop's own proxy, over a connection that stays, waits for ever for a DataNode that hangs."""

    def __init__(self, block: Any, node: str) -> None:
        """`node` is one of `data_nodes` of the block."""
        self._name = str(block.getBlock())
        where = next(place for place in block.getLocations() if str(place.getXferAddr()) == node)
        settings = _settings()
        address = where.getIpcAddr(settings.getBoolean(_BY_NAME, False))
        user = java("org.apache.hadoop.security.UserGroupInformation").createRemoteUser(
            block.getBlock().getLocalBlock().toString()
        )
        user.addToken(block.getBlockToken())  # what a DataNode wants to see where tokens are asked for
        kind, rpc = java(_PROTOCOL).class_, java("org.apache.hadoop.ipc.RPC")
        rpc.setProtocolEngine(settings, kind, java("org.apache.hadoop.ipc.ProtobufRpcEngine2").class_)
        self._data_node = rpc.getProxy(
            kind,
            rpc.getProtocolVersion(kind),
            java("org.apache.hadoop.net.NetUtils").createSocketAddr(address),
            user,
            settings,
            _socket_factory(),
            _ANSWER_MS,
        )

    def is_of(self, block: Any) -> bool:
        """Whether it was made for that block, under the generation that it has now."""
        return str(block.getBlock()) == self._name

    def ask(self, block: Any) -> int:
        """Bytes of the block that every DataNode behind that one has as well. Negative: it has none that can be read,
        as where it was started again."""
        named = java("org.apache.hadoop.hdfs.protocolPB.PBHelperClient").convert(block.getBlock())
        question = java(_QUESTION).newBuilder().setBlock(named).build()
        return int(self._data_node.getReplicaVisibleLength(None, question).getLength())

    def close(self) -> None:
        """Idempotent."""
        with suppress(java_error()):
            java("org.apache.hadoop.ipc.RPC").stopProxy(self._data_node)


@cache
def _fields_of_stream() -> tuple[Any, Any] | None:
    """Of the stream: its blocks, and the length of the last where that is being written to."""
    kind = java("org.apache.hadoop.hdfs.DFSInputStream").class_
    try:
        blocks, length = kind.getDeclaredField("locatedBlocks"), kind.getDeclaredField("lastBlockBeingWrittenLength")
    except java_error():
        return None
    blocks.setAccessible(True)
    length.setAccessible(True)
    return blocks, length


@cache
def _socket_factory() -> Any:
    """One that nothing else of Hadoop's client has here. Who shares one shares how long a connection may take to be
    made, whatever the settings say. A cluster that is reached through a proxy has its own."""
    factory = java("org.apache.hadoop.net.NetUtils").getDefaultSocketFactory(_settings())
    plain = java("org.apache.hadoop.net.StandardSocketFactory")
    return java("javax.net.SocketFactory").getDefault() if isinstance(factory, plain) else factory


@cache
def _settings() -> Any:
    configuration = hadoop_configuration()
    for name, value in _SETTINGS.items():
        configuration.set(name, value)
    return configuration
