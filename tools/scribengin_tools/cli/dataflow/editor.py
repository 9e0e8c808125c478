"""Editing a config as text, in the operator's own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from scribengin.dataflow.edits import EditPlan
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
    that the message names, and nothing was written. The editor may have removed the file: then there is no text.
    """
    editor = _editor(view.dataflow)
    found = view.config_to_edit()
    shown = _HEAD.format(name=view.dataflow, version=found.version) + as_yaml(found.value)
    name = f"{view.dataflow}-"
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix=name, suffix=".yaml", delete=False) as file:
        file.write(shown)
    path = Path(file.name)
    try:
        _run_editor(editor, path)
        text = _saved(path)
        if text == shown or not text.strip():
            edited = EditResult(found.version, EditPlan(), written=False)
        else:
            edited = replace_config(view, found, from_yaml(view.registry, text, found.value), force=force)
    except ScribenginError as error:
        if path.is_file():
            error.args = (f"{error} (your text is in {path})",)
        raise
    path.unlink(missing_ok=True)
    return edited


def _saved(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigInvalid(f"{path} cannot be read ({error.strerror}): nothing was changed") from None
    except UnicodeDecodeError as error:
        odd, line = error.object[error.start], error.object.count(b"\n", 0, error.start) + 1
        raise ConfigInvalid(f"the text is not in UTF-8 (byte 0x{odd:02x} in line {line}): save it as that") from None


def _editor(dataflow: str) -> str:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigInvalid(
            f"there is no terminal for an editor: use `scribengin config set {dataflow} KEY=VALUE`, or name one that "
            "needs none in EDITOR"
        )
    return named or "vi"


def _run_editor(editor: str, path: Path) -> None:
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"the editor '{editor}' cannot be run: {error}; set EDITOR") from error
    if code:
        raise DataflowError(f"the editor '{editor}' ended with {code}")
