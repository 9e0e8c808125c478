"""What a dataflow's containers are given, brought to where every node finds it."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

from scribengin.base import jvm
from scribengin.base.process.private import private_directory
from scribengin.errors import ConfigInvalid
from scribengin.launcher.yarn.config import YarnConfig
from scribengin.launcher.yarn.launching import CONFIGURATION, LOGIN, PACKAGE, Kit, kit_of
from scribengin.launcher.yarn.security import login
from scribengin.launcher.yarn.shipping.staging import Staging
from scribengin_registry.opening import AUTH_VARIABLE
from scribengin_registry.references import without_references

_SITES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml", "mapred-site.xml", "log4j.properties")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_DIGEST_LETTERS = 32


class Shipping:
    """Uploads for one dataflow. Files are named by their content, and uploaded once."""

    def __init__(self, yarn: YarnConfig, home: Path, *, uploads: bool = True) -> None:
        """`home` is where what is uploaded may be made. Without `uploads` all URLs are the same, and nothing is there.
        Raises ConfigInvalid, LauncherError."""
        self._yarn = yarn
        self._home = home
        self._uploads = uploads
        configuration = jvm.yarn_configuration()
        login(configuration, yarn.security)
        self._staging = Staging(configuration, yarn.staging)

    def put(self, file: Path) -> str:
        """Upload a file that is named by its content. Returns its URL. Raises LauncherError."""
        return self._put(file, file.name)

    def shipped(self) -> YarnConfig:
        """The section with the URLs of what is files here, and with the Python that is meant. Raises ConfigInvalid."""
        files = {name: self._brought(name, place) for name, place in self._yarn.files.items()}
        python = self._yarn.python
        if python.path is None and python.archive is None:
            python = python.model_copy(update={"path": sys.executable})
        return self._yarn.model_copy(update={"files": files, "python": python})

    def kit(self, package: str | None) -> Kit:
        """What every container is given, `package` being a URL. Raises ConfigInvalid, LauncherError."""
        files = dict(self._yarn.files)
        files[CONFIGURATION] = self.put(self._configuration())
        if package is not None:
            files[PACKAGE] = package
        auth = os.environ.get(AUTH_VARIABLE, "")
        if without_references(auth):
            files[LOGIN] = self.put(self._login(auth))
        return kit_of(self._yarn, files)

    def _login(self, auth: str) -> Path:
        """Who masters and workers are to the registry, as a file that only this user can read, here and there."""
        name = hashlib.scrypt(auth.encode(), salt=LOGIN.encode(), n=2**14, r=8, p=1, dklen=_DIGEST_LETTERS // 2)
        target = self._home / "shipped" / f"{LOGIN}-{name.hex()}"
        private_directory(target.parent)
        target.touch(mode=0o600)
        target.write_text(auth, encoding="utf-8")
        return target

    def _brought(self, name: str, place: str) -> str:
        if urlsplit(place).scheme:
            return place
        file = Path(place)
        if not file.is_file():
            raise ConfigInvalid(f"yarn.files.{name}: there is no file {place}: name one of this machine, or a URL")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:_DIGEST_LETTERS]
        return self._put(file.absolute(), f"{digest}-{file.name}")

    def _put(self, file: Path, name: str) -> str:
        return self._staging.put(file, name) if self._uploads else self._staging.place(name)

    def _configuration(self) -> Path:
        """The cluster's configuration as one archive: nodes need not have it where the machine has it that submits."""
        directory = jvm.configuration_directory()
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in _SITES:
                if (directory / name).is_file():
                    archive.writestr(zipfile.ZipInfo(name, _EPOCH), (directory / name).read_bytes())
        content = packed.getvalue()
        target = self._home / "shipped" / f"hadoop-conf-{hashlib.sha256(content).hexdigest()[:_DIGEST_LETTERS]}.zip"
        private_directory(target.parent)
        target.write_bytes(content)
        return target
