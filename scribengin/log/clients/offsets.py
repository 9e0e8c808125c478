"""Where readers stand, kept outside of the logs: a contract, and two that fulfil it.

What is stored is the position of the first record that has not been processed: a reader that starts there goes on. A
position belongs to one log for good, not to whatever log later has its name; so the log's directory is stored with it.
"""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, field_serializer, field_validator

from scribengin.base.failpoints import failpoint
from scribengin.base.model import Descriptor, node_name
from scribengin.errors import LogError, LogWriteFailed
from scribengin.filesystems.directories import make_directory, sync_directory
from scribengin.log import DLSN
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeExists, NodeMissing


class LogOffset(BaseModel):
    """A position in the log whose directory that is. Written as `segment/entry/slot`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    directory: str
    position: DLSN

    @field_validator("position", mode="plain")
    @classmethod
    def _parsed(cls, value: object) -> DLSN:
        return value if isinstance(value, DLSN) else DLSN.parse(str(value))

    @field_serializer("position")
    def _printed(self, value: DLSN) -> str:
        return "/".join(str(number) for number in value)


class OffsetsDescriptor(Descriptor):
    """What a store keeps for one reader: its position in each log."""

    reader: str
    logs: dict[str, LogOffset]


class OffsetStore(ABC):
    """Keeps the positions of readers. Thread-safe.

    The mistake this contract invites: two readers with one name. Each replaces what the other stored; give every reader
    a name of its own. Not promised: that a position only moves forward.
    """

    @abstractmethod
    def load(self, reader: str) -> dict[str, LogOffset]:
        """What was stored last for the reader; nothing if nothing was. Raises DescriptorUnreadable, LogError."""

    @abstractmethod
    def store(self, reader: str, logs: Mapping[str, LogOffset]) -> None:
        """Replace what is stored, all of it or nothing. It is durable when this returns; if it raises, either may be
        stored, and it is right to store again."""

    @abstractmethod
    def delete(self, reader: str) -> None:
        """Forget the reader. Idempotent."""


class FileOffsetStore(OffsetStore):
    """A file for each reader in one directory: written beside, made durable, renamed over the old one."""

    def __init__(self, directory: str | Path) -> None:
        """Makes the directory if it is not there. Raises LogWriteFailed."""
        self._directory = Path(directory)
        try:
            make_directory(self._directory)
        except OSError as error:
            raise LogWriteFailed(f"cannot make the directory {directory} for positions: {error.strerror}") from error

    def load(self, reader: str) -> dict[str, LogOffset]:
        path = self._path(reader)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            why = f"{error.strerror}; let this user read that file, or delete it to begin anew"
            raise LogError(f"cannot read the position of '{reader}' in {path}: {why}") from error
        return dict(OffsetsDescriptor.from_bytes(data, path=str(path)).logs)

    def store(self, reader: str, logs: Mapping[str, LogOffset]) -> None:
        path = self._path(reader)
        private = path.with_suffix(f".{uuid.uuid4().hex}")
        try:
            with failpoint("log.offsets_write"), open(private, "xb") as file:
                file.write(OffsetsDescriptor(reader=reader, logs=dict(logs)).to_bytes())
                file.flush()
                os.fsync(file.fileno())
            with failpoint("log.offsets_rename"):
                os.replace(private, path)
            sync_directory(self._directory)
        except OSError as error:
            with failpoint("log.offsets_clean"):
                private.unlink(missing_ok=True)
            raise LogWriteFailed(f"cannot store the position of '{reader}' in {path}: {error.strerror}") from error

    def delete(self, reader: str) -> None:
        path = self._path(reader)
        try:
            with failpoint("log.offsets_delete"):
                path.unlink(missing_ok=True)
            sync_directory(self._directory)
        except OSError as error:
            raise LogWriteFailed(f"cannot delete the position of '{reader}' in {path}: {error.strerror}") from error

    def _path(self, reader: str) -> Path:
        return self._directory / f"{node_name(reader)}.json"


class RegistryOffsetStore(OffsetStore):
    """A node for each reader under one path. For positions that readers on other machines must find."""

    def __init__(self, registry: Registry, path: str) -> None:
        self._registry = registry
        self._parent = path.rstrip("/")

    def load(self, reader: str) -> dict[str, LogOffset]:
        path = self._path(reader)
        node = self._registry.find(path)
        return {} if node is None else dict(OffsetsDescriptor.from_bytes(node.data, path=path).logs)

    def store(self, reader: str, logs: Mapping[str, LogOffset]) -> None:
        """As the contract. Raises what the registry raises."""
        path, data = self._path(reader), OffsetsDescriptor(reader=reader, logs=dict(logs)).to_bytes()
        try:
            with failpoint("log.offsets_set"):
                self._registry.set(path, data)
        except NodeMissing:
            self._create(path, data)

    def delete(self, reader: str) -> None:
        try:
            with failpoint("log.offsets_node_delete"):
                self._registry.delete(self._path(reader))
        except NodeMissing:
            return  # nothing was stored, or somebody was faster

    def _create(self, path: str, data: bytes) -> None:
        try:
            with failpoint("log.offsets_create"):
                self._registry.create(path, data, parents=True)
        except NodeExists:
            with failpoint("log.offsets_set_again"):
                self._registry.set(path, data)

    def _path(self, reader: str) -> str:
        return f"{self._parent}/{node_name(reader)}"
