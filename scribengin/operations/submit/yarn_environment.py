"""The Python environment of a dataflow on YARN: packed and uploaded once, before anything is submitted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from scribengin.base.masking import MASK, masked
from scribengin.dataflow.config import DataflowConfig
from scribengin.launcher.yarn.shipping.environment import EnvironmentArchive, build_environment
from scribengin.launcher.yarn.shipping.shipping import Shipping

Say = Callable[[str], None]
_MIB = 1 << 20


def with_environment(config: DataflowConfig, home: Path, say: Say, *, uploads: bool = True) -> DataflowConfig:
    """The dataflow with the archive of this environment, unless it says which Python its containers have.

    Packs and, with `uploads`, uploads what is not there yet. Raises ConfigInvalid, LauncherError.
    """
    python = config.yarn.python
    if python.path is not None or python.archive is not None:
        return config
    say("packing the Python environment (half a minute, the first time) ...")
    archive = build_environment()
    say(told(archive) + ("; uploading it, unless it is there ..." if uploads else ""))
    url = Shipping(config.yarn, home, uploads=uploads).put(archive.path)
    say(f"environment: {url}")
    yarn = config.yarn.model_copy(update={"python": python.model_copy(update={"archive": url})})
    return config.model_copy(update={"yarn": yarn})


def told(archive: EnvironmentArchive) -> str:
    """An archive in one line."""
    size = f"{archive.files} files, {archive.size_bytes / _MIB:.0f} MiB"
    how = f"packed in {archive.duration_s:.0f} s" if archive.built else "packed before, nothing has changed"
    return f"{archive.path.name}: {size}, {how}"


def secrets_in_the_clear(config: DataflowConfig) -> list[str]:
    """The variables of `yarn.environment` that look like secrets, and are no references: YARN tells whoever may see the
    application."""
    return [name for name, value in config.yarn.environment.items() if masked(value, name) == MASK]
