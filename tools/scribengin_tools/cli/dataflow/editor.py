"""Editing a config as text, in the operator's own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigInvalid, DataflowError, ScribenginError
from scribengin.operations.editing import EditResult, as_yaml, from_yaml, replace_config

_HEAD = """\
# The config of dataflow '{name}', version {version}. Save and leave the editor to put it in force.
# Leave it as it is, or empty, to change nothing.
"""


def edit_text(view: DataflowView, *, force: bool = False) -> EditResult:
    """Let the operator edit the config, and write it if it is good and nobody else has edited it meanwhile.

    Raises ConfigInvalid, DataflowBusy, EditConflict, DataflowError (the editor failed): then the text stands in a file
    that the message names, and nothing was written.
    """
    found = view.config_to_edit()
    shown = _HEAD.format(name=view.dataflow, version=found.version) + as_yaml(found.value)
    with tempfile.NamedTemporaryFile("w", prefix=f"{view.dataflow}-", suffix=".yaml", delete=False) as file:
        file.write(shown)
    path = Path(file.name)
    try:
        _run_editor(path)
        text = path.read_text(encoding="utf-8")
        unchanged = text == shown or not text.strip()
        wanted = found.value if unchanged else from_yaml(view.registry, text, found.value)
        edited = replace_config(view, found, wanted, force=force)
    except ScribenginError as error:
        raise type(error)(f"{error} (your text is in {path})") from error
    path.unlink()
    return edited


def _run_editor(path: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"the editor '{editor}' cannot be run: {error}; set EDITOR") from error
    if code:
        raise DataflowError(f"the editor '{editor}' ended with {code}")
