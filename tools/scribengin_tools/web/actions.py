"""What the page changes in the registry, and how it tries an edit out first. Each may take a while, or raise."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from scribengin.base.text.masking import masked_text
from scribengin.base.text.plain_words import in_plain_words
from scribengin.dataflow.edits import plan_edit
from scribengin.dataflow.registry.edit_log import config_of_version, conflict, edited_since, edits
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import ConfigError, DataflowBusy
from scribengin.launcher.local.launcher import scribengin_home
from scribengin.operations.editing import (
    EditResult,
    as_yaml,
    edit_config,
    from_yaml,
    refuse_invalid,
    refuse_unless_led,
    refuse_unmeant,
    replace_config,
    rolled_back,
    verdict,
    with_values,
)
from scribengin.operations.lifecycle import DesiredState, masters, set_desired_state, start_again
from scribengin_registry.contract import Registry
from scribengin_tools.output.local import LINES_SHOWN, outputs_of, text_of
from scribengin_tools.terminal import visible
from scribengin_tools.web.model.values import Json, history_json


@dataclass(frozen=True, slots=True)
class WebActions:
    """The dataflows of a registry, for whoever uses the page."""

    registry: Registry

    def view(self, name: str) -> DataflowView:
        """Of one of them; whether it exists is for its nodes to tell."""
        return DataflowView(self.registry, name)

    def config(self, name: str) -> Json:
        """The config to edit, with the version that an edit of it has to name."""
        view = self.view(name)
        found = view.config_to_edit()
        status = view.status()
        return {
            "text": as_yaml(found.value),
            "version": found.version,
            "in_force": view.config_in_force().version,
            "error": status.config_error,
        }

    def version(self, name: str, version: int) -> Json:
        """The config as it was. Raises ConfigInvalid: it is not kept."""
        return {"text": as_yaml(config_of_version(self.view(name), version)), "version": version}

    def history(self, name: str) -> Json:
        """Edits and events."""
        view = self.view(name)
        unreadable: dict[str, str] = {}
        found = edits(view, unreadable)
        events, in_force = view.history().events, view.config_in_force().version
        return history_json(found, events, in_force, list(unreadable.values()))

    def check(self, name: str, text: str, version: int) -> Json:
        """What an edit would change and do, or what is wrong with it. Writes nothing."""
        view = self.view(name)
        found = view.config_to_edit()
        checked: dict[str, Any] = {"error": None, "changes": [], "actions": [], "difference": [], "meanwhile": None}
        if found.version != version:
            checked["meanwhile"] = edited_since(view, version)
        try:
            config = from_yaml(view.registry, text, found.value)
            checked["difference"] = _difference(as_yaml(found.value), as_yaml(config))
            plan = plan_edit(found.value, config, running=view.has_workers())
            checked |= {"changes": list(plan.changes), "actions": list(plan.actions)}
            refuse_invalid(view, config)
            refuse_unmeant(view, found.value, config)
        except (ConfigError, DataflowBusy) as error:
            checked["error"] = in_plain_words(error)
        return checked

    def save(self, name: str, text: str, version: int, author: str) -> Json:
        """Replace the config that was read at `version`. Raises ConfigInvalid, EditConflict: nothing was written."""
        view = self.view(name)
        found = view.config_to_edit()
        if found.version != version:
            raise conflict(view, version)
        return _edited(replace_config(view, found, from_yaml(view.registry, text, found.value), author))

    def scale(self, name: str, wanted: dict[str, int], author: str) -> Json:
        """Other numbers of `workers` or `tasks`."""
        view = self.view(name)
        refuse_unless_led(view)
        values = {key: str(value) for key, value in wanted.items()}
        return _edited(edit_config(view, lambda config: with_values(view.registry, config, values), author))

    def roll_back(self, name: str, version: int, author: str) -> Json:
        """Make the config what it was at that version, as a new edit."""
        view = self.view(name)
        view.status()
        return _edited(edit_config(view, rolled_back(view, version), author))

    def set_desired(self, name: str, wanted: DesiredState, author: str) -> Json:
        """Pause it, let it go on, or stop it. Raises DataflowBusy when there is nobody to do it."""
        view = self.view(name)
        refuse_unless_led(view)
        return {"changed": set_desired_state(view, wanted, author)}

    def start(self, name: str, author: str) -> Json:
        """Have one that has ended, or lost all its masters, run again. Raises DataflowBusy, LauncherError."""
        start_again(self.view(name), scribengin_home(), author)
        return {"changed": True}

    def logs(self, name: str) -> Json:
        """The last lines of its processes on this machine, without secrets."""
        outputs = outputs_of(self.registry.hosts, name, self.view(name).status().submitted_ms)
        return {
            "outputs": [
                {"heading": output.heading, "text": visible(masked_text(text_of(output, LINES_SHOWN)))}
                for output in outputs
            ]
        }

    def verdict(self, name: str, version: int) -> Json:
        """What the master makes of a version; it is waited for some seconds. Raises ConfigInvalid when it refuses."""
        view = self.view(name)
        seen = verdict(view, version) if masters(view) else None
        return {"seen": seen is not None, "actions": list(seen.actions) if seen is not None else []}


def _edited(edited: EditResult) -> Json:
    return {
        "version": edited.version,
        "written": edited.written,
        "changes": list(edited.plan.changes),
        "actions": list(edited.plan.actions),
        "meanwhile": edited.meanwhile,
    }


def _difference(before: str, after: str) -> list[str]:
    """The lines that differ, with two around them; each begins with `+`, `-`, a space or `@`."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return [line for line in lines if not line.startswith(("---", "+++"))]
