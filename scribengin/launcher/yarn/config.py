"""`YarnConfig`: what a dataflow asks of YARN. Read by everybody, also where there is no Java."""

from __future__ import annotations

import re
from pathlib import PurePath
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from scribengin.base.model import Config

_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_LINK = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")
RESERVED_LINKS = ("environment", "package", "hadoop-conf", "registry-login")
"""What every container finds under these names in its working directory, if it has it at all."""


class PythonConfig(Config):
    """The Python of masters and workers: `path` on every node, or an `archive` (a URL) with `bin/python` in it.

    Without either it is the one that submits, at the same path: good where all nodes are set up alike.
    """

    path: str | None = None
    """An absolute path that names Python on every node."""
    archive: str | None = None
    """The URL of a packed environment with `bin/python` in it."""

    @model_validator(mode="after")
    def _one_place(self) -> PythonConfig:
        if self.path is not None and self.archive is not None:
            raise ValueError("give one of yarn.python.path and yarn.python.archive")
        if self.path is not None and not PurePath(self.path).is_absolute():
            raise ValueError(f"yarn.python.path '{self.path}' is not absolute: it must name Python on every node")
        if self.archive is not None and not urlsplit(self.archive).scheme:
            raise ValueError(f"yarn.python.archive '{self.archive}' is no URL, as in hdfs:///apps/environment.tar.gz")
        return self


class YarnMasterConfig(Config):
    """What the master's container gets: Python and a small JVM."""

    memory_mb: int = Field(default=768, ge=256)
    """Memory of the master's container."""
    cores: int = Field(default=1, ge=1)
    """Processors of the master's container."""


class SecurityConfig(Config):
    """Who the dataflow is on a Kerberos cluster. Without a keytab the ticket cache of whoever submits counts, and the
    dataflow lives no longer than the tokens that it was given."""

    principal: str | None = None
    """Whom the keytab is for, as in `etl@EXAMPLE.ORG`."""
    keytab: str | None = None
    """A path on the machine that submits; it travels to the master's container, and to nobody else."""
    file_systems: list[str] = []
    """URLs of further file systems, beside the default one, that masters and workers need tokens of."""

    @model_validator(mode="after")
    def _together(self) -> SecurityConfig:
        if self.keytab is not None and self.principal is None:
            raise ValueError("yarn.security.keytab goes with yarn.security.principal")
        return self


class YarnConfig(Config):
    """How a dataflow with `launcher: yarn` runs. The cluster itself is what HADOOP_CONF_DIR says."""

    queue: str | None = None
    """Default: the cluster's own for this user."""
    node_label: str | None = None
    """Only nodes of this label, for the master and for workers."""
    priority: int | None = Field(default=None, ge=0)
    """The application's among those of its queue; a larger one goes first."""
    attempts: int = Field(default=10, ge=1)
    """So many masters may fail within `attempts_window_s`, then YARN gives up (or before, at the cluster's limit)."""
    attempts_window_s: int = Field(default=600, ge=10)
    """The time in which failures of masters are counted together."""
    master: YarnMasterConfig = YarnMasterConfig()
    """What the master's container gets."""
    python: PythonConfig = PythonConfig()
    """The Python of masters and workers."""
    environment: dict[str, str] = {}
    """For masters and workers; they stand in the registry and in YARN's memory: no place for secrets. A value may have
    `${file:...}` of the nodes, or of one of `files`, and `${env:...}`: masters and workers resolve it as they start."""
    files: dict[str, str] = {}
    """Further files: the name in a container's working directory -> a path here or a URL. What ends in `.zip`, `.tar`,
    `.tar.gz` or `.tgz` is unpacked into a directory of that name."""
    staging: str | None = None
    """The directory for what containers are given, a URL. Default: `.scribengin` in the user's home on the cluster's
    default file system."""
    security: SecurityConfig = SecurityConfig()
    """Who the dataflow is, on a cluster with Kerberos."""

    @field_validator("environment")
    @classmethod
    def _variable_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"'{name}' is no name of an environment variable")
        return value

    @field_validator("files")
    @classmethod
    def _link_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not _LINK.fullmatch(name) or name in RESERVED_LINKS:
                raise ValueError(f"'{name}' cannot be the name of a file (one word, not {', '.join(RESERVED_LINKS)})")
        return value
